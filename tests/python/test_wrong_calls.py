"""Wrong calls: each must say which argument, what was expected, what came and what to do. From NumPy and from PyTorch."""

import canopy_gdn
import numpy as np
import pytest
from canopy_gdn import Tree
from problems import TREES, commit_arguments, problem
from test_conv import commit_arguments as conv_commit_arguments
from test_conv import problem as conv_problem

# name: (what replaces or joins the arguments of a good call of B = 3, T = 20, H = 2, HV = 4, K = 16, V = 24, and what the
# message must hold). A value may be a function of the good arguments.
VERIFY = {
    "k of other nodes": ({"k": lambda a: a["k"][:, :3]}, ["k: expected shape [B,T,H,K] = [3, 20, 2, 16], got [3, 3, 2, 16]", "reshape"]),
    "v of other rows": ({"v": lambda a: a["v"][:2]}, ["v: expected shape [B,T,HV,V] = [3, 20, 4, 24], got [2, 20, 4, 24]"]),
    "q of three axes": ({"q": lambda a: a["q"][0]}, ["q: expected 4 axes [B,T,H,K], got 3; reshape it"]),
    "v of three axes": ({"v": lambda a: a["v"][0]}, ["v: expected 4 axes [B,T,HV,V], got 3"]),
    "heads that do not divide": ({"v": lambda a: a["v"][:, :, :3], "g": lambda a: a["g"][:, :, :3], "beta": lambda a: a["beta"][:, :, :3],
                                  "state": lambda a: a["state"][:, :3]}, ["heads_v = 3", "multiple of heads_k = 2"]),
    "float64 queries": ({"q": lambda a: a["q"].astype(np.float64)}, ["q.dtype = ", "expected f32, bf16 or f16", "convert"]),
    "integer keys": ({"k": lambda a: a["k"].astype(np.int32)}, ["k.dtype = i32", "expected f32, bf16 or f16", "convert"]),
    "keys of another type": ({"k": lambda a: a["k"].astype(np.float16)}, ["k.dtype = f16", "expected f32, the dtype of q"]),
    "values of another type": ({"v": lambda a: a["v"].astype(np.float16)}, ["v.dtype = f16", "the dtype of k"]),
    "a last axis with gaps": ({"q": lambda a: np.repeat(a["q"], 2, -1)[..., ::2]}, ["q.stride[4] = 2: expected 1", "contiguous"]),
    "a width that is no multiple of 8": ({"v": lambda a: a["v"][..., :20], "state": lambda a: a["state"][:, :, :20]},
                                         ["dim_v = 20", "multiple of 8", "pad the head"]),
    "no gates": ({"g": None, "beta": None}, ["gates: expected g and beta", "got neither"]),
    "both forms of gates": ({"a": lambda a: a["g"]}, ["gates: expected either g and beta, or a, b, a_log and dt_bias", "leave one form"]),
    "g without beta": ({"beta": None}, ["beta is NULL: expected [B,T,HV]"]),
    "half a raw form": ({"g": None, "beta": None, "a": lambda a: a["g"], "b": lambda a: a["beta"]}, ["a_log is NULL: expected [HV]"]),
    "bf16-like gates": ({"g": lambda a: a["g"].astype(np.float16)}, ["g.dtype = f16: expected f32"]),
    "gates of a key head": ({"g": lambda a: a["g"][:, :, :2]}, ["g: expected shape [B,T,HV] = [3, 20, 4], got [3, 20, 2]"]),
    "doubled beta of the direct form": ({"beta_doubled": True}, ["beta_doubled = 1", "raw form", "double beta yourself"]),
    "a state with K and V swapped": ({"state": lambda a: a["state"].swapaxes(2, 3)}, ["state: expected shape [slots,HV,V,K] = [4, 4, 24, 16], got [4, 4, 16, 24]"]),
    "a state of three axes": ({"state": lambda a: a["state"][0]}, ["state: expected shape", "got [4, 24, 16]"]),
    "an unknown layout": ({"state_layout": "kvk"}, ["state_layout = 'kvk': expected one of 'vk', 'kv'"]),
    "an unknown precision": ({"precision": "double"}, ["precision = 'double': expected one of 'default', 'fp32'"]),
    "int64 parents": ({"parents": lambda a: a["parents"].astype(np.int64)}, ["parents.dtype = ", "expected i32 for [B,T]; convert it with"]),
    "parents of one tree": ({"parents": lambda a: a["parents"][0]}, ["parents: expected shape [B,T] = [3, 20], got [20]"]),
    "no tree": ({"parents": None}, ["trees.parents is NULL: expected [B,T] int32, or next_token with next_sibling"]),
    "parents and links": ({"next_token": lambda a: a["parents"], "next_sibling": lambda a: a["parents"]}, ["expected either parents or next_token with next_sibling, got both"]),
    "one link": ({"parents": None, "next_token": lambda a: a["parents"]}, ["trees.next_sibling is NULL", "come together"]),
    "a child before its parent": ({"parents": lambda a: np.where(np.arange(20) == 3, 7, a["parents"])},
                                  ["parents[b=1][3] = 7: a parent must precede its child (expected 0 <= parent < 3); renumber"]),
    "a second root": ({"parents": lambda a: np.where(np.arange(20) == 2, -1, a["parents"])}, ["[2] = -1: a second root"]),
    "a count past T": ({"count": np.int32([1, 21, 3])}, ["trees.count[b=1] = 21: expected 0 <= count <= nodes = 20"]),
    "a slot past the pool": ({"slot_index": np.int32([0, 1, 4])}, ["slot_index[b=2] = 4: expected less than slots = 4"]),
    "float slots": ({"slot_index": np.float32([0, 1, 2])}, ["slot_index.dtype = ", "expected i32 or i64 for [B]"]),
    "a pool that is too small": ({"slot_index": None, "state": lambda a: a["state"][:2]}, ["slots = 2: expected at least batch = 3", "give slot_index or a larger pool"]),
    "a depth below 0": ({"max_depth": -1}, ["max_depth = -1: expected the depth of the deepest node, or 0"]),
    "a padding slot below -1": ({"padding_slot": -2}, ["padding_slot = -2: expected -1 or more"]),
    "a plan of another batch": ({"plan": np.zeros((2, 64), np.uint8)}, ["plan: expected what plan() made of these 3 trees, got shape [2, 64]", "call plan() again"]),
    "a plan of other bytes": ({"plan": np.zeros((3, 64), np.uint8)}, ["plan: expected what plan() made on this device, uint8 with ", "[3, 64]", "pass on what plan() returned"]),
    "a plan of floats": ({"plan": np.zeros((3, 947), np.float32)}, ["plan: expected what plan() made on this device", "[3, 947]"]),
    "an unknown implementation": ({"implementation": "cpu_magic"}, ["cpu_magic", "cpu_closed_form"]),
    "tensor cores on the CPU": ({"precision": "half", "implementation": "cpu_closed_form"}, ["cpu_closed_form", "precision"]),
    "an output of another shape": ({"o": np.zeros((3, 20, 4, 16), np.float32)}, ["o: expected shape [B,T,HV,V] = [3, 20, 4, 24], got [3, 20, 4, 16]"]),
    "an integer output": ({"o": np.zeros((3, 20, 4, 24), np.int32)}, ["o.dtype = i32: expected f32, bf16 or f16"]),
    "half a stash": ({"stash_u": np.zeros((3, 20, 4, 24), np.float32)}, ["stash_l is NULL", "come together"]),
    "a stash in half precision": ({"stash_u": np.zeros((3, 20, 4, 24), np.float16), "stash_l": np.zeros((3, 20, 4), np.float32)}, ["stash_u.dtype = f16: expected f32"]),
    "a scale that is not finite": ({"scale": float("nan")}, ["scale = nan", "finite"]),
}  # fmt: skip
COMMIT = {
    "an unknown method": ({"method": "guess"}, ["method = 'guess': expected one of 'resolve', 'stash', 'replay'"]),
    "no stash": ({"method": "stash"}, ["stash_u is NULL: expected [L,B,T,HV,V] f32 with method stash", "or use method resolve"]),
    "int64 leaves": ({"leaf": np.int64([0, 0, 0])}, ["leaf.dtype = ", "expected i32 for [B]; convert it"]),
    "leaves of another batch": ({"leaf": np.int32([0])}, ["leaf: expected shape [B] = [3], got [1]"]),
    "a track slot alone": ({"track_slot": np.int32([0, 1, 2])}, ["track_leaf is NULL", "come together"]),
    "slots of two types": ({"dst_slot": np.int64([0, 1, 2])}, ["dst_slot.dtype: expected the dtype of slot_index; convert"]),
    "new slots of two types": ({"slot_index": None, "dst_slot": np.int64([0, 1, 2]), "track_slot": np.int32([0, 1, 2]), "track_leaf": np.int32([0, 0, 0])},
                               ["track_slot.dtype: expected the dtype of dst_slot; convert"]),
    "two rows that write one slot": ({"dst_slot": np.int32([3, 3, 2])}, ["dst_slot[b=1] = 3: sequence 0 uses the same slot", "belong to one sequence"]),
    "a destination past the pool": ({"dst_slot": np.int32([0, 1, 9])}, ["dst_slot[b=2] = 9: expected less than slots = 4"]),
    "layers in the state alone": ({"state": lambda a: np.stack([a["state"]] * 2)}, ["k: expected 5 axes [L,B,T,H,K], as state has a layer axis, got 4"]),
    "a state of two axes": ({"state": lambda a: a["state"][0, 0]}, ["state: expected 4 axes [slots,HV,V,K], or 5 with L layers before them, got 2"]),
    "no gates": ({"g": None, "beta": None}, ["gates: expected g and beta", "got neither"]),
    "no values": ({"v": None}, ["v is NULL: expected [B,T,HV,V]"]),
    "a plan of other bytes": ({"plan": np.zeros((3, 64), np.uint8)}, ["plan: expected what plan() made on this device", "[3, 64]"]),
}  # fmt: skip

