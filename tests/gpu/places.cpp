// Where tensors lie changes no bit: outputs and gates with gaps, heads further apart than nodes, and strides that take
// sequences, nodes or heads past 2^32 elements (the pool's: far_slot() of parity.cpp, and here of commit).
#include <array>
#include <cstring>

#include "gpu/harness.hpp"
#include "message.hpp"

namespace canopy::gpu {
namespace {

using Extents = std::array<std::int64_t, 4>;  // [B,T,heads,width] or [slots,HV,rows,columns]

// A tensor's pieces, wherever its strides put them in device memory.
class Placed {
 public:
  Placed(const HostTensor& like, DeviceMemory& memory, std::int64_t at, const Extents& stride)
      : memory_(&memory), at_(at), stride_(stride), dtype_(like.dtype), extent_{1, 1, 1, 1} {
    std::copy(like.shape.begin(), like.shape.end(), extent_.begin());
  }
  canopy_tensor view() const {
    return {static_cast<char*>(memory_->data()) + at_, dtype_, 0, {0, stride_[0], stride_[1], stride_[2], stride_[3]}};
  }
  Error upload(const HostTensor& from) {
    return each_piece([&](std::size_t here, std::size_t bytes, std::int64_t there) {
      return memory_->upload(&from.bytes[here], bytes, there);
    });
  }
  Error download(HostTensor& to) {
    return each_piece([&](std::size_t here, std::size_t bytes, std::int64_t there) {
      return memory_->download(&to.bytes[here], bytes, there);
    });
  }
  std::size_t begin() const { return static_cast<std::size_t>(at_); }
  // 0xff over its pieces in a copy of the memory from begin() on.
  void erase(std::vector<std::byte>& copy) const {
    (void)each_piece([&](std::size_t, std::size_t bytes, std::int64_t there) {
      std::fill_n(copy.begin() + (there - at_), bytes, std::byte{0xff});
      return Error{};
    });
  }
  Error spoil() {
    return each_piece([&](std::size_t, std::size_t bytes, std::int64_t there) {
      return memory_->fill(0xff, bytes, static_cast<std::size_t>(there));
    });
  }

 private:
  // do_it(place in the host's tensor, bytes, place in memory), for as much as lies in one piece in both.
  template <class Do>
  Error each_piece(Do&& do_it) const {
    std::int64_t piece = 1, outer = 4;
    while (outer > 0 && (extent_[outer - 1] == 1 || stride_[outer - 1] == piece)) piece *= extent_[--outer];
    const std::int64_t size = static_cast<std::int64_t>(host::size_of(dtype_));
    std::int64_t pieces = 1;
    for (int axis = 0; axis < outer; ++axis) pieces *= extent_[axis];
    for (std::int64_t i = 0; i < pieces; ++i) {
      std::int64_t there = at_;
      for (std::int64_t axis = outer - 1, left = i; axis >= 0; left /= extent_[axis--])
        there += left % extent_[axis] * stride_[axis] * size;
      if (Error error = do_it(i * piece * size, piece * size, there); !error.ok()) return error;
    }
    return {};
  }

