// What the demo measures of one published tree, and how it is laid out.
#pragma once

#include <string>
#include <vector>

#include "canopy/tree.hpp"

namespace canopy::cli {

inline constexpr int kDemoLayers = 24;  // Gated DeltaNet layers of Qwen3.5-9B
enum DemoVerify { kSnapshot, kResident, kClosedForm, kDemoVerifies };
enum DemoCommit { kResolve, kStash, kReplay, kDemoCommits };
// On the CPU, and on the GPU where there is one.
inline constexpr const char* kDemoVerifyNames[][kDemoVerifies] = {
    {"cpu_serial_snapshot", "cpu_serial_resident", "cpu_closed_form"},
    {"cuda_serial_snapshot", "cuda_serial_resident", "cuda_fused"}};
inline constexpr const char* kDemoCommitNames[][kDemoCommits] = {
    {"cpu_commit_resolve", "cpu_commit_stash", "cpu_commit_replay"},
    {"cuda_commit_resolve", "cuda_commit_stash", "cuda_commit_replay"}};

struct DemoRow {
  std::string name;  // file and, where it holds several, the number
  Tree tree;
  int leaf = 0;  // the deepest node, accepted
  int dense_blocks = 0, compressed_blocks = 0;
  double verify_seconds[kDemoVerifies] = {}, commit_seconds[kDemoCommits] = {};
  double verify_error[kDemoVerifies] = {}, commit_error[kDemoCommits] = {};  // relative Frobenius, against fp64
  double snapshot_bytes = 0, stash_bytes = 0;  // kept from verification to commit, a layer; resolve keeps nothing
  double workspace_bytes = 0;                  // of the closed form, shared by all layers
  bool passed = true;
};

struct DemoView {
  bool colour = false;
  void heading(const std::string& machine, const std::string& layer) const;
  void shapes(const std::vector<DemoRow>& rows) const;  // drawings of the small trees, profiles of the others
  void times(const std::vector<DemoRow>& rows) const;
  void memory(const std::vector<DemoRow>& rows) const;
  void closing(const std::vector<DemoRow>& rows) const;

 private:
  std::string dim(const std::string& text) const;
  std::string verdict(bool passed) const;
};

}  // namespace canopy::cli
