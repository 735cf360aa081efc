#include "gpu/harness.hpp"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "message.hpp"

namespace canopy::gpu {
namespace {

constexpr struct {
  canopy_precision precision;
  const char* name;
  double relative, absolute;
} kPrecisions[] = {{CANOPY_PRECISION_FP32, "fp32", 1e-5, 1e-4},
                   {CANOPY_PRECISION_PRECISE, "precise", 2e-5, 0},
                   {CANOPY_PRECISION_HALF, "half", 1e-3, 0},
                   {CANOPY_PRECISION_FAST, "fast", 1e-2, 0}};

std::int64_t row_bytes(const HostTensor& x) {
  return static_cast<std::int64_t>(x.bytes.size()) / (x.shape[0] * x.shape[1]);
}

const char* wanted = "";

int deepest(const Problem& problem) {
  int depth = 0;
  for (int b = 0; b < problem.batch; ++b) {
    std::vector<std::int32_t> parents(problem.nodes);
    if (live_nodes(problem, b) == 0) continue;
    row_parents(problem, b, parents.data());
    parents.resize(live_nodes(problem, b));
    depth = std::max(depth, Tree::from_parents(parents)->depth());
  }
  return depth;
}

}  // namespace

void only(const char* part_of_name) { wanted = part_of_name; }

const std::vector<Contender>& contenders() {
  static const std::vector<Contender> all = [] {
    std::vector<Contender> list;
    HostProblem problem = make(base("chain", 4));
    VerifyParams params = *problem.verify();
    params.problem.device = CANOPY_CUDA;
    for (const auto& implementation : cuda_verify_implementations()) {
      for (const auto& p : kPrecisions) {
        params.precision = p.precision;
        if (!implementation.refuses(params).empty()) continue;
        const std::string name = implementation.name;
        const bool serial = name.find("serial") != std::string::npos;
        const bool series = implementation.unless_named != nullptr;
        if ((name + " " + p.name).find(wanted) == std::string::npos) continue;
        VerifyParams largest = params;
        largest.problem.nodes = CANOPY_MAX_NODES;
        const int most_nodes = implementation.refuses(largest).empty() ? CANOPY_MAX_NODES : 64;
        list.push_back({&implementation, p.precision, p.relative, p.absolute, serial ? name : name + " " + p.name,
                        series, most_nodes});
      }
    }
    return list;
  }();
  return all;
}

int live_nodes(const Problem& problem, int b) {
  if (slot_of(problem, problem.slot_index, b) < 0 || row_flags(problem, b) != 0) return 0;
  return count_of(problem, b);
}

Truth solve(const Problem& p) {
  const std::int64_t T = p.nodes, HV = p.heads_v, V = p.dim_v;
  Truth truth;
  truth.o.assign(p.batch * T * HV * V, 0), truth.u = truth.o, truth.l.assign(p.batch * T * HV, 0);
  std::vector<Tree> trees;
  for (int b = 0; b < p.batch; ++b) {
    std::vector<std::int32_t> parents(std::max(live_nodes(p, b), 1), -1);
    if (live_nodes(p, b) > 0) row_parents(p, b, parents.data());
    trees.push_back(*Tree::from_parents(parents));
  }
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (int b = 0; b < p.batch; ++b)
    for (int hv = 0; hv < p.heads_v; ++hv) {
      if (live_nodes(p, b) == 0) continue;
      const auto out = reference::oracle(reference::load_head(p, b, hv, trees[b]));
      for (int t = 0; t < live_nodes(p, b); ++t) {
        const std::int64_t row = (b * T + t) * HV + hv;
        std::copy_n(&out.o[t * V], V, &truth.o[row * V]);
        std::copy_n(&out.u[t * V], V, &truth.u[row * V]);
        truth.l[row] = out.l[t];
      }
    }
  return truth;
}

Outputs run(const Contender& contender, HostProblem& problem, const RunOptions& options) {
  Outputs out;
  auto device = DeviceProblem::make(problem);
  if (!device) return out.error = device.error(), out;
  VerifyParams params = verify_params();
  params.problem = device->view();
  if (options.set) options.set(params.problem);
  params.precision = contender.precision;
  const Problem& p = params.problem;
  const std::int64_t B = p.batch, T = p.nodes, HV = p.heads_v, V = p.dim_v;
  out.o = HostTensor::make(options.output, {B, T, HV, V});
  out.u = HostTensor::make(CANOPY_F32, {B, T, HV, V}), out.l = HostTensor::make(CANOPY_F32, {B, T, HV});
  out.status.assign(B, -1);
  DeviceMemory memory[4] = {DeviceMemory(out.o.bytes.size()), DeviceMemory(out.u.bytes.size()),
                            DeviceMemory(out.l.bytes.size()), DeviceMemory(B * sizeof(std::int32_t))};
  for (DeviceMemory& each : memory)
    if (out.error = each.fill(0xff); !out.error.ok()) return out;
  params.o = out.o.view(), params.o.data = memory[0].data();
  out.stashed = options.stash && stores_u(contender);
  if (out.stashed) {
    params.stash_u = out.u.view(), params.stash_u.data = memory[1].data();
    params.stash_l = out.l.view(), params.stash_l.data = memory[2].data();
  }
  params.row_status = static_cast<std::int32_t*>(memory[3].data());
  std::vector<DeviceMemory> held;
  held.reserve(64);
  if (options.adjust) options.adjust(params, held);

  if (const std::string why = contender.implementation->refuses(params); !why.empty()) {
    out.refused = true, out.error = Error::unsupported(why);
    return out;
  }
  const auto bytes = verify_workspace(params, contender.implementation->name);
  if (!bytes) return out.error = bytes.error(), out;
  constexpr std::size_t kFence = 4096;
  DeviceMemory workspace(*bytes + kFence);
  if (out.error = workspace.fill(0xff); !out.error.ok()) return out;
  out.error = verify(params, contender.implementation->name, workspace.data(), *bytes);
  if (out.error.ok()) out.error = host::device_synchronize();
  if (!out.error.ok()) return out;
  std::vector<unsigned char> fence(kFence);
  (void)workspace.download(fence.data(), kFence, *bytes);
  for (const unsigned char byte : fence)
    if (byte != 0xff) out.error = {CANOPY_INTERNAL, "wrote past its workspace"};
  (void)memory[0].download(out.o.bytes.data(), out.o.bytes.size());
  (void)memory[1].download(out.u.bytes.data(), out.u.bytes.size());
  (void)memory[2].download(out.l.bytes.data(), out.l.bytes.size());
  (void)memory[3].download(out.status.data(), B * sizeof(std::int32_t));
  if (options.fetch) options.fetch(out);
  return out;
}

Closeness compare(const Problem& p, const std::vector<double>& reference, const HostTensor& values) {
  Closeness out;
  double difference = 0, squares = 0, largest = 0, apart = 0;
  const std::int64_t width = static_cast<std::int64_t>(reference.size()) / (std::int64_t{p.batch} * p.nodes);
  std::int64_t count = 0;
  for (int b = 0; b < p.batch; ++b) {
    const std::int64_t first = std::int64_t{b} * p.nodes * width;
    for (std::int64_t i = first; i < first + live_nodes(p, b) * width; ++i, ++count) {
      const double r = reference[i], x = values.get(i);
      if (!std::isfinite(x)) {
        out.finite = false;
        continue;
      }
      difference += (x - r) * (x - r), squares += r * r;
      largest = std::max(largest, std::fabs(r)), apart = std::max(apart, std::fabs(x - r));
    }
  }
  // Results below the smallest normal number have an absolute accuracy only.
  const double floor = 1.2e-38 * std::sqrt(static_cast<double>(count)), off = std::sqrt(difference);
  out.relative = off <= floor ? 0 : off / std::max(std::sqrt(squares), floor);
  out.absolute = apart / std::max(1.0, largest);
  return out;
}

std::string judge(const Contender& contender, const Problem& p, const Truth& truth, const Outputs& out, double& worst) {
  if (!out.error.ok()) return out.error.message;
  const double rounding = out.o.dtype == CANOPY_F32 ? 0 : out.o.dtype == CANOPY_BF16 ? 0x1p-8 : 0x1p-11;
  const struct {
    const char* name;
    const std::vector<double>& reference;
    const HostTensor& values;
    double rounding;
  } results[] = {{"o", truth.o, out.o, rounding}, {"U", truth.u, out.u, 0}, {"l", truth.l, out.l, 0}};
  for (const auto& result : results) {
    if (&result != results && !out.stashed) break;
    const Closeness c = compare(p, result.reference, result.values);
    if (!c.finite) return text(result.name, " is not finite");
    const double allowed = contender.relative + result.rounding;
    worst = std::max(worst, c.relative / allowed);
    if (c.relative > allowed) return text(result.name, ": relative ", c.relative, ", allowed ", allowed);
    if (contender.absolute > 0 && c.absolute > contender.absolute + result.rounding)
      return text(result.name, ": max abs ", c.absolute, ", allowed ", contender.absolute + result.rounding);
  }
  for (int b = 0; b < p.batch; ++b) {
    if (out.status[b] != 0) return text("row_status[", b, "] = ", out.status[b], ", expected 0");
    for (int t = live_nodes(p, b); t < p.nodes; ++t)
      if (!untouched_row(out.o, b, t) || !untouched_row(out.u, b, t) || !untouched_row(out.l, b, t))
        return text("row ", b, ", node ", t, " is not live and was written");
  }
  return {};
}

bool same_row(const HostTensor& x, int bx, const HostTensor& y, int by, int t) {
  const std::int64_t each = row_bytes(x);
  return row_bytes(y) == each &&
         std::memcmp(&x.bytes[(bx * x.shape[1] + t) * each], &y.bytes[(by * y.shape[1] + t) * each],
                     static_cast<std::size_t>(each)) == 0;
}
bool untouched_row(const HostTensor& x, int b, int t) {
  const std::int64_t each = row_bytes(x);
  const auto* at = &x.bytes[(b * x.shape[1] + t) * each];
  return std::all_of(at, at + each, [](std::byte byte) { return byte == std::byte{0xff}; });
}

void Report::add(const std::string& group, const std::string& name, const std::string& failure, double worst) {
  Line* line = nullptr;
  for (Line& each : lines_)
    if (each.group == group && each.name == name) line = &each;
  if (!line) line = &lines_.emplace_back(Line{group, name, {}, 0, 0, -1});
  ++line->checks;
  line->worst = std::max(line->worst, worst);
  if (failure.empty()) return;
  if (line->failed++ == 0) line->first_failure = failure;
}

int Report::checks() const {
  int sum = 0;
  for (const Line& line : lines_) sum += line.checks;
  return sum;
}

int Report::failed() const {
  int sum = 0;
  for (const Line& line : lines_) sum += line.failed;
  return sum;
}

void Report::print() const {
  std::printf("%-16s %-24s %6s %6s %9s\n", "", "", "checks", "failed", "tolerance");
  for (const Line& line : lines_) {
    char used[16] = "same bits";
    if (line.worst >= 0) std::snprintf(used, sizeof used, "%.0f%%", 100 * line.worst);
    std::printf("%-16s %-24s %6d %6d %9s%s%s\n", line.group.c_str(), line.name.c_str(), line.checks, line.failed, used,
                line.failed ? "  " : "", line.first_failure.c_str());
  }
  for (const std::string& note : notes_) std::printf("%s\n", note.c_str());
  std::printf("%d checks, %d failed\n", checks(), failed());
}

ProblemSpec base(const std::string& family, int nodes) {
  ProblemSpec spec;
  spec.heads_k = 1, spec.heads_v = 2;
  spec.family.name = family, spec.family.nodes = nodes;
  spec.family.depth = family == "best-first" ? 8 : std::max(1, nodes / 2);
  spec.family.seed = spec.seed = 11;
  return spec;
}

HostProblem make(const ProblemSpec& spec) {
  auto problem = host::make_problem(spec);
  if (problem) return std::move(*problem);
  std::fprintf(stderr, "%s: %s\n", describe(spec).c_str(), problem.error().message.c_str());
  std::exit(2);
}

std::string describe(const ProblemSpec& s) {
  return text(s.family.name, " T=", s.family.nodes, " B=", s.batch, " H=", s.heads_k, " HV=", s.heads_v, " K=", s.dim_k,
              " V=", s.dim_v, " types ", static_cast<int>(s.input), "/", static_cast<int>(s.state), " layout ",
              static_cast<int>(s.layout), " keys ", static_cast<int>(s.keys), " gates ", static_cast<int>(s.gates),
              " betas ", static_cast<int>(s.betas), s.raw_gates ? " raw" : "", s.l2norm ? " l2norm" : "",
              s.ragged ? " ragged" : "", s.slots ? " slots" : "", " state x ", s.state_scale, " seed ",
              static_cast<int>(s.seed));
}

void check_all(Report& report, const std::string& group, const ProblemSpec& spec, const RunOptions& options,
               const std::function<void(HostProblem&)>& change) {
  HostProblem problem = make(spec);
  if (change) change(problem);
  Problem view = *problem.problem();
  if (options.set) options.set(view);
  const Truth truth = solve(view);
  const bool deep = deepest(view) > kSeriesDepth;
  for (const Contender& contender : contenders()) {
    // strategies.cpp shows what it gives
    if (contender.series && deep && spec.keys != host::Keys::random) continue;
    const Outputs out = run(contender, problem, options);
    if (out.refused) continue;
    double worst = 0;
    const std::string wrong = judge(contender, view, truth, out, worst);
    report.add(group, contender.name, wrong.empty() ? "" : describe(spec) + ": " + wrong, worst);
  }
}

}  // namespace canopy::gpu
