/* state_output of K = 256, the half form. */
#include "launch.cuh"

namespace gdn
{
namespace sm90
{

template struct StateLaunch<__nv_bfloat16, Form::kHalf, Dims<256>>;
template struct StateLaunch<__half, Form::kHalf, Dims<256>>;

} // namespace sm90
} // namespace gdn
