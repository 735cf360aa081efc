"""verify, commit and plan against the fp64 oracle and the golden problems, from NumPy and from PyTorch."""

import ctypes
import json
import pathlib

import canopy_gdn
import numpy as np
import pytest
from canopy_gdn import Tree, _abi
from hypothesis import given
from hypothesis import strategies as st
from problems import TREES, call, commit_arguments, problem, relative, tensors

GOLDEN = sorted((pathlib.Path(__file__).parents[1] / "golden").glob("*.json"))
FP32 = 1e-5  # docs/math.md, tolerances: fp32 closed form on the CPU, max abs


def largest(got, expected):
    return np.max(np.abs(np.asarray(got, np.float64) - expected), initial=0.0)


@pytest.mark.parametrize("raw", [False, True], ids=["gates", "raw"])
@pytest.mark.parametrize("layout", ["vk", "kv"])
@pytest.mark.parametrize("trees", TREES.values(), ids=TREES)
def test_verify_and_commit_agree_with_the_oracle(to, trees, layout, raw):
    options = {"l2norm": True, "beta_doubled": True} if raw else {"similar": True}
    given_ = problem(trees, layout=layout, raw=raw, similar=not raw) | (options if raw else {})
    o, u, l = canopy_gdn.oracle(**given_)
    arguments = to(given_)
    got = call(arguments)
    assert largest(got, o) < FP32
    rows = np.arange(given_["parents"].shape[1]) < given_["count"][:, None]
    assert not np.any(np.asarray(got)[~rows]), "rows past a count of a made o are zero"

    stash = {"stash_u": got * 0, "stash_l": got[..., 0] * 0}
    call(arguments, **stash)
    assert largest(stash["stash_u"], u) < FP32 and largest(stash["stash_l"], l) < FP32 * 10

    leaf = (given_["count"] - 1).astype(np.int32)
    expected = canopy_gdn.oracle_state(**given_, leaf=leaf)
    for method in ("resolve", "stash", "replay"):
        committed = to(commit_arguments(given_, leaf))
        before = np.asarray(committed["state"]).copy()
        canopy_gdn.commit(**committed, method=method, **(stash if method == "stash" else {}))
        after = np.asarray(committed["state"]).copy()
        taken = after[given_["slot_index"]]
        assert largest(taken if layout == "kv" else taken.swapaxes(-1, -2), expected) < FP32, method
        others = np.setdiff1d(np.arange(len(after)), given_["slot_index"])
        assert np.array_equal(after[others], before[others]), "slots of nobody stay as they were"


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden_problems(to, path):
    golden = json.loads(path.read_text())
    wide = lambda name, last: np.pad(np.float32(golden[name]), [(0, 0), (0, 0), (0, last - len(golden[name][0][0]))])[
        None
    ]
    state = np.zeros((1, 1, 8, 8), np.float32)  # heads are padded with zeros to 8
    V, K = np.shape(golden["state"])
    state[0, 0, :V, :K] = golden["state"]
    arguments = to({
        "q": wide("q", 8), "k": wide("k", 8), "v": wide("v", 8), "state": state,
        "g": np.float32(golden["g"])[None], "beta": np.float32(golden["beta"])[None],
        "parents": np.int32(golden["parents"])[None], "scale": golden["scale"], "l2norm": golden["l2norm"],
        "l2norm_eps": golden["eps"],
    })  # fmt: skip
    stash = {"stash_u": np.zeros((1, len(golden["parents"]), 1, 8), np.float32),
             "stash_l": np.zeros((1, len(golden["parents"]), 1), np.float32)}  # fmt: skip
    stash = to(stash)
    o = call(arguments, **stash)
    expected = golden["expected"]
    assert largest(np.asarray(o)[0, :, :, :V], expected["o"]) < FP32
    assert largest(np.asarray(stash["stash_u"])[0, :, :, :V], expected["u"]) < FP32
    assert relative(np.asarray(stash["stash_l"])[0], expected["l"]) < 1e-6
    for leaf, after in enumerate(expected["state_after"]):
        committed = {n: v for n, v in arguments.items() if n not in ("q", "scale")}
        committed["state"] = to({"state": state})["state"]
        canopy_gdn.commit(**committed, leaf=to({"leaf": np.int32([leaf])})["leaf"])
        assert largest(np.asarray(committed["state"])[0, 0, :V, :K], after) < FP32


