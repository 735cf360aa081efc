// What the page calls: the core behind a C interface of numbers and addresses. There is one current tree and one
// current head; a call that fails returns -1 and leaves a sentence in canopy_text. Not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "canopy/plan.hpp"
#include "canopy/reference.hpp"

// Kept by the linker and exported under its own name.
#define CANOPY_EXPORT extern "C" __attribute__((visibility("default"), used))
#define CANOPY_WASM(name) CANOPY_EXPORT __attribute__((export_name(#name)))

namespace canopy::wasm {

inline constexpr int kFailed = -1;

struct Session {
  std::string text;         // to the module: a tree's text; from it: a message, a name, a tree written out
  std::vector<Tree> found;  // what canopy_read found
  Tree tree;
  Plan plan{};
  reference::Head<double> head;
};
Session& session();

int fail(const Error& error);
void set_tree(Tree tree);

}  // namespace canopy::wasm
