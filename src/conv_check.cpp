// check() of the tree convolution: everything that its structs say, argument by argument, before anything runs.
#include "check.hpp"
#include "conv_rows.hpp"
#include "message.hpp"

namespace canopy {
namespace {

Error check_shape(const ConvProblem& p) {
  if (p.abi_version != CANOPY_ABI_VERSION) {
    return Error::invalid(text("abi_version = ", p.abi_version, ": expected ", CANOPY_ABI_VERSION,
                               "; call canopy_conv_verify_params_init or canopy_conv_commit_params_init, and build "
                               "against this library's canopy.h"));
  }
  if (Error error = check_plan(rows_of(p)); !error.ok()) return error;  // batch, slots, trees
  if (p.channels < 1) return Error::invalid(text("channels = ", p.channels, ": expected 1 or more channels"));
  if (p.width < 2 || p.width > kConvTaps) {
    return Error::invalid(text("width = ", p.width, ": expected 2 to ", kConvTaps,
                               " taps; pad a narrower weight with zeros in front (a width of 1 needs no window)"));
  }
  return {};
}

// [B,T,C] whose channels are contiguous, which is what lets a kernel take several at a time.
Error check_rows_of_channels(const Tensor& tensor, const char* name, const ConvProblem& p, int layers, bool written) {
  if (tensor.data && tensor.stride[3] != 1) {
    return Error::invalid(
        text(name, ".stride[3] = ", tensor.stride[3],
             ": expected 1 (the channels of [B,T,C] are contiguous); make the last axis contiguous or "
             "fill in the strides, in elements"));
  }
  return need(tensor, {name, "[B,T,C]", {p.batch, p.nodes, p.channels}, 3, kFloats, written}, layers, p.batch > 0);
}

Error check_problem(const ConvProblem& p, int layers, bool state_written) {
  if (Error error = check_rows_of_channels(p.x, "x", p, layers, false); !error.ok()) return error;
  return need(p.state, {"state", "[slots,C,W-1]", {p.slots, p.channels, p.width - 1}, 3, kFloats, state_written},
              layers, p.batch > 0 && p.slots > 0);
}

}  // namespace

Error check(const ConvVerifyParams& params) {
  const ConvProblem& p = params.problem;
  if (Error error = check_shape(p); !error.ok()) return error;
  if (Error error = check_problem(p, 1, false); !error.ok()) return error;
  const TensorRule weight{"weight", "[C,W]", {p.channels, p.width}, 2, kFloats},
      bias{"bias", "[C]", {p.channels}, 1, kFloats};
  if (Error error = need(params.weight, weight, 1, p.batch > 0); !error.ok()) return error;
  if (Error error = need(params.bias, bias, 1, false); !error.ok()) return error;
  if (Error error = check_rows_of_channels(params.o, "o", p, 1, true); !error.ok()) return error;
  if (p.batch > 0 && params.o.dtype != p.x.dtype && params.o.dtype != CANOPY_F32) {
    return Error::invalid(text("o.dtype = ", dtype_name(params.o.dtype), ": expected ", dtype_name(p.x.dtype),
                               ", the dtype of x, or f32; convert the result yourself"));
  }
  if (p.batch > 0 && params.o.data == p.x.data) {
    return Error::invalid(
        "o.data = x.data: expected memory of its own, since a node's descendants still read its input; give another "
        "output");
  }
  return p.device == CANOPY_CPU && !params.row_status ? check_rows(rows_of(p)) : Error{};
}

Error check(const ConvCommitParams& params) {
  const ConvProblem& p = params.problem;
  if (Error error = check_shape(p); !error.ok()) return error;
  if (params.layers < 1) return Error::invalid(text("layers = ", params.layers, ": expected 1 or more"));
  if (Error error = check_problem(p, params.layers, true); !error.ok()) return error;
  if (!params.leaf && p.batch > 0) return missing("leaf", "[B] int32", ", the accepted node of each sequence");
  if (!params.track_leaf != !params.track_slot) {
    return missing(params.track_leaf ? "track_slot" : "track_leaf", "[B]", ": the two come together");
  }
  return p.device == CANOPY_CPU && !params.row_status ? check_rows(rows_of(params)) : Error{};
}

}  // namespace canopy