@pytest.mark.parametrize(
    "name", [i.name for i in canopy_gdn.implementations() if i.kind == "verify" and i.device == "cpu"]
)
def test_every_implementation_by_name(to, name):
    given_ = problem(TREES["best-first"])
    assert largest(call(to(given_), implementation=name), canopy_gdn.oracle(**given_)[0]) < FP32


def test_links_instead_of_parents_and_a_shared_plan(to):
    given_ = problem([Tree([-1, 0, 0, 1, 1, 2])])
    expected = np.asarray(call(to(given_)))
    links = {n: v for n, v in given_.items() if n != "parents"}
    links["next_token"] = np.int32([[2, 4, 5, -1, -1, -1]])  # siblings in descending order
    links["next_sibling"] = np.int32([[-1, -1, 1, -1, 3, -1]])
    arguments = to(links)
    trees = {n: arguments[n] for n in ("next_token", "next_sibling", "count", "slot_index")}
    plan = canopy_gdn.plan(**trees, slots=2)
    assert np.array_equal(np.asarray(call(arguments, plan=plan)), expected)
    again = canopy_gdn.plan(**trees, slots=2, out=plan)
    assert again is plan and np.array_equal(np.asarray(call(arguments, plan=again)), expected)


def wider(array, to):
    """The same values as rows of a wider buffer, whose other columns would be no tree."""
    buffer = np.full((array.shape[0], array.shape[1] + 3), 99, array.dtype)
    buffer[:, : array.shape[1]] = array
    return to({"b": buffer})["b"][:, : array.shape[1]]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_plans_of_a_batch_are_as_many_times_the_plan_of_one(device):
    """What plan() returns is [B, bytes of one], on a GPU too: asked of the library, which needs none for it."""
    width = _abi.plan_row_bytes(device)
    if not width:
        pytest.skip(f"this build has no plans on {device}")
    params = _abi.VerifyParams()
    _abi.library().canopy_verify_params_init(ctypes.byref(params))
    params.problem.device, params.problem.nodes = {"cpu": _abi.CPU, "cuda": _abi.CUDA}[device], 5
    for batch in (1, 2, 3, 7, 16, 1000):
        params.problem.batch = batch
        assert _abi.library().canopy_plan_bytes(ctypes.byref(params.problem)) == batch * width, batch


def test_trees_as_rows_of_a_wider_buffer(to):
    given_ = problem(TREES["best-first"])
    arguments = to(given_)
    expected = np.asarray(call(arguments))
    strided = arguments | {"parents": wider(given_["parents"], to)}
    assert np.array_equal(np.asarray(call(strided)), expected)
    plan = canopy_gdn.plan(parents=strided["parents"], count=arguments["count"])
    assert np.array_equal(np.asarray(call(arguments, plan=plan)), expected)
    next_token, next_sibling = np.full_like(given_["parents"], -1), np.full_like(given_["parents"], -1)
    for row, parents in enumerate(given_["parents"]):
        for node in range(int(given_["count"][row]) - 1, 0, -1):
            next_sibling[row, node], next_token[row, parents[node]] = next_token[row, parents[node]], node
    links = {n: v for n, v in arguments.items() if n != "parents"}
    strided = links | {"next_token": wider(next_token, to), "next_sibling": wider(next_sibling, to)}
    assert np.array_equal(np.asarray(call(strided)), expected)
    with pytest.raises(
        RuntimeError, match="next_sibling: expected the row stride of next_token, 36, got 33; make both contiguous"
    ):
        call(strided | to({"next_sibling": next_sibling}))


@pytest.mark.parametrize("raw", [False, True], ids=["gates", "raw"])
def test_counts_without_slots(to, raw):
    given_ = problem(TREES["ragged"], raw=raw)
    del given_["slot_index"]
    given_["count"] = np.int32([1, 3, 12])
    o = canopy_gdn.oracle(**given_)[0]
    assert largest(call(to(given_)), o) < FP32, "zeros past the counts"
    committed = to(commit_arguments(given_, np.int32([0, 3, 11])))  # the second leaf is past its count
    canopy_gdn.commit(**committed)
    same = [np.array_equal(a, b) for a, b in zip(np.asarray(committed["state"]), given_["state"])]
    assert same == [False, True, False, True]