# A good call of B = 3, T = 20, C = 70, W = 4, 4 slots.
CONV = {
    "x of two axes": ({"x": lambda a: a["x"][0]}, ["x: expected 3 axes [B,T,C], got 2; reshape it"]),
    "float64 inputs": ({"x": lambda a: a["x"].astype(np.float64)}, ["x.dtype = ", "expected f32, bf16 or f16", "convert"]),
    "channels with gaps": ({"x": lambda a: np.repeat(a["x"], 2, -1)[..., ::2]}, ["x.stride[3] = 2: expected 1", "contiguous"]),
    "a Conv1d's weight": ({"weight": lambda a: a["weight"][:, None]}, ["weight: expected 2 axes [C,W], got 3", "weight[:, 0]"]),
    "weights of other channels": ({"weight": lambda a: a["weight"][:3]}, ["weight: expected shape [C,W] = [70, 4], got [3, 4]"]),
    "five taps": ({"weight": lambda a: np.ones((70, 5), np.float32), "state": lambda a: np.ones((4, 70, 4), np.float32)},
                  ["width = 5: expected 2 to 4 taps", "pad"]),
    "a window of W inputs": ({"state": lambda a: np.ones((4, 70, 4), np.float32)},
                             ["state: expected shape [slots,C,W-1] = [4, 70, 3], got [4, 70, 4]"]),
    "a window by taps": ({"state": lambda a: a["state"].swapaxes(1, 2)}, ["state: expected shape [slots,C,W-1] = [4, 70, 3], got [4, 3, 70]"]),
    "a pool of two axes": ({"state": lambda a: a["state"][0]}, ["state: expected shape [slots,C,W-1]", "got [70, 3]"]),
    "an integer pool": ({"state": lambda a: a["state"].astype(np.int32)}, ["state.dtype = i32: expected f32, bf16 or f16"]),
    "a bias of other channels": ({"bias": lambda a: a["bias"][:3]}, ["bias: expected shape [C] = [70], got [3]"]),
    "no tree": ({"parents": None}, ["trees.parents is NULL: expected [B,T] int32, or next_token with next_sibling"]),
    "int64 parents": ({"parents": lambda a: a["parents"].astype(np.int64)}, ["parents.dtype = ", "expected i32 for [B,T]; convert it with"]),
    "a child before its parent": ({"parents": lambda a: np.where(np.arange(20) == 3, 7, a["parents"])},
                                  ["parents[b=1][3] = 7: a parent must precede its child", "renumber"]),
    "a count past T": ({"count": np.int32([1, 21, 3])}, ["trees.count[b=1] = 21: expected 0 <= count <= nodes = 20"]),
    "a slot past the pool": ({"slot_index": np.int32([0, 1, 4])}, ["slot_index[b=2] = 4: expected less than slots = 4"]),
    "a plan of another batch": ({"plan": np.zeros((2, 64), np.uint8)}, ["plan: expected what plan() made of these 3 trees", "call plan() again"]),
    "a plan of other bytes": ({"plan": np.zeros((3, 64), np.uint8)}, ["plan: expected what plan() made on this device", "[3, 64]"]),
    "an unknown implementation": ({"implementation": "cpu_magic"}, ["cpu_magic", "cpu_conv"]),
    "an output of another shape": ({"o": np.zeros((3, 20, 4), np.float32)}, ["o: expected shape [B,T,C] = [3, 20, 70], got [3, 20, 4]"]),
    "an output of a third type": ({"o": np.zeros((3, 20, 70), np.float16)}, ["o.dtype = f16: expected f32, the dtype of x"]),
    "row_status of another type": ({"row_status": np.zeros(3, np.int64)}, ["row_status.dtype = ", "expected i32 for [B]"]),
}  # fmt: skip
CONV_COMMIT = {
    "int64 leaves": ({"leaf": np.int64([0, 0, 0])}, ["leaf.dtype = ", "expected i32 for [B]; convert it"]),
    "layers in the state alone": ({"state": lambda a: np.stack([a["state"]] * 2)}, ["x: expected 4 axes [L,B,T,C], as state has a layer axis, got 3"]),
    "a plan of other bytes": ({"plan": np.zeros((3, 64), np.uint8)}, ["plan: expected what plan() made on this device", "[3, 64]"]),
    "layers in x alone": ({"x": lambda a: np.stack([a["x"]] * 2)}, ["x: expected 3 axes [B,T,C], got 4"]),
    "a state of two axes": ({"state": lambda a: a["state"][0]}, ["state: expected 3 axes [slots,C,W-1], or 4 with L layers before them, got 2"]),
    "a window of four": ({"state": lambda a: np.ones((4, 70, 4), np.float32)}, ["width = 5: expected 2 to 4 taps"]),
    "a track slot alone": ({"track_slot": np.int32([0, 1, 2])}, ["track_leaf is NULL", "come together"]),
    "slots of two types": ({"slot_index": None, "dst_slot": np.int64([0, 1, 2]), "track_slot": np.int32([0, 1, 2]), "track_leaf": np.int32([0, 0, 0])},
                           ["track_slot.dtype: expected the dtype of dst_slot; convert"]),
    "two rows that write one slot": ({"dst_slot": np.int32([3, 3, 2])}, ["dst_slot[b=1] = 3: sequence 0 uses the same slot"]),
    "a destination past the pool": ({"dst_slot": np.int32([0, 1, 9])}, ["dst_slot[b=2] = 9: expected less than slots = 4"]),
}  # fmt: skip


