"""docs/integration.md is true: its code runs, its table is what the adapter keeps."""

import pathlib
import re

import canopy_gdn
import pytest

torch = pytest.importorskip("torch")
from canopy_gdn.integrations.sglang import TreeVerifier  # noqa: E402

TEXT = (pathlib.Path(__file__).parents[2] / "docs" / "integration.md").read_text()
STEP, SGLANG = re.findall(r"^```python\n(.*?)^```", TEXT, re.M | re.S)


class Layer(int):
    """A layer's number, with its weights."""


def test_a_step():
    L, B, T, H, HV, K, V, W = 2, 2, 5, 1, 2, 16, 16, 4
    widths = [H * K, H * K, HV * V]
    layers = [Layer(index) for index in range(L)]
    for layer in layers:
        layer.conv_weight, layer.A_log, layer.dt_bias = torch.randn(sum(widths), W), torch.randn(HV), torch.randn(HV)
    kept = {"k": torch.zeros(L, B, T, H, K), "v": torch.zeros(L, B, T, HV, V)}
    x, a, b = torch.randn(B, T, sum(widths)), torch.randn(B, T, HV), torch.randn(B, T, HV)
    called = iter(range(L))

    def heads(qkv):
        at = next(called)
        q, k, v = qkv.split(widths, -1)
        kept["k"][at], kept["v"][at] = k.unflatten(-1, (H, K)), v.unflatten(-1, (HV, V))
        return q.unflatten(-1, (H, K)), k.unflatten(-1, (H, K)), v.unflatten(-1, (HV, V))

    parents, count = map(
        torch.from_numpy, canopy_gdn.batch([canopy_gdn.Tree.family("random", T, seed=s) for s in range(B)])
    )
    stacked = lambda tensor: torch.stack([tensor] * L)
    names = {
        "canopy_gdn": canopy_gdn, "parents": parents, "count": count, "gdn_layers": layers, "x": x, "a": a, "b": b, "heads": heads,
        "windows": torch.randn(L, 3, sum(widths), W - 1), "pool": torch.randn(L, 3, HV, V, K), "slots": torch.tensor([2, 0]),
        "choose": lambda o: torch.tensor([3, -1], dtype=torch.int32), "o_of_the_last_layer": None, "k_all": kept["k"], "v_all": kept["v"],
        "a_all": stacked(a), "b_all": stacked(b), "x_all": stacked(x), "A_log_all": torch.stack([layer.A_log for layer in layers]),
        "dt_bias_all": torch.stack([layer.dt_bias for layer in layers]),
    }  # fmt: skip
    before = names["pool"].clone(), names["windows"].clone()
    exec(STEP, names)
    for pool, old in zip((names["pool"], names["windows"]), before, strict=True):
        assert torch.equal(pool[:, :2], old[:, :2]), "the second sequence accepts nothing, slot 1 is nobody's"
        assert torch.isfinite(pool).all() and not torch.equal(pool[:, 2], old[:, 2])
    assert names["o"].shape == (B, T, HV, V)


def test_sglang():
    B, T, C = 1, 4, 2 * 128 + 2 * 128
    random = torch.randn
    names = {
        "TreeVerifier": lambda **options: TreeVerifier(device="cpu", dtype=torch.float32, **options), "B": B, "T": T,
        "cache_indices": torch.tensor([1], dtype=torch.int32), "retrieve_next_token": torch.tensor([[1, -1, -1, -1]]),
        "retrieve_next_sibling": torch.tensor([[-1, 2, 3, -1]]), "x": random(B * T, C).view(B, T, C).transpose(1, 2), "weight": random(C, 4),
        "bias": random(C), "conv_states": random(2, 2, C, 3), "temporal": random(2, 2, 2, 128, 128), "A_log": random(2), "dt_bias": random(2),
        "q": random(1, T, 1, 128), "k": random(1, T, 1, 128), "v": random(1, T, 2, 128), "a": random(T, 2), "b": random(T, 2),
        "accepted": torch.tensor([2]), "track_indices": torch.tensor([-1]), "track_steps": torch.tensor([-1]),
    }  # fmt: skip
    start = names["temporal"].clone()
    exec(
        SGLANG.replace("24", "2").replace("num_k_heads=16", "num_k_heads=1").replace("num_v_heads=32", "num_v_heads=2"),
        names,
    )
    assert names["o"].shape == (1, T, 2, 128)
    assert not torch.equal(names["temporal"][:, 1], start[:, 1]) and torch.equal(names["temporal"][:, 0], start[:, 0])


def test_the_table_of_memory():
    """MiB for T of 16, 64, 128, from the shapes and from what the adapter allocates; rounded as the table rounds."""
    rows = {}
    for line in TEXT.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and cells[1].endswith(("MiB", "GiB")):
            rows[cells[0]] = [float(cell.split()[0]) * (1024 if cell.endswith("GiB") else 1) for cell in cells[1:]]
    made = [
        TreeVerifier(layers=24, max_batch=1, draft_token_num=T, num_k_heads=16, num_v_heads=32, device="meta")
        for T in (16, 64, 128)
    ]
    channels = sum(made[0].split)
    bytes_a_node = {"a state for": 32 * 128 * 128 * 4, "a window of": channels * 3 * 2, "k, v, a, b": (2048 + 4096 + 64) * 2,
                    "U and l": (32 * 128 + 32) * 4}  # fmt: skip
    expected = {name: [24 * T * size / 2**20 for T in (16, 64, 128)] for name, size in bytes_a_node.items()}
    expected["all that"] = [verifier.nbytes / 2**20 for verifier in made]
    assert channels == 8192 and len(rows) == len(expected)
    for name, values in expected.items():
        found = next(row for title, row in rows.items() if title.startswith(name))
        assert found == pytest.approx(values, rel=0.005, abs=0.06), name
