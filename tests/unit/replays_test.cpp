// When contenders leave the rounds, and that cold replays never meet a copy that was used a moment ago.
#include "host/replays.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace canopy::host {
namespace {

// Replays kept of each, for contenders whose replays take so long.
std::vector<int> kept(const ReplayEffort& effort, const std::vector<double>& seconds, int* most_rounds = nullptr) {
  Rounds rounds(effort, static_cast<int>(seconds.size()));
  std::vector<int> count(seconds.size());
  int number = 0;
  for (auto present = rounds.present(); !present.empty(); present = rounds.present(), ++number)
    for (const int i : present) count[i] += rounds.add(i, seconds[i]);
  if (most_rounds) *most_rounds = number;
  return count;
}

TEST(Replays, TheFastHaveTheirNumberAndTheSlowTheirShare) {
  const ReplayEffort effort{.warm_ups = 25, .repeat = 200, .share = 0.1, .least = 20};
  int rounds = 0;
  // 225 of the first; of the second 100 fill the share and 75 of them are kept; of the third 45 are far more than it.
  EXPECT_EQ(kept(effort, {1e-4, 1.001e-3, 1e-2}, &rounds), (std::vector<int>{200, 75, 20}));
  EXPECT_EQ(rounds, 225);
}

TEST(Replays, WarmUpsAreNotKept) {
  Rounds rounds({.warm_ups = 2, .repeat = 2}, 1);
  EXPECT_FALSE(rounds.add(0, 1e-4));
  EXPECT_FALSE(rounds.add(0, 1e-4));
  EXPECT_TRUE(rounds.add(0, 1e-4));
  EXPECT_TRUE(rounds.add(0, 1e-4));
  EXPECT_TRUE(rounds.present().empty());
  EXPECT_FALSE(rounds.add(0, 1e-4));  // replays that were under way when it left
}

TEST(Replays, LaunchesFillAReplayWithinBounds) {
  const ReplayEffort effort{.replay_seconds = 1e-4, .launches = 40};
  EXPECT_EQ(launches_of(effort, 6e-6, 1), 17);
  EXPECT_EQ(launches_of(effort, 1e-6, 1), 40);
  EXPECT_EQ(launches_of(effort, 0, 1), 40);
  EXPECT_EQ(launches_of(effort, 3e-3, 1), 1);
  EXPECT_EQ(launches_of(effort, 6e-6, 7), 21);  // whole steps
  EXPECT_EQ(launches_of(effort, 3e-3, 7), 7);
}

TEST(Replays, StepsDivideTheCopies) {
  for (int least = 2; least <= 80; ++least) {
    const int copies = copies_for(least);
    EXPECT_GE(copies, least);
    EXPECT_LT(copies, least + kMostStarts);
    for (const int slowest : {1, 2, 5, 20, 40}) {
      const Rotation rotation = rotation_of(copies, slowest);
      EXPECT_EQ(rotation.copies, copies);
      EXPECT_EQ(copies % rotation.step, 0);
      EXPECT_LE(rotation.starts(), kMostStarts);
      EXPECT_TRUE(rotation.step <= slowest || rotation.starts() == kMostStarts) << copies << " " << slowest;
    }
  }
}

// Between two uses of a copy all the others are used.
TEST(Replays, BetweenTwoUsesOfACopyAreAllOthers) {
  const ReplayEffort effort{.replay_seconds = 1e-4, .launches = 40};
  for (const int least : {1, 2, 3, 12, 57}) {
    const int copies = copies_for(least);
    const std::vector<double> once{2e-6, 7e-6, 3e-5, 2e-4};
    const Rotation rotation = rotation_of(copies, launches_of(effort, once.back(), 1));
    std::vector<int> used;
    int start = 0;
    for (int round = 0; round < 20; ++round)
      for (const double seconds : once) {
        const int launches = launches_of(effort, seconds, rotation.step);
        for (int i = 0; i < launches; ++i) used.push_back(rotation.copy(start, i));
        start = rotation.after(start, launches);
      }
    for (std::size_t i = 0; i + copies < used.size(); ++i) ASSERT_EQ(used[i], used[i + copies]);
    std::sort(used.begin(), used.begin() + copies);
    for (int i = 0; i < copies; ++i) ASSERT_EQ(used[i], i);
  }
}

}  // namespace
}  // namespace canopy::host
