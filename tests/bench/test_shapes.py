"""The shapes: what the benchmark rules ask, each once, and few for the quick run."""

import itertools

import conv
import pytest
import runner
import shapes
import strategies
import tables


@pytest.fixture(scope="module")
def trees(program):
    return shapes.published_trees(program)


def test_the_published_trees_are_all_there(trees):
    assert [(name, len(parents)) for name, parents in trees][:3] == [("ddtree-budget", 12), ("eagle-mc_sim_7b_63", 26), ("medusa-mc_sim_7b_63", 64)]
    assert len(trees) == 10 and all(parents[0] == -1 for _, parents in trees)


def test_a_gpu_is_asked_everything_that_the_rules_name(trees):
    requests = shapes.sweep("cuda", trees)
    for name, values in tables.ASKED.items():
        held = set(itertools.chain(*(request["caches"] for request in requests))) if name == "cache" else {request[name] for request in requests}
        assert held >= set(values), name
    names = {request.get("name") for request in requests}
    assert {name for name, _ in trees} <= names and {label for label, *_ in shapes.FAMILIES} <= names
    assert {"specla-2 depth 12", "specla-4 depth 24", "commit, 24 layers"} <= names
    assert {(request["HV"], request["state"]) for request in requests} == {(32, "f32"), (48, "f32"), (32, "bf16"), (48, "bf16")}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("quick", [False, True])
def test_every_request_is_told_apart(trees, device, quick):
    asked = [signature for request in shapes.sweep(device, trees, quick) for signature in runner.asked(request)]
    assert len(asked) == len(set(asked))


def test_the_order_is_the_same_each_time_and_by_weight(trees):
    requests = shapes.sweep("cuda", trees)
    assert requests == shapes.sweep("cuda", trees)
    weights = [0 if shapes.in_core(request) else shapes.weight(request) for request in requests]
    assert weights == sorted(weights) and set(weights) == {0, 1, 2, 3, 4}
    assert all(shapes.weight(request) == 1 for request in requests if runner.name_of(request).startswith("specla-"))
    assert all(not shapes.in_core(request) for request in shapes.sweep("cpu", trees))


def test_the_core_holds_what_the_tables_compare(trees):
    requests = [request for request in shapes.sweep("cuda", trees) if shapes.in_core(request)]
    held = {(runner.name_of(request), request["T"], request["B"]) for request in requests}
    for family, nodes in strategies.SHAPES:
        assert {("best-first-4" if family == "best-first" else family, nodes, batch) for batch in (1, 16)} <= held
    for depth in strategies.DEPTHS:
        assert {(name, depth + 1, batch) for name in ("chain", "chain, keys alike") for batch in (1, 16)} <= held
    assert {("best-first-4, raw gates and norm", nodes, batch) for nodes in (16, 64, 128) for batch in (1, 16)} <= held
    assert {(request["raw_gates"], request["l2norm"]) for request in requests if "raw gates" in runner.name_of(request)} == {(True, True)}
    assert {request["keys"] for request in requests if runner.name_of(request) == "chain, keys alike"} == {"similar"}


def test_calls_with_a_stash_are_asked_at_every_batch(trees):
    requests = [request for request in shapes.sweep("cuda", trees) if request.get("stash")]
    assert {(request["T"], request["B"]) for request in requests if request["HV"] == 32} >= set(itertools.product((1, 2, 4, 8, 16, 32, 64, 128, 256), (1, 2, 4, 8, 16)))
    assert {request["HV"] for request in requests} == {32, 48} and {request["state"] for request in requests} == {"f32"}
    assert {runner.name_of(request) for request in requests} == {"chain, u stored", "best-first-4, u stored"}
    core = {(runner.name_of(request), request["T"], request["B"]) for request in requests if shapes.in_core(request)}
    for nodes in strategies.STASH_NODES:  # what the table compares
        assert {("chain, u stored", nodes, batch) for batch in (1, 16)} <= core
    assert {request["contenders"] for request in requests} == {"fast"}
    assert not any(request.get("stash") for request in shapes.sweep("cpu", trees))


def test_stashes_add_less_than_a_minute(trees):
    """By the limits of replays alone: eight contenders in the core, five elsewhere, and the warm-up; what is slow and large besides."""
    stash = [request for request in shapes.sweep("cuda", trees) if request.get("stash")]
    seconds = sum((8 if shapes.in_core(r) else 5) * 2 * (r["share"] + r["warm_ups"] * r["replay_seconds"]) for r in stash)
    assert 10 < seconds < 35


def test_the_tree_convolution_is_asked_once_in_every_shape():
    requests = conv.requests("cuda", False)
    verify = [request for request in requests if request["measure"] == "conv"]
    assert {(request["B"], request["T"]) for request in verify} == set(itertools.product((1, 4, 16, 32), (8, 64, 256))) and len(verify) == 12
    commits = [request for request in requests if request["measure"] == "conv_commit"]
    assert {(request["B"], request["layers"]) for request in commits} == {(batch, 24) for batch in (1, 4, 16, 32)} and len(requests) == 16
    layer = {"channels": 8192, "width": 4, "input": "bf16", "silu": True, "caches": ["warm", "cold"], "repeat": 200, "warm_ups": 25}
    assert all(request | layer == request for request in requests)
    asked = [signature for request in requests for signature in runner.asked(request)]
    assert len(asked) == len(set(asked)) == 32
    assert sum(4 * (request["share"] + request["warm_ups"] * request["replay_seconds"]) for request in requests) < 6, "seconds of replays"
    assert conv.requests("cpu", False) == [] and len(conv.requests("cuda", True)) == 4


def seconds_at_most(request, contenders=9):
    """Of replays, if every contender takes its whole share or, slow, 45 replays of 15 ms."""
    return len(request["caches"]) * (contenders * request["share"] + 0.7)


def test_quick_fits_five_minutes(trees):
    """By its limits, and as much again for making problems; the rest is for memory, errors, drift and peers."""
    assert sum(2 * seconds_at_most(request) for request in shapes.sweep("cuda", trees, quick=True)) < 150


def test_an_unknown_family_is_named():
    with pytest.raises(ValueError, match="expected one of chain"):
        shapes.of_family("cpu", "palm", 4, 1)
