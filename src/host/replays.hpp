// Rounds of replays: one of each contender, then the next round, until each has its number or its share of time. What
// is decided is here and knows no device; src/host/device_bench.cpp replays.
#pragma once

#include <vector>

namespace canopy::host {

// What one contender is given in one state of the caches.
struct ReplayEffort {
  int warm_ups = 25, repeat = 200;  // replays that are not kept, then those that are
  double replay_seconds = 2e-4;     // one replay holds launches for so long, long beside what events and graphs cost,
  int launches = 200;               // but no more than these
  double share = 0.1;               // seconds of replays after which a contender leaves,
  int least = 20;                   // though not with fewer kept than these
};

// Launches of a replay of something that takes `once` seconds; a multiple of `step`.
int launches_of(const ReplayEffort& effort, double once, int step);

// How contenders go round over the copies of a problem: every replay begins with the copy after the last one that any
// replay touched, so between two uses of a copy all others are used. A replay begins at a multiple of `step` and holds
// a multiple of it, so that a contender needs copies / step graphs.
struct Rotation {
  int copies = 1, step = 1;
  int starts() const { return copies / step; }
  // Of the start'th graph of a contender with so many launches: the copy of a launch, and whose turn is next.
  int copy(int start, int launch) const { return (start * step + launch) % copies; }
  int after(int start, int launches) const { return (start + launches / step) % starts(); }
};
inline constexpr int kMostStarts = 8;
// Enough copies for `least` of them to be in turn, in at most kMostStarts steps, each as long as a slow contender wants
// a replay to be where it is longer than that.
int copies_for(int least);
Rotation rotation_of(int copies, int launches_of_slowest);

class Rounds {
 public:
  Rounds(const ReplayEffort& effort, int contenders) : effort_(effort), states_(contenders) {}
  // Whoever still takes part; empty at the end.
  std::vector<int> present() const;
  // A replay of `contender` took `seconds`. True if it is one to keep; after it left none is.
  bool add(int contender, double seconds);

 private:
  struct State {
    int replays = 0;
    double seconds = 0;
    bool left = false;
  };
  ReplayEffort effort_;
  std::vector<State> states_;
};

}  // namespace canopy::host
