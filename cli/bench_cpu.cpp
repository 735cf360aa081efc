// canopy bench on the CPU: the contenders in turn on the same inputs.
#include "bench.hpp"
#include "timing.hpp"

namespace canopy::cli {

Result<BenchShape> measure_on_cpu(const Effort& effort, host::HostProblem& problem, const host::ProblemSpec& spec,
                                  const std::string& family, const Tick& tick) {
  const auto params = problem.verify();
  if (!params) return params.error();
  auto shape = shape_of(problem, spec, family);
  if (!shape) return shape.error();
  const auto contenders = contenders_for(effort.contenders, *params);
  if (!contenders) return contenders.error();
  const auto oracle = run_oracle(problem, effort.checked);
  if (!oracle) return oracle.error();
  shape->checked = static_cast<int>(oracle->checked.size());

  const ThreadCount threads(effort.threads);
  std::vector<TimedRun> runs;
  std::vector<BenchCell> cells;
  for (const Contender& contender : *contenders) {
    auto timed = TimedRun::verify(problem, *contender.implementation, CANOPY_F32, false);
    if (!timed) return timed.error();
    runs.push_back(std::move(*timed));
    BenchCell cell = cell_of(contender);
    const bool serial = cell.strategy.find("serial") != std::string::npos;
    cell.flops = serial ? recurrence_flops(params->problem, *oracle) : closed_form_flops(params->problem, *oracle);
    cell.check = check_rows(*oracle, oracle->o, runs.back().output(), contender.implementation->relative_tolerance,
                            contender.implementation->absolute_tolerance);
    cell.stated = runs.back().workspace().bytes(), cell.touched = runs.back().workspace().touched();
    cells.push_back(cell);
  }
  if (!effort.timed) shape->cells = cells;
  for (const bool cold : {false, true}) {
    if (!effort.timed || !(cold ? effort.cold : effort.warm)) continue;
    std::vector<std::vector<double>> seconds(runs.size());
    const double begun = now();
    for (int round = 0; round < effort.warm_ups + effort.repeat; ++round) {
      const auto once = times_in_turn(runs, 1, cold, nullptr);
      if (!once) return once.error();
      if (round >= effort.warm_ups)
        for (std::size_t i = 0; i < runs.size(); ++i) seconds[i].push_back((*once)[i].front());
      if (tick) tick(round + 1);
      if (!seconds.front().empty() && now() - begun > effort.most_seconds) break;
    }
    for (std::size_t i = 0; i < runs.size(); ++i) {
      BenchCell cell = cells[i];
      cell.cache = cold ? "cold" : "warm";
      cell.n = static_cast<int>(seconds[i].size());
      cell.seconds = quantiles(seconds[i]);
      shape->cells.push_back(cell);
    }
  }
  return shape;
}

}  // namespace canopy::cli
