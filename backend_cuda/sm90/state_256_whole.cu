/* state_output of K = 256, the whole form. */
#include "launch.cuh"

namespace gdn
{
namespace sm90
{

template struct StateLaunch<__nv_bfloat16, Form::kWhole, Dims<256>>;
template struct StateLaunch<__half, Form::kWhole, Dims<256>>;

} // namespace sm90
} // namespace gdn