def good():
    return problem([*TREES["ragged"][:1], *[Tree.family("random", 20, seed=s) for s in (1, 2)]], slots=4) | {
        "slot_index": np.int32([0, 1, 2])
    }


def spoilt(arguments, changes):
    return arguments | {name: value(arguments) if callable(value) else value for name, value in changes.items()}


def check(run, pieces):
    with pytest.raises(RuntimeError) as error:
        run()
    for piece in pieces:
        assert piece in str(error.value)


@pytest.mark.parametrize("case", VERIFY)
def test_verify(to, case):
    changes, pieces = VERIFY[case]
    arguments = spoilt(good(), changes)
    # A copy would make strided views dense again.
    strides = case == "a last axis with gaps"
    converted = to(arguments) | ({"q": strided(to)} if strides else {})
    check(lambda: canopy_gdn.verify(**converted), pieces)


def strided(to):
    twice = to({"q": np.repeat(good()["q"], 2, -1)})["q"]
    return twice[..., ::2]


@pytest.mark.parametrize(("name", "piece"), [
    ("parents", "parents: expected a last stride of 1 for [B,T], got 2; make it contiguous"),
    ("count", "count: expected a last stride of 1 for [B], got 2; make it contiguous"),
    ("slot_index", "slot_index: expected a stride of 1 for [B], got 2; make it contiguous"),
])  # fmt: skip
def test_integers_with_gaps(to, name, piece):
    arguments = to(good())
    arguments[name] = to({"i": np.repeat(good()[name], 2, -1)})["i"][..., ::2]
    check(lambda: canopy_gdn.verify(**arguments), [piece])