  DeviceMemory* memory_;
  std::int64_t at_;
  Extents stride_;
  canopy_dtype dtype_;
  Extents extent_;
};

constexpr std::int64_t kRoom = 1 << 19;  // bytes of a tensor but for the steps along its far axis

struct Place {
  const char* name;
  int nodes;
  int axis = -1;          // 0 sequences, 1 nodes, 2 heads lie ...
  std::int64_t step = 0;  // ... that many elements apart; -1: gaps everywhere
};

// Strides of [B,T,N,W], the far axis outside all others; else heads outside nodes, and gaps.
Extents strides_of(const Place& place, const HostTensor& tensor) {
  Extents extent = {1, 1, 1, 1}, stride{};
  std::copy(tensor.shape.begin(), tensor.shape.end(), extent.begin());
  stride[3] = 1;
  if (place.axis < 0) {
    stride[1] = extent[3] + 8, stride[2] = stride[1] * extent[1] + 64, stride[0] = stride[2] * extent[2] + 16;
    return stride;
  }
  std::int64_t next = extent[3];
  for (int axis = 2; axis >= 0; --axis) {
    stride[axis] = axis == place.axis ? place.step : next;
    if (axis != place.axis) next *= extent[axis];
  }
  return stride;
}

// All tensors of a problem and of its outputs in one block of memory, each in a room of its own.
class PlacedProblem {
 public:
  PlacedProblem(const Place& place, HostProblem& problem) : place_(place), problem_(problem) {
    const Problem p = *problem.problem();
    const std::int64_t B = p.batch, T = p.nodes, HV = p.heads_v, V = p.dim_v;
    const std::int64_t far = place.axis < 0 ? 1 : place.axis == 0 ? B : place.axis == 1 ? T : HV;
    memory_ = DeviceMemory(static_cast<std::size_t>(9 * kRoom + (far - 1) * place.step * 4));
    for (const char* name : {"q", "k", "v", "g", "beta"}) put(name, problem.tensors.at(name));
    put("o", HostTensor::make(CANOPY_BF16, {B, T, HV, V}));
    put("u", HostTensor::make(CANOPY_F32, {B, T, HV, V})), put("l", HostTensor::make(CANOPY_F32, {B, T, HV}));
    const HostTensor& state = problem.tensors.at("state");
    const auto& s = state.shape;
    const std::int64_t each = s[1] * s[2] * s[3];
    const Extents stride = {place.axis == 0 ? place.step : each, s[2] * s[3], s[3], 1};
    tensors_.emplace("state", Placed(state, memory_, kRoom * static_cast<std::int64_t>(tensors_.size()), stride));
  }
  bool there() const { return memory_.data() != nullptr; }
  std::size_t bytes() const { return memory_.bytes(); }
  Placed& at(const char* name) { return tensors_.at(name); }
  Error upload(const char* name) { return at(name).upload(problem_.tensors.at(name)); }
  void point(Problem& p) {
    p.q = at("q").view(), p.k = at("k").view(), p.v = at("v").view(), p.g = at("g").view();
    p.beta = at("beta").view(), p.state = at("state").view();
  }
  // Whether bytes between the rows of a tensor, which spoil() has been asked for, were written.
  Error check_gaps(const char* name) {
    const Placed& tensor = at(name);
    std::vector<std::byte> room(kRoom);
    if (Error error = memory_.download(room.data(), room.size(), tensor.begin()); !error.ok()) return error;
    tensor.erase(room);
    const bool clean = std::all_of(room.begin(), room.end(), [](std::byte byte) { return byte == std::byte{0xff}; });
    return clean ? Error{} : Error{CANOPY_INTERNAL, text(name, ": wrote between its rows")};
  }
  Error spoil(const char* name) {
    return place_.axis < 0 ? memory_.fill(0xff, kRoom, at(name).begin()) : at(name).spoil();
  }

