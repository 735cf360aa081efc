"""Quantiles and comparisons."""

import random

import base
import pytest
import records


@pytest.mark.parametrize("count", [1, 2, 3, 10, 11, 200])
def test_quantiles_are_values_in_order(count):
    values = [float(i) for i in range(count)]
    random.Random(count).shuffle(values)
    found = [records.quantile(values, q) for q in (0, 0.1, 0.5, 0.9, 1)]
    assert found == sorted(found) and found[0] == 0 and found[-1] == count - 1
    assert abs(found[2] - (count - 1) / 2) <= 0.5 and abs(found[1] - 0.1 * (count - 1)) <= 0.5


def test_four_digits():
    assert [records.four_digits(x) for x in (1.23456, 123456.0, 1.23456e-7)] == [1.235, 123500.0, 1.235e-7]


def cell(median, spread, contender="cuda_fused"):
    return {"contender": contender, "cache": "warm", "median_us": median, "p10_us": median - spread, "p90_us": median + spread}


@pytest.mark.parametrize(
    "before, after, certain",
    [((100, 5), (120, 5), True), ((100, 15), (120, 15), False), ((100, 0.1), (101, 0.1), False), ((120, 5), (100, 5), True), ((100, 1), (100, 1), False)],
)  # fmt: skip
def test_a_change_is_certain_beyond_noise_only(before, after, certain):
    assert base.Pair("x", cell(*before), cell(*after)).certain is certain


def test_a_comparison_reports_mean_and_cells():
    before = [cell(100, 1), cell(10, 1, "floor"), cell(1, 0.1, "gone")]
    after = [cell(200, 1), cell(10, 1, "floor"), cell(1, 0.1, "new")]
    found = base.pairs(before, after, "chain T=4 B=1") + base.pairs([cell(100, 1)], [cell(50, 1)], "star T=4 B=1")
    said = base.report(found)
    assert "cuda_fused" in said and " 1.000 times the time (geometric mean of 2 cells), 1 faster, 1 slower" in said
    assert said.index("2.000") < said.index("0.500") and "gone" not in said and "new" not in said


def test_both_are_asked_twice_around_each_other():
    order = []
    old, new = (lambda request, name=name: order.append(name) or [cell(1, 0)] for name in ("old", "new"))
    assert len(base.ask_both(old, new, [{"family": "chain", "T": 4, "B": 1}] * 2)) == 2
    assert order == ["old", "new", "new", "old"] * 2


def test_a_machine_that_slows_down_is_no_change():
    """Each answer is steady and slower than the one before: both commits the same."""
    speeds = iter([100, 120, 140, 160])
    ask = lambda request: [cell(next(speeds), 1)]
    (pair,) = base.ask_both(ask, ask, [{"family": "chain", "T": 4, "B": 1}])
    assert pair.ratio == pytest.approx((120 * 140) ** 0.5 / (100 * 160) ** 0.5) and not pair.certain


def test_an_unknown_commit_is_refused():
    with pytest.raises(SystemExit, match="--base nowhere: not a commit"):
        base.build("nowhere")