@pytest.mark.parametrize("case", COMMIT)
def test_commit(to, case):
    changes, pieces = COMMIT[case]
    arguments = to(spoilt(commit_arguments(good(), np.int32([0, 3, 4])), changes))
    before = np.asarray(arguments["state"]).copy()
    check(lambda: canopy_gdn.commit(**arguments), pieces)
    assert np.array_equal(np.asarray(arguments["state"]), before)


def good_conv():
    trees = [*TREES["ragged"][:1], *[Tree.family("random", 20, seed=s) for s in (1, 2)]]
    return conv_problem(trees, slots=4) | {"slot_index": np.int32([0, 1, 2])}


@pytest.mark.parametrize("case", CONV)
def test_conv1d_tree(to, case):
    changes, pieces = CONV[case]
    arguments = to(spoilt(good_conv(), changes))
    if case == "channels with gaps":  # a copy has made it dense
        arguments["x"] = to({"x": np.repeat(good_conv()["x"], 2, -1)})["x"][..., ::2]
    check(lambda: canopy_gdn.conv1d_tree(**arguments), pieces)


@pytest.mark.parametrize("case", CONV_COMMIT)
def test_conv1d_commit(to, case):
    changes, pieces = CONV_COMMIT[case]
    arguments = to(spoilt(conv_commit_arguments(good_conv(), [0, 3, 4]), changes))
    before = np.asarray(arguments["state"]).copy()
    check(lambda: canopy_gdn.conv1d_commit(**arguments), pieces)
    assert np.array_equal(np.asarray(arguments["state"]), before)