def test_scale_and_the_norms_epsilon_are_what_was_given(to):
    given_ = problem(TREES["star"]) | {"l2norm": True, "l2norm_eps": 0.5, "scale": 0.7}
    assert largest(call(to(given_)), canopy_gdn.oracle(**given_)[0]) < FP32
    del given_["scale"]
    leaf = np.int32([9])
    committed = to(commit_arguments(given_, leaf))
    canopy_gdn.commit(**committed)
    state = np.asarray(committed["state"])[given_["slot_index"]].swapaxes(-1, -2)
    assert largest(state, canopy_gdn.oracle_state(**given_, leaf=leaf)) < FP32


def test_padding_rows_counts_of_zero_and_skipped_leaves(to):
    given_ = problem(TREES["ragged"], slots=4)
    given_["slot_index"] = np.int64([2, 0, 1])
    given_["count"] = np.int32([1, 5, 0])
    given_["padding_slot"] = 0  # vLLM's: row 1 is a padding row
    arguments = to(given_) | {"o": np.asarray(call(to(given_)))}
    marked = to({"o": np.full_like(arguments["o"], 7)})["o"]
    status = to({"s": np.int32([9, 9, 9])})["s"]
    assert call(arguments | {"o": marked}, row_status=status) is marked
    assert np.all(np.asarray(marked)[1:] == 7) and np.all(np.asarray(marked)[0, 1:] == 7)
    assert not np.any(np.asarray(marked)[0, :1] == 7)
    assert np.asarray(status).tolist() == [0, 0, 0]
    committed = to(commit_arguments(given_, np.int32([-1, 0, 0])))  # none of them is live
    before = np.asarray(committed["state"]).copy()
    canopy_gdn.commit(**committed)
    assert np.array_equal(np.asarray(committed["state"]), before)


def test_a_flagged_row_does_not_stop_the_others(to):
    given_ = problem(TREES["ragged"])
    expected = np.asarray(call(to(given_)))
    broken = given_ | {"parents": given_["parents"].copy()}
    broken["parents"][1, 2] = 4
    status = to({"s": np.zeros(3, np.int32)})["s"]
    got = np.asarray(call(to(broken), row_status=status))
    assert np.asarray(status).tolist() == [0, 1, 0]
    assert np.array_equal(got[[0, 2]], expected[[0, 2]]) and np.isnan(got[1, :5]).all()


def test_a_flagged_row_is_not_committed(to):
    given_ = problem(TREES["ragged"])
    good = to(commit_arguments(given_, np.int32([0, 1, 11])))
    canopy_gdn.commit(**good)
    given_["parents"][1, 2] = 4
    with pytest.raises(RuntimeError, match=r"parents\[b=1\]\[2\] = 4: a parent must precede"):
        canopy_gdn.commit(**to(commit_arguments(given_, np.int32([0, 1, 11]))))
    broken = to(commit_arguments(given_, np.int32([0, 1, 11])) | {"row_status": np.int32([9, 9, 9])})
    canopy_gdn.commit(**broken)
    assert np.asarray(broken["row_status"]).tolist() == [0, 1, 0]
    one, other = (int(slot) for slot in given_["slot_index"][[0, 2]])
    after, expected = np.asarray(broken["state"]), given_["state"].copy()
    expected[[one, other]] = np.asarray(good["state"])[[one, other]]
    assert np.array_equal(after, expected)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_destinations_without_slots_have_a_type_of_their_own(to, dtype):
    given_ = problem(TREES["best-first"], slots=4)
    del given_["slot_index"]
    leaf = np.int32([20, 3])
    plain, moved = to(commit_arguments(given_, leaf)), to(commit_arguments(given_, leaf) | {"dst_slot": dtype([3, 2])})
    canopy_gdn.commit(**plain)
    canopy_gdn.commit(**moved)
    assert np.array_equal(np.asarray(moved["state"])[[3, 2]], np.asarray(plain["state"])[:2])
    assert np.array_equal(np.asarray(moved["state"])[:2], given_["state"][:2])


