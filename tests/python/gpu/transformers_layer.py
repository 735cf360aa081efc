"""The adapter for transformers on CUDA: a tree through Qwen3_5GatedDeltaNet is the module run along every root path.

A layer of Qwen3.5's shape with random weights. What a node gives is what the module gives for one token more after its
parent's cache, in fp32 for every dtype; how far the module itself is from that in bf16 bounds the adapter there. The
module takes flash-linear-attention's recurrence where that is installed, PyTorch's own otherwise.
"""

from __future__ import annotations

import copy
import importlib.util
from typing import Any

import canopy_gdn
import torch
from canopy_gdn import Tree
from common import captured, check, not_run, relative, within

NUMBER = 1  # of the layer in its model
TREES = (Tree.family("best-first", 24), Tree.family("random", 17, seed=3))
FP32 = {"output": 2e-3, "state": 1e-5, "window": 1e-5}  # canopy's default precision, and fp32


def run() -> None:
    why = missing()
    if why:
        not_run("a tree through Qwen3_5GatedDeltaNet", why)
        return
    for dtype in (torch.float32, torch.bfloat16):
        check(f"a tree is the module along every root path, {dtype}", lambda: root_paths(*made(dtype)))
    check("rounds of verify and commit are decoding", lambda: rounds(*made(torch.float32)))
    check("who accepts nothing keeps the cache bitwise", lambda: nothing_accepted(*made(torch.bfloat16)))
    check("in a CUDA graph, replayed with new trees, inputs, leaves", lambda: graphs(*made(torch.bfloat16)))


def missing() -> str:
    if importlib.util.find_spec("transformers") is None:
        return "transformers is not installed"
    try:
        from transformers.models.qwen3_5 import modeling_qwen3_5  # noqa: F401
    except ImportError as why:
        return f"transformers without a Qwen3_5GatedDeltaNet that loads: {str(why).strip().partition(chr(10))[0]}"
    return ""


def made(dtype: torch.dtype, heads: tuple[int, int] = (16, 32), hidden: int = 2048) -> tuple[Any, Any]:
    """A layer, and the cache of two sequences as after a prompt."""
    from transformers import DynamicCache
    from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5TextConfig
    from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5GatedDeltaNet

    config = Qwen3_5TextConfig(
        hidden_size=hidden, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, head_dim=16,
        vocab_size=64, linear_num_key_heads=heads[0], linear_num_value_heads=heads[1], linear_key_head_dim=128,
        linear_value_head_dim=128, linear_conv_kernel_dim=4, layer_types=["linear_attention"] * 2, intermediate_size=32,
    )  # fmt: skip
    torch.manual_seed(0)
    layer = Qwen3_5GatedDeltaNet(config, NUMBER).eval().requires_grad_(False)
    layer.A_log.copy_(torch.rand(heads[1]).log())
    layer.dt_bias.copy_(torch.randn(heads[1]))
    layer = layer.to(dtype).cuda()
    cache = DynamicCache(config=config)
    cache.update_conv_state(randn(2, layer.conv_dim, 4).to(dtype), NUMBER, conv_kernel_size=4)
    cache.update_recurrent_state(randn(2, heads[1], 128, 128), NUMBER)
    return layer, cache


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda")


