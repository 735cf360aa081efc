"""The adapter for transformers: a tree through Qwen3_5GatedDeltaNet is the module run along every root path."""

import copy

import canopy_gdn
import pytest
from canopy_gdn import Tree

torch = pytest.importorskip("torch")
pytest.importorskip("transformers.models.qwen3_5")
from canopy_gdn.integrations import transformers as adapter  # noqa: E402
from transformers import DynamicCache  # noqa: E402
from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5TextConfig  # noqa: E402
from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5GatedDeltaNet  # noqa: E402

HIDDEN, PROMPT = 48, 7


@pytest.fixture(scope="module")
def setup():
    """A layer with random weights, and the cache of two sequences after a prompt."""
    torch.manual_seed(0)
    config = Qwen3_5TextConfig(
        hidden_size=HIDDEN, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, head_dim=16, vocab_size=64,
        linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=24,
        linear_conv_kernel_dim=4, layer_types=["linear_attention", "linear_attention"], intermediate_size=32,
    )  # fmt: skip
    layer = Qwen3_5GatedDeltaNet(config, 1).eval()
    with torch.no_grad():
        layer.A_log.copy_(torch.rand(4).log())
        layer.dt_bias.copy_(torch.randn(4))
        prompt = torch.randn(2, PROMPT, HIDDEN)
        cache = DynamicCache(config=config)
        layer(prompt, cache_params=cache)
    return layer, cache


def feed(layer, cache, tokens):
    """The layer's output for the last of these tokens, fed one by one as a decoder does, and the cache afterwards."""
    cache = copy.deepcopy(cache)
    with torch.no_grad():
        for token in range(tokens.shape[1]):
            out = layer(tokens[:, token : token + 1], cache_params=cache)
    return out[:, 0], cache.layers[1]


@pytest.mark.parametrize("tree", [Tree([-1]), Tree.family("chain", 6), Tree.family("random", 14, seed=3), Tree.family("best-first", 20)],
                         ids=lambda t: f"{len(t)}-nodes")  # fmt: skip
def test_a_tree_is_the_module_along_every_root_path(setup, tree):
    layer, cache = setup
    hidden = torch.randn(2, len(tree), HIDDEN)
    parents = torch.from_numpy(canopy_gdn.batch([tree, tree])[0])
    mine = copy.deepcopy(cache)
    step = adapter.verify(layer, hidden, parents, mine)
    untouched = [torch.equal(a, b) for a, b in zip(states(mine), states(cache))]
    assert all(untouched), "verify only reads the cache"
    for node in range(len(tree)):
        expected, _ = feed(layer, cache, hidden[:, list(tree.path(node))])
        assert torch.allclose(step.output[:, node], expected, atol=2e-6, rtol=1e-5), node
    leaf = torch.tensor([len(tree) - 1, len(tree) // 2], dtype=torch.int32)
    adapter.commit(step, leaf)
    for row, node in enumerate(leaf.tolist()):
        _, expected = feed(layer, cache, hidden[:, list(tree.path(node))])
        assert torch.allclose(mine.layers[1].conv_states[0][row], expected.conv_states[0][row], atol=1e-6)
        assert torch.allclose(mine.layers[1].recurrent_states[0][row], expected.recurrent_states[0][row], atol=1e-5)


def states(cache):
    return cache.layers[1].conv_states[0], cache.layers[1].recurrent_states[0]


def test_rounds_of_verify_and_commit_are_decoding(setup):
    layer, cache = setup
    torch.manual_seed(1)
    mine, theirs = copy.deepcopy(cache), copy.deepcopy(cache)
    for seed in range(5):
        tree = Tree.family("random", 10, seed=seed)
        hidden = torch.randn(2, 10, HIDDEN)
        step = adapter.verify(layer, hidden, torch.from_numpy(canopy_gdn.batch([tree] * 2)[0]), mine)
        node = 9 - seed
        adapter.commit(step, torch.full((2,), node, dtype=torch.int32))
        with torch.no_grad():
            for token in tree.path(node):
                theirs_out = layer(hidden[:, token : token + 1], cache_params=theirs)
        assert torch.allclose(step.output[:, node], theirs_out[:, 0], atol=1e-5)
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(states(mine), states(theirs)))


def test_what_stands_at_the_root_is_not_read(setup):
    layer, cache = setup
    hidden = torch.randn(2, 3, HIDDEN)
    caches = []
    for root in (-1, 2):
        caches.append(copy.deepcopy(cache))
        step = adapter.verify(layer, hidden, torch.tensor([[root, 0, 1]] * 2, dtype=torch.int32), caches[-1])
        adapter.commit(step, torch.tensor([0, 2], dtype=torch.int32))
    assert all(torch.equal(a, b) for a, b in zip(*map(states, caches)))


def test_skipped_rows_keep_their_cache_bitwise(setup):
    layer, cache = setup
    mine = copy.deepcopy(cache)
    parents = torch.tensor([[-1, 0, 1], [-1, 0, 0]], dtype=torch.int32)
    step = adapter.verify(
        layer, torch.randn(2, 3, HIDDEN), parents, mine, count=torch.tensor([3, 2], dtype=torch.int32)
    )
    adapter.commit(step, torch.tensor([-1, 2], dtype=torch.int32))
    assert all(torch.equal(a, b) for a, b in zip(states(mine), states(cache)))


def test_a_cache_without_a_state_is_refused(setup):
    layer, cache = setup
    empty = DynamicCache(config=layer_config(cache))
    with pytest.raises(RuntimeError, match="cache_params: expected a cache that holds layer 1's state.*run the prompt"):
        adapter.verify(layer, torch.randn(2, 1, HIDDEN), torch.full((2, 1), -1, dtype=torch.int32), empty)


def test_a_cache_that_records_the_past_is_refused(setup):
    layer, cache = setup
    long = copy.deepcopy(cache)
    long.layers[1].conv_states[0] = torch.zeros(2, 2 * 2 * 16 + 4 * 24, 6)
    with pytest.raises(
        RuntimeError, match="cache_params: expected the last 4 inputs of layer 1's convolution, got 6; crop"
    ):
        adapter.verify(layer, torch.randn(2, 1, HIDDEN), torch.full((2, 1), -1, dtype=torch.int32), long)


def test_another_activation_is_refused(setup):
    layer, cache = setup
    other = copy.deepcopy(layer)
    other.activation = "gelu"
    with pytest.raises(RuntimeError, match="layer.activation = 'gelu': expected 'silu', 'swish' or None"):
        adapter.verify(
            other, torch.randn(2, 1, HIDDEN), torch.full((2, 1), -1, dtype=torch.int32), copy.deepcopy(cache)
        )


def layer_config(cache):
    return Qwen3_5TextConfig(num_hidden_layers=len(cache.layers), layer_types=["linear_attention"] * len(cache.layers))
