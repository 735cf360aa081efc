#include "host/replays.hpp"

#include <algorithm>
#include <cmath>

namespace canopy::host {

int launches_of(const ReplayEffort& effort, double once, int step) {
  const double count = std::ceil(effort.replay_seconds / std::max(once, 1e-9));  // a clock may stand still
  const int wanted = static_cast<int>(std::clamp(count, 1.0, static_cast<double>(effort.launches)));
  return (wanted + step - 1) / step * step;
}

int copies_for(int least) {
  return least < kMostStarts ? least : (least + kMostStarts - 1) / kMostStarts * kMostStarts;
}

Rotation rotation_of(int copies, int launches_of_slowest) {
  Rotation rotation{copies, copies};
  while (rotation.step % 2 == 0 && rotation.starts() < kMostStarts && rotation.step > launches_of_slowest)
    rotation.step /= 2;
  if (copies < kMostStarts && rotation.step > launches_of_slowest) rotation.step = 1;
  return rotation;
}

std::vector<int> Rounds::present() const {
  std::vector<int> list;
  for (std::size_t i = 0; i < states_.size(); ++i)
    if (!states_[i].left) list.push_back(static_cast<int>(i));
  return list;
}

bool Rounds::add(int contender, double seconds) {
  State& state = states_[static_cast<std::size_t>(contender)];
  if (state.left) return false;
  ++state.replays, state.seconds += seconds;
  const int kept = state.replays - effort_.warm_ups;
  state.left = kept >= effort_.repeat || (kept >= effort_.least && state.seconds >= effort_.share);
  return kept > 0;
}

}  // namespace canopy::host