def test_track_and_destination_slots(to):
    given_ = problem([Tree.family("chain", 6)], slots=4)
    given_["slot_index"] = np.int32([1])
    committed = to(commit_arguments(given_, np.int32([5])))
    extra = to({"dst_slot": np.int32([3]), "track_slot": np.int32([0]), "track_leaf": np.int32([2])})
    canopy_gdn.commit(**committed, **extra)
    state = np.asarray(committed["state"])
    for slot, leaf in ((3, 5), (0, 2)):
        expected = canopy_gdn.oracle_state(**given_, leaf=np.int32([leaf]))[0]
        assert largest(state[slot].swapaxes(-1, -2), expected) < FP32
    assert np.array_equal(state[1], given_["state"][1])


def test_all_layers_in_one_commit(to):
    layers = [problem(TREES["best-first"], seed=s) for s in range(3)]
    stacked = dict(layers[0])
    for name in ("k", "v", "g", "beta", "state"):
        stacked[name] = np.stack([layer[name] for layer in layers])
    leaf = np.int32([30, 12])
    arguments = to(commit_arguments(stacked, leaf))
    canopy_gdn.commit(**arguments)
    for index, layer in enumerate(layers):
        single = to(commit_arguments(layer | {"slot_index": stacked["slot_index"]}, leaf))
        canopy_gdn.commit(**single)
        assert np.array_equal(np.asarray(arguments["state"][index]), np.asarray(single["state"]))


def test_a_batch_of_nothing(to):
    given_ = problem([Tree([-1, 0])])
    empty = {n: v[:0] if isinstance(v, np.ndarray) and n != "state" else v for n, v in given_.items()}
    assert tuple(call(to(empty)).shape) == (0, 2, 4, 24)


def test_workspace_of_the_caller(to):
    given_ = to(problem(TREES["skewed"]))
    o = call(given_)
    size = canopy_gdn.verify_workspace(**given_, o=o)
    from canopy_gdn._numpy import aligned

    memory = aligned(size) if isinstance(o, np.ndarray) else o.new_empty(size // 4 + 1)
    assert np.array_equal(np.asarray(call(given_, o=o * 0, workspace=memory)), np.asarray(o))
    with pytest.raises(RuntimeError, match=f"workspace.*{size}"):
        call(given_, workspace=memory[: memory.shape[0] // 2])


def test_a_named_depth_is_a_hint(to):
    given_ = to(problem(TREES["skewed"]))
    plain = np.asarray(call(given_))
    for depth in (1, 7, 1000):  # too small, too: it is a hint
        assert np.array_equal(np.asarray(call(given_, max_depth=depth)), plain)
    assert canopy_gdn.explain(**given_, max_depth=3) == canopy_gdn.explain(**given_)  # the CPU's table has no row for it


def test_explain_names_the_choice_and_the_refusals(to):
    text = canopy_gdn.explain(**to(problem(TREES["star"])))
    assert text.startswith("runs cpu_closed_form") and "reference_serial" in text


@given(st.integers(0, 2**32), st.integers(1, 40), st.sampled_from([(1, 1), (1, 4), (2, 2), (3, 6)]),
       st.sampled_from([(8, 8), (16, 40), (64, 8)]))  # fmt: skip
def test_random_problems_in_numpy(seed, nodes, heads, dims):
    given_ = problem([Tree.family("random", nodes, seed=seed)], heads, dims, seed=seed, similar=seed % 2 == 1)
    assert relative(call(given_), canopy_gdn.oracle(**given_)[0]) < 1e-5


@given(st.integers(0, 2**32), st.integers(2, 24))
def test_a_poisoned_branch_stays_alone(seed, nodes):
    tree = Tree.family("random", nodes, seed=seed)
    clean = problem([tree], seed=seed % 1000)
    node = 1 + seed % (nodes - 1)
    below = [i for i in range(nodes) if node in tree.path(i)]
    outside = [i for i in range(nodes) if i not in below]
    poisoned = clean | {"v": clean["v"].copy()}
    poisoned["v"][0, node] = np.nan
    expected, got = call(clean), call(poisoned)
    assert np.array_equal(got[0, outside], expected[0, outside]) and np.isnan(got[0, below]).all()


@given(st.integers(0, 2**32))
def test_numpy_and_torch_give_the_same_bits(seed):
    pytest.importorskip("torch")
    given_ = problem([Tree.family("best-first", 1 + seed % 30, seed=seed)], seed=seed % 1000, raw=bool(seed & 1))
    assert np.array_equal(call(given_), np.asarray(call(tensors(given_))))