def states(cache: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Recurrent states and windows."""
    entry = cache.layers[NUMBER]
    return entry.recurrent_states[0], entry.conv_states[0]


def row_of(cache: Any, row: int, dtype: torch.dtype) -> Any:
    """The cache of one sequence; the recurrent state stays fp32, as the module keeps it."""
    one = copy.deepcopy(cache)
    entry = one.layers[NUMBER]
    entry.recurrent_states[0] = entry.recurrent_states[0][row : row + 1].clone()
    entry.conv_states[0] = entry.conv_states[0][row : row + 1].to(dtype).clone()
    return one


def walked(layer: Any, cache: Any, hidden: torch.Tensor, tree: Tree, row: int) -> tuple[torch.Tensor, list[Any]]:
    """The module's output at every node of a sequence and its cache after it, in the layer's dtype."""
    dtype = layer.out_proj.weight.dtype
    start, outputs, caches = row_of(cache, row, dtype), [], []
    with torch.no_grad(), torch.backends.cudnn.flags(allow_tf32=False):
        for node, parent in enumerate(tree.parents):
            caches.append(copy.deepcopy(start if parent < 0 else caches[parent]))
            token = hidden[row : row + 1, node : node + 1].to(dtype)
            outputs.append(layer(token, cache_params=caches[-1])[0, 0])
    return torch.stack(outputs), caches


def inputs(layer: Any, *trees: Tree) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """hidden states, parents, count; of TREES unless others are given."""
    parents, count = (torch.from_numpy(array).cuda() for array in canopy_gdn.batch(list(trees or TREES)))
    return randn(2, parents.shape[1], layer.hidden_size).to(layer.out_proj.weight.dtype), parents, count


def away(got: Any, expected: Any) -> float:
    return relative(got, expected.double().cpu().numpy())


def root_paths(layer: Any, cache: Any) -> str:
    """Errors of the worst sequence; in bf16 beside the module's own."""
    from canopy_gdn.integrations import transformers as adapter

    hidden, parents, count = inputs(layer)
    mine = copy.deepcopy(cache)
    step = adapter.verify(layer, hidden, parents, mine, count=count)
    assert all(torch.equal(a, b) for a, b in zip(states(mine), states(cache))), "verify only reads the cache"
    leaves = [len(TREES[0]) - 1, len(TREES[1]) // 2]
    adapter.commit(step, torch.tensor(leaves, dtype=torch.int32, device="cuda"))
    exact = copy.deepcopy(layer).float()
    errors = {"output": 0.0, "state": 0.0, "window": 0.0}
    own = dict(errors)
    worse = lambda worst, name, error: worst.update({name: max(worst[name], error) if error == error else error})
    for row, (tree, leaf) in enumerate(zip(TREES, leaves)):
        wanted, caches = walked(exact, cache, hidden, tree, row)
        got, found = walked(layer, cache, hidden, tree, row)
        worse(errors, "output", away(step.output[row, : len(tree)], wanted))
        worse(own, "output", away(got, wanted))
        after = zip(("state", "window"), states(mine), states(found[leaf]), states(caches[leaf]))
        for name, adapters, modules, right in after:
            worse(errors, name, away(adapters[row], right[0]))
            worse(own, name, away(modules[0], right[0]))
    half = layer.out_proj.weight.dtype != torch.float32
    limits = {name: 2 * own[name] + FP32[name] for name in errors} if half else FP32
    beside = {name: f" (module {own[name]:.1e})" if half else "" for name in errors}
    return ", ".join(within(errors[name], limits[name], name) + beside[name] for name in errors)


def rounds(layer: Any, cache: Any, count: int = 4) -> str:
    """Verify and commit again and again, beside the module fed the accepted tokens one by one."""
    from canopy_gdn.integrations import transformers as adapter

    mine, theirs = copy.deepcopy(cache), copy.deepcopy(cache)
    outputs, worst = [], 0.0
    for seed in range(count):
        tree = Tree.family("random", 12, seed=seed)
        hidden, parents, _ = inputs(layer, tree, tree)
        node = 11 - seed
        step = adapter.verify(layer, hidden, parents, mine)
        adapter.commit(step, torch.full((2,), node, dtype=torch.int32, device="cuda"))
        with torch.no_grad(), torch.backends.cudnn.flags(allow_tf32=False):
            for token in tree.path(node):
                output = layer(hidden[:, token : token + 1], cache_params=theirs)
        outputs.append(away(step.output[:, node], output[:, 0]))
    worst = float(max(away(a, b) for a, b in zip(states(mine), states(theirs))))
    return f"{within(max(outputs), FP32['output'], 'output')}, {within(worst, 1e-5, 'cache')}"


def nothing_accepted(layer: Any, cache: Any) -> None:
    from canopy_gdn.integrations import transformers as adapter

    hidden, parents, count = inputs(layer)
    mine = copy.deepcopy(cache)
    step = adapter.verify(layer, hidden, parents, mine, count=count)
    adapter.commit(step, torch.tensor([-1, len(TREES[1])], dtype=torch.int32, device="cuda"))  # none; past the count
    assert all(torch.equal(a, b) for a, b in zip(states(mine), states(cache)))
    adapter.commit(step, torch.tensor([-1, 3], dtype=torch.int32, device="cuda"))
    assert all(torch.equal(a[0], b[0]) and not torch.equal(a[1], b[1]) for a, b in zip(states(mine), states(cache)))


def graphs(layer: Any, cache: Any) -> str:
    """verify and commit captured once, replayed on what later steps bring."""
    from canopy_gdn.integrations import transformers as adapter

    def steps() -> Any:
        for seed in range(4):
            torch.manual_seed(seed)
            trees = Tree.family("random", 20, seed=seed), Tree.family("best-first", 20 - seed, seed=seed)
            hidden, parents, count = inputs(layer, *trees)
            yield hidden, parents, count, torch.tensor([19 - seed, seed - 1], dtype=torch.int32, device="cuda")

    held = [tensor.clone() for tensor in next(iter(steps()))]
    mine, theirs = copy.deepcopy(cache), copy.deepcopy(cache)
    output = torch.zeros_like(held[0])

    def whole(hidden, parents, count, leaf, into, cache) -> None:
        step = adapter.verify(layer, hidden, parents, cache, count=count)
        into.copy_(step.output)
        adapter.commit(step, leaf)

    call = lambda: whole(*held, output, mine)
    call()
    replay = captured(call, allocates=True)
    for now, before in zip(states(mine), states(cache)):
        now.copy_(before)
    expected = torch.zeros_like(output)
    for step in steps():
        whole(*step, expected, theirs)
        for buffer, tensor in zip(held, step):
            buffer.copy_(tensor)
        replay()
        live = torch.arange(held[0].shape[1], device="cuda")[None] < held[2][:, None]
        assert torch.equal(output[live], expected[live]), "outputs"
        assert all(torch.equal(a, b) for a, b in zip(states(mine), states(theirs))), "cache"
    return "4 replays, bitwise"