 private:
  void put(const char* name, const HostTensor& tensor) {
    const auto room = kRoom * static_cast<std::int64_t>(tensors_.size());
    tensors_.emplace(name, Placed(tensor, memory_, room, strides_of(place_, tensor)));
  }
  Place place_;
  HostProblem& problem_;
  DeviceMemory memory_;
  std::map<std::string, Placed> tensors_;
};

void keep_first(Error& kept, const Error& error) {
  if (kept.ok()) kept = error;
}

void verify_placed(Report& report, const Place& place, HostProblem& problem, PlacedProblem& placed) {
  Error error;
  for (const char* name : {"q", "k", "v", "g", "beta", "state"}) keep_first(error, placed.upload(name));
  RunOptions options{.output = CANOPY_BF16};
  const RunOptions contiguous = options;
  options.adjust = [&](VerifyParams& params, std::vector<DeviceMemory>&) {
    for (const char* name : {"o", "u", "l"}) keep_first(error, placed.spoil(name));
    placed.point(params.problem);
    params.o = placed.at("o").view();
    if (params.stash_u.data) params.stash_u = placed.at("u").view(), params.stash_l = placed.at("l").view();
  };
  options.fetch = [&](Outputs& out) {
    keep_first(error, placed.at("o").download(out.o)), keep_first(error, placed.at("u").download(out.u));
    keep_first(error, placed.at("l").download(out.l));
    for (const char* name : {"o", "u", "l"})
      if (place.axis < 0) keep_first(error, placed.check_gaps(name));
  };
  for (const Contender& contender : contenders()) {
    error = {};
    const Outputs there = run(contender, problem, options);
    if (there.refused) continue;
    const Outputs here = run(contender, problem, contiguous);
    for (const Outputs* each : {&here, &there}) keep_first(error, each->error);
    std::string wrong = error.message;
    if (wrong.empty() &&
        (here.o.bytes != there.o.bytes || here.u.bytes != there.u.bytes || here.l.bytes != there.l.bytes))
      wrong = "other bits than in contiguous tensors";
    report.add("places", contender.name, wrong.empty() ? "" : text(place.name, ", T=", place.nodes, ": ", wrong));
  }
}

// The pool after a commit of the last nodes.
Result<HostTensor> commit_at(HostProblem& problem, PlacedProblem* placed, const CommitImplementation& implementation,
                             canopy_commit_method method, const Outputs& stash) {
  auto device = DeviceProblem::make(problem);
  if (!device) return device.error();
  CommitParams params = commit_params();
  params.problem = device->view(), params.method = method;
  std::vector<DeviceMemory> held;
  held.reserve(8);
  Error error;
  if (placed) {
    keep_first(error, placed->upload("state"));
    keep_first(error, placed->at("u").upload(stash.u)), keep_first(error, placed->at("l").upload(stash.l));
    placed->point(params.problem);
    params.stash_u = placed->at("u").view(), params.stash_l = placed->at("l").view();
  } else {
    HostTensor u = stash.u, l = stash.l;
    params.stash_u = u.view(),
    params.stash_u.data = const_cast<std::byte*>(on_device(u.bytes.data(), u.bytes.size(), held));
    params.stash_l = l.view(),
    params.stash_l.data = const_cast<std::byte*>(on_device(l.bytes.data(), l.bytes.size(), held));
  }
  const std::vector<std::int32_t> leaf(params.problem.batch, params.problem.nodes - 1);
  params.leaf = on_device(leaf.data(), leaf.size(), held);
  const auto bytes = commit_workspace(params, implementation.name);
  if (!bytes) return bytes.error();
  DeviceMemory workspace(*bytes);
  keep_first(error, workspace.fill(0xff));
  keep_first(error, commit(params, implementation.name, workspace.data(), *bytes));
  keep_first(error, host::device_synchronize());
  HostTensor pool = problem.tensors.at("state");
  keep_first(error, placed ? placed->at("state").download(pool)
                           : device->tensor("state").download(pool.bytes.data(), pool.bytes.size()));
  if (!error.ok()) return error;
  return pool;
}

void commit_placed(Report& report, const Place& place, HostProblem& problem, PlacedProblem& placed) {
  const Problem view = *problem.problem();
  const Truth truth = solve(view);
  Outputs stash;
  stash.u = HostTensor::make(CANOPY_F32, {view.batch, view.nodes, view.heads_v, view.dim_v});
  stash.l = HostTensor::make(CANOPY_F32, {view.batch, view.nodes, view.heads_v});
  for (std::size_t i = 0; i < truth.u.size(); ++i) stash.u.set(i, static_cast<float>(truth.u[i]));
  for (std::size_t i = 0; i < truth.l.size(); ++i) stash.l.set(i, static_cast<float>(truth.l[i]));
  for (const auto& implementation : cuda_commit_implementations())
    for (const canopy_commit_method method : {CANOPY_COMMIT_RESOLVE, CANOPY_COMMIT_STASH, CANOPY_COMMIT_REPLAY}) {
      CommitParams params = commit_params();
      params.problem = view, params.problem.device = CANOPY_CUDA, params.method = method;
      if (!implementation.refuses(params).empty()) continue;
      const auto here = commit_at(problem, nullptr, implementation, method, stash);
      const auto there = commit_at(problem, &placed, implementation, method, stash);
      std::string wrong = !here ? here.error().message : !there ? there.error().message : "";
      if (wrong.empty() && here->bytes == problem.tensors.at("state").bytes) wrong = "nothing was committed";
      if (wrong.empty() && here->bytes != there->bytes) wrong = "other bits than in contiguous tensors";
      report.add("places", implementation.name,
                 wrong.empty() ? "" : text(place.name, ", T=", place.nodes, ": ", wrong));
    }
}

}  // namespace

void test_places(Report& report, bool light) {
  // Past 2^32 elements, so past 2^31 as well, at the third sequence, the fourth head and the sixteenth node; and, at
  // the third node, by a step that 32 bits do not hold in bytes, which the tensor-core kernels refuse.
  constexpr std::int64_t half = (std::int64_t{1} << 31) + 64, third = 1431655808, fifteenth = 286331200;
  std::vector<Place> places = {{"gaps", 20},
                               {"gaps", 13},
                               {"gaps", 60},
                               {"sequences apart", 13, 0, half},
                               {"sequences apart", 20, 0, half},
                               {"nodes apart", 16, 1, fifteenth},
                               {"nodes apart", 20, 1, fifteenth},
                               {"nodes apart", 3, 1, half},
                               {"heads apart", 13, 2, third},
                               {"heads apart", 20, 2, third}};
  if (light) places.resize(1);
  for (const Place& place : places) {
    ProblemSpec spec = base("random", place.nodes);
    spec.batch = place.axis == 0 ? 3 : 2, spec.heads_k = place.axis == 2 ? 4 : 1,
    spec.heads_v = place.axis == 2 ? 4 : 2;
    HostProblem problem = make(spec);
    PlacedProblem placed(place, problem);
    if (!placed.there()) {
      report.note(text("places, ", place.name, ": not tested, ", placed.bytes(), " bytes are not to be had"));
      continue;
    }
    verify_placed(report, place, problem, placed);
    commit_placed(report, place, problem, placed);
  }
}

}  // namespace canopy::gpu