def test_a_convolution_into_its_own_input(to):
    arguments = to(good_conv())
    check(
        lambda: canopy_gdn.conv1d_tree(**arguments, o=arguments["x"]), ["o.data = x.data: expected memory of its own"]
    )


@pytest.mark.parametrize(("changes", "pieces"), [
    ({"parents": None}, ["parents: expected [B,T] int32, or next_token with next_sibling, got neither", "; pass one form"]),
    ({"parents": np.int32([-1, 0])}, ["parents: expected [B,T]", "got 1 axes; add the batch axis with [None]"]),
    ({"parents": np.zeros((3, 257), np.int32)}, ["nodes = 257: expected 1 to 256"]),
    ({"count": np.int32([1, 2])}, ["count: expected shape [B] = [3], got [2]"]),
    ({"slot_index": np.int32([0, 1, 2])}, ["slots: expected the number of slots of the pool", "got None; pass state.shape[0]"]),
])  # fmt: skip
def test_plan(to, changes, pieces):
    arguments = {n: v for n, v in good().items() if n in ("parents", "count")}
    check(lambda: canopy_gdn.plan(**to(spoilt(arguments, changes))), pieces)


def test_what_is_no_array():
    arguments = good()
    check(
        lambda: canopy_gdn.verify(**arguments | {"k": arguments["k"].tolist()}),
        ["k: expected a NumPy array or a PyTorch tensor, got list"],
    )


@pytest.mark.parametrize(("changes", "pieces"), [
    ({"q": lambda a: a["q"].astype(">f4")}, ["q.dtype = >f4: expected this machine's byte order", ".astype(numpy.float32)"]),
    ({"parents": lambda a: a["parents"].astype(">i4")}, ["parents.dtype = >i4: expected this machine's byte order", ".astype(numpy.int32)"]),
    ({"plan": lambda a: np.repeat(canopy_gdn.plan(parents=a["parents"]), 2, 0)[::2]}, ["plan: expected what plan() made", "with strides"]),
    ({"padding_slot": 2**70}, [f"padding_slot = {2**70}: expected 64 bits"]),
    ({"max_depth": 2**31}, [f"max_depth = {2**31}: expected 32 bits"]),
    ({"padding_slot": "none"}, ["padding_slot = 'none': expected an integer, got str"]),
    ({"implementation": 3}, ["implementation = 3: expected a name of implementations()", "got int"]),
    ({"precision": ["fp32"]}, ["precision = ['fp32']: expected one of 'default'"]),
    ({"workspace": np.zeros((9, 2), np.uint8)[:, 0]}, ["workspace: expected contiguous memory, got strides (2,)"]),
])  # fmt: skip
def test_what_only_numpy_has(changes, pieces):
    check(lambda: canopy_gdn.verify(**spoilt(good(), changes)), pieces)


