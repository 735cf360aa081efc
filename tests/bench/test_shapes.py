"""The shapes: what the benchmark rules ask, each once, and few for the quick run."""

import itertools

import pytest
import runner
import shapes
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


def test_the_usual_layer_comes_first_and_the_order_is_the_same_each_time(trees):
    requests = shapes.sweep("cuda", trees)
    assert (requests[0]["HV"], requests[0]["state"]) == (32, "f32") and requests == shapes.sweep("cuda", trees)


def test_quick_fits_five_minutes(trees):
    """By its limits: seconds of timing for each state of the caches, and as much again for making problems."""
    requests = shapes.sweep("cuda", trees, quick=True)
    seconds = sum(request["most_seconds"] * len(request["caches"]) for request in requests)
    assert 2 * seconds < 120  # the rest is for memory, errors and drift


def test_an_unknown_family_is_named():
    with pytest.raises(ValueError, match="expected one of chain"):
        shapes.of_family("cpu", "palm", 4, 1)
