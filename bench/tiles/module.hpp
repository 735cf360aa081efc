// A variant of the fused kernel's CTAs as a module of its own (variant.cu), loaded from a file and launched.
#pragma once

#include <string>

#include "canopy/canopy.hpp"
#include "cta.hpp"

namespace canopy::tiles {

struct Variant {
  std::string name;
  CtaRecord cta{};
  void* kernel = nullptr;  // a cudaKernel_t; it stays loaded until the process ends
};
Result<Variant> load_variant(const std::string& name, const std::string& path);

// Bytes that a call needs, and the call on `params`, which have a plan.
std::size_t workspace_bytes(const Problem& problem);
Error launch(const Variant& variant, const VerifyParams& params, void* workspace, void* stream);

}  // namespace canopy::tiles
