// What verify and commit have in common: check, find or choose, refuse, check the workspace, run.
#pragma once

#include <cstdint>
#include <memory>
#include <new>

#include "dispatch/dispatch.hpp"
#include "message.hpp"

namespace canopy {

// The implementation of that name, or the dispatcher's choice for an empty one, for params that pass check().
template <class Params>
Result<const Implementation<Params>*> resolve(const Params& params, std::string_view name,
                                              std::span<const Implementation<Params>> all) {
  if (Error error = check(params); !error.ok()) return error;
  if (name.empty()) {
    auto choice = dispatch::pick(params, false);
    if (!choice) return choice.error();
    return choice->implementation;
  }
  for (const auto& implementation : all) {
    if (name != implementation.name) continue;
    if (const std::string why = dispatch::objection(implementation, params); !why.empty())
      return Error::unsupported(text(name, ": ", why));
    return &implementation;
  }
  std::string names;
  for (const auto& implementation : all) names += (names.empty() ? "" : ", ") + std::string(implementation.name);
  return Error::invalid(
      text("implementation = \"", name, "\": expected one of ", names, ", or none for the dispatcher's choice"));
}

template <class Params>
Error call(const Params& params, std::string_view name, std::span<const Implementation<Params>> all, void* workspace,
           std::size_t bytes, void* stream) {
  const auto implementation = resolve(params, name, all);
  if (!implementation) return implementation.error();
  const std::size_t needed = (*implementation)->workspace(params);
  if (needed > 0 && !workspace) {
    return {CANOPY_WORKSPACE, text("workspace is NULL: expected ", needed, " bytes for ", (*implementation)->name,
                                   "; ask the workspace query and pass that much")};
  }
  if (needed > bytes) {
    return {CANOPY_WORKSPACE, text("workspace bytes = ", bytes, ": expected at least ", needed, " for ",
                                   (*implementation)->name, "; ask the workspace query with the same params")};
  }
  if (needed > 0 && reinterpret_cast<std::uintptr_t>(workspace) % 64 != 0) {
    return {CANOPY_WORKSPACE,
            "workspace: expected an address that is a multiple of 64, got one that is not; use aligned_alloc(64, ...)"};
  }
  if (params.problem.batch == 0) return {};
  return (*implementation)->run(params, workspace, stream);
}

template <class Params>
Result<std::size_t> workspace_bytes(const Params& params, std::string_view name,
                                    std::span<const Implementation<Params>> all) {
  const auto implementation = resolve(params, name, all);
  if (!implementation) return implementation.error();
  return (*implementation)->workspace(params);
}

// The same with a workspace of its own.
template <class Params>
Error call_once(const Params& params, std::string_view name, std::span<const Implementation<Params>> all) {
  if (params.problem.device != CANOPY_CPU)
    return Error::unsupported("workspace: a problem on a device needs one from the caller (workspace query)");
  const auto needed = workspace_bytes(params, name, all);
  if (!needed) return needed.error();
  struct Delete {
    void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t{64}); }
  };
  const std::unique_ptr<std::byte[], Delete> workspace(
      static_cast<std::byte*>(::operator new[](*needed ? *needed : 64, std::align_val_t{64}, std::nothrow)));
  if (!workspace) return {CANOPY_WORKSPACE, text("workspace: ", *needed, " bytes are not to be had; split the batch")};
  return call(params, name, all, workspace.get(), *needed, nullptr);
}

}  // namespace canopy