def test_a_plan_into_what_cannot_hold_it():
    parents = good()["parents"]
    plan = canopy_gdn.plan(parents=parents)
    frozen = plan.copy()
    frozen.flags.writeable = False
    for out, piece in ((np.repeat(plan, 2, 0)[::2], "plan: expected contiguous memory, got strides"), (frozen, "plan: expected a writable array"),
                       ([0], "plan: expected a NumPy array or a PyTorch tensor, got list")):  # fmt: skip
        check(lambda: canopy_gdn.plan(parents=parents, out=out), [piece])


def test_arrays_among_tensors_and_tensors_of_the_meta_device():
    """A tensor on meta sends PyTorch to the operator's fake, whose result is memory that nobody wrote."""
    torch = pytest.importorskip("torch")
    arguments = {n: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for n, v in good().items()}
    check(
        lambda: canopy_gdn.verify(**arguments | {"state": good()["state"]}), ["Tensor", "argument 'state'", "ndarray"]
    )
    check(
        lambda: canopy_gdn.verify(**arguments | {"state": arguments["state"].to("meta")}),
        ["expected all on cpu, the device of q, got one on meta"],
    )
    conv = {n: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for n, v in good_conv().items()}
    check(
        lambda: canopy_gdn.conv1d_tree(**conv | {"weight": conv["weight"].to("meta")}),
        ["expected all on cpu, the device of x, got one on meta"],
    )
    strided = torch.zeros(2 << 20, dtype=torch.uint8)[::2]
    check(
        lambda: canopy_gdn.verify(**arguments, workspace=strided),
        ["workspace: expected contiguous memory, got a strided view"],
    )
    plan = canopy_gdn.plan(parents=arguments["parents"]).repeat_interleave(2, 0)[::2]
    check(lambda: canopy_gdn.verify(**arguments, plan=plan), ["plan: expected contiguous memory, got a strided view"])
    check(
        lambda: canopy_gdn.verify(**good() | {"k": arguments["k"].to("meta")}),
        ["k: expected a tensor on cpu, the device of q, got one on meta"],
    )
    workspace = torch.zeros(9, dtype=torch.uint8)
    check(
        lambda: canopy_gdn.verify(**good(), workspace=workspace),
        ["workspace: expected a NumPy array as the other arguments are, got Tensor"],
    )


def test_calls_about_calls_take_their_keywords_alone():
    """A misspelt option of the oracle would be the truth about another problem."""
    arguments = good()
    shared = {n: v for n, v in arguments.items() if n not in ("k", "v")}
    for call, name, about in ((canopy_gdn.oracle, "oracle", "verify"), (canopy_gdn.explain, "explain", "verify")):
        with pytest.raises(
            TypeError, match=f"{name}.. got an unexpected keyword argument 'l2nrm': expected those of {about}"
        ):
            call(**arguments, l2nrm=True)
        with pytest.raises(TypeError, match=f"{name}.. missing the keyword argument 'state' of {about}"):
            call(**{n: v for n, v in arguments.items() if n != "state"})
    with pytest.raises(TypeError, match="oracle_state.. got an unexpected keyword argument 'scales'"):
        canopy_gdn.oracle_state(**arguments, leaf=np.int32([0, 0, 0]), scales=1)
    with pytest.raises(TypeError, match="verify_workspace.. got an unexpected keyword argument 'leaf'"):
        canopy_gdn.verify_workspace(**arguments, o=arguments["v"], leaf=np.int32([0, 0, 0]))
    with pytest.raises(TypeError, match="commit_workspace.. missing the keyword argument 'leaf' of commit"):
        canopy_gdn.commit_workspace(arguments["k"], arguments["v"], **{n: v for n, v in shared.items() if n != "q"})


def test_a_read_only_output():
    o = np.zeros((3, 20, 4, 24), np.float32)
    o.flags.writeable = False
    check(lambda: canopy_gdn.verify(**good(), o=o), ["o: expected a writable array, got a read-only one"])


def test_refusals_leave_the_output_alone(to):
    arguments = to(good() | {"o": np.full((3, 20, 4, 24), 7, np.float32), "count": np.int32([1, 21, 3])})
    check(lambda: canopy_gdn.verify(**arguments), ["count"])
    assert np.all(np.asarray(arguments["o"]) == 7)
