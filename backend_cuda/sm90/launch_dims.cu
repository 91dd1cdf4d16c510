/* The kernels for head dims other than K = V = 128, and for checkpoints that those have not. */
#include "launch.cuh"

namespace gdn
{
namespace sm90
{

const Launchers kLaunchers64 = {launch_prep<64>, launch_state<Form::kStateOnly, Dims<64>>, launch_join<64>,
                                launch_state_output<Dims<64>>};
const Launchers kLaunchers128 = {nullptr, launch_state<Form::kStateOnly, Dims<128>>, nullptr,
                                 launch_state_output<Dims<128>>};
const Launchers kLaunchers256 = {launch_prep<256>, launch_state<Form::kStateOnly, Dims<256>>, launch_join<256>,
                                 launch_state_output<Dims<256>>};

} // namespace sm90
} // namespace gdn
