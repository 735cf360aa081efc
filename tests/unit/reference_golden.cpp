// The golden problems: expected values come from tests/golden/make_golden.py, which shares nothing with this library.
// The same files feed the page and the Python tests.
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "gates.hpp"
#include "reference_support.hpp"
#include "support.hpp"

namespace canopy {
namespace {
using namespace reference;
using nlohmann::json;

std::vector<double> flat(const json& value) {
  if (!value.is_array()) return {value.get<double>()};
  std::vector<double> out;
  for (const json& element : value) {
    const std::vector<double> part = flat(element);
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

// [V][K] as the files have it to [K,V] as the reference wants it; blocks of K * V.
std::vector<double> transposed(const std::vector<double>& vk, int dim_k, int dim_v) {
  std::vector<double> kv(vk.size());
  const int block = dim_k * dim_v;
  for (int e = 0; e < int(vk.size()); ++e) {
    const int c = e % block / dim_k, r = e % dim_k;
    kv[e - e % block + r * dim_v + c] = vk[e];
  }
  return kv;
}

Head<double> head_of(const json& file, const Tree& tree) {
  Head<double> head;
  head.tree = &tree;
  head.dim_k = int(file["k"][0][0].size()), head.dim_v = int(file["v"][0][0].size());
  head.q = flat(file["q"]), head.k = flat(file["k"]), head.v = flat(file["v"]);
  head.g = flat(file["g"]), head.beta = flat(file["beta"]);
  head.state = transposed(flat(file["state"]), head.dim_k, head.dim_v);
  for (std::vector<double>* rows : {&head.q, &head.k}) {
    for (int i = 0; i < tree.size(); ++i) {
      double* row = &(*rows)[i * head.dim_k];
      double sum = 0;
      for (int c = 0; c < head.dim_k; ++c) sum += row[c] * row[c];
      const double norm = file["l2norm"].get<bool>() ? inverse_norm(sum, file["eps"].get<double>()) : 1.0;
      for (int c = 0; c < head.dim_k; ++c) row[c] *= norm * (rows == &head.q ? file["scale"].get<double>() : 1.0);
    }
  }
  return head;
}

std::vector<std::string> golden_files() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(test::source_file("tests/golden"))) {
    if (entry.path().extension() == ".json") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

void expect_near(const std::vector<double>& expected, const std::vector<double>& got, const std::string& what) {
  ASSERT_EQ(expected.size(), got.size()) << what;
  for (std::size_t e = 0; e < expected.size(); ++e) {
    EXPECT_NEAR(expected[e], got[e], 1e-12 * std::max(1.0, std::abs(expected[e]))) << what << " element " << e;
  }
}

TEST(ReferenceGolden, OracleEverySolverAndEveryCommit) {
  const std::vector<std::string> paths = golden_files();
  ASSERT_GE(paths.size(), 6u);
  for (const std::string& path : paths) {
    const json file = json::parse(std::ifstream(path)), expected = file["expected"];
    const Tree tree = test::tree_of(file["parents"].get<std::vector<std::int32_t>>());
    const Head<double> head = head_of(file, tree);
    const std::vector<double> states = transposed(flat(expected["state_after"]), head.dim_k, head.dim_v);
    const auto check = [&](const Output<double>& out, const std::string& name) {
      expect_near(flat(expected["o"]), out.o, path + " o " + name);
      expect_near(flat(expected["u"]), out.u, path + " u " + name);
      expect_near(flat(expected["l"]), out.l, path + " l " + name);
    };
    std::vector<std::vector<double>> oracle_states;
    const Output<double> truth = oracle(head, &oracle_states);
    check(truth, "oracle");
    for (const Solver solver : kSolvers) check(closed_form(head, solver, 4), std::string(name_of(solver)));
    for (int i = 0; i < tree.size(); ++i) {
      const int size = head.dim_k * head.dim_v;
      const std::vector<double> state(&states[i * size], &states[i * size] + size);
      expect_near(state, oracle_states[i], path + " state of the oracle");
      expect_near(state, commit_stash(head, truth, i), path + " commit by stash");
      expect_near(state, commit_resolve(head, i), path + " commit by resolve");
      expect_near(state, commit_replay(head, i), path + " commit by replay");
    }
  }
}

}  // namespace
}  // namespace canopy
