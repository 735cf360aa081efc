"""The adapter with SGLang's argument names, against the plain definition: each request's root paths, node by node, with a state
kept for every node (which is what SGLang does). test_sglang_calls.py: its call sites; gpu/peers.py: SGLang's own kernels, on a GPU."""

import canopy_gdn
import pytest
from canopy_gdn import Tree

torch = pytest.importorskip("torch")
from canopy_gdn.integrations.sglang import TreeVerifier  # noqa: E402

LAYERS, SLOTS, B, T, H, HV, K, V, W = 3, 9, 4, 10, 2, 4, 16, 16, 4
C = 2 * H * K + HV * V
TREES = [Tree.family("random", T, seed=seed) for seed in range(B)]


class Engine:
    """Pools, weights and a step's inputs of all layers."""

    def __init__(self, seed=0):
        torch.manual_seed(seed)
        self.temporal = torch.randn(LAYERS, SLOTS, HV, V, K)
        self.conv = torch.randn(LAYERS, SLOTS, C, W - 1)
        self.weight, self.bias = torch.randn(LAYERS, C, W) / 2, torch.randn(LAYERS, C)
        self.a_log, self.dt_bias = torch.randn(LAYERS, HV), torch.randn(LAYERS, HV)
        self.indices = torch.tensor([5, -1, 0, 7], dtype=torch.int32)
        self.verifier = TreeVerifier(layers=LAYERS, max_batch=B + 1, draft_token_num=T, num_k_heads=H, num_v_heads=HV, head_k_dim=K,
                                     head_v_dim=V, conv_width=W, dtype=torch.float32, device="cpu")  # fmt: skip
        self.draw()

    def draw(self):
        self.x = torch.randn(LAYERS, B * T, C)
        self.a, self.b = torch.randn(LAYERS, B * T, HV), torch.randn(LAYERS, B * T, HV)

    def step(self, form="links", strided=True):
        """A step as SGLang's backend makes it; o of all layers."""
        trees = {"retrieve_parent_token": torch.tensor([tree.parents for tree in TREES])}
        if form == "links":
            trees = links()
        if form == "chain":
            trees = {}
        self.verifier.begin(self.indices, **trees)
        outputs = []
        for layer in range(LAYERS):
            x = self.x[layer].view(B, T, C).transpose(1, 2)
            mixed = self.verifier.causal_conv1d_update(
                layer, x, self.conv[layer], self.weight[layer], self.bias[layer], "silu"
            )
            qkv = mixed.transpose(1, 2).view(B * T, C)
            q, k, v = qkv.split([H * K, H * K, HV * V], -1)
            q, k, v = q.view(1, B * T, H, K), k.view(1, B * T, H, K), v.view(1, B * T, HV, V)
            if not strided:
                q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
            outputs.append(self.verifier.target_verify(
                layer, A_log=self.a_log[layer], dt_bias=self.dt_bias[layer], q=q, k=k, v=v, a=self.a[layer], b=self.b[layer],
                ssm_states=self.temporal[layer], cache_indices=self.indices, query_start_loc=torch.arange(0, B * T + 1, T),
                cache_steps=T, retrieve_parent_token=None))  # fmt: skip
        return torch.stack(outputs)


def links():
    next_token, next_sibling = torch.full((B, T), -1), torch.full((B, T), -1)
    for row, tree in enumerate(TREES):
        for parent in range(T):
            children = [n for n in range(T) if tree.parents[n] == parent][::-1]  # any order will do
            if children:
                next_token[row, parent] = children[0]
            for one, other in zip(children, children[1:]):
                next_sibling[row, one] = other
    return {"retrieve_next_token": next_token, "retrieve_next_sibling": next_sibling}


def expected(engine, layer, row, path):
    """Output of the path's last node, the state and the window after it, in fp64."""
    slot = int(engine.indices[row])
    state = engine.temporal[layer, slot].double()
    window = engine.conv[layer, slot].double()
    for node in path:
        at = row * T + node
        window = torch.cat([window, engine.x[layer, at].double()[:, None]], 1)
        mixed = (window * engine.weight[layer].double()).sum(1) + engine.bias[layer].double()
        mixed, window = torch.nn.functional.silu(mixed), window[:, 1:]
        q, k, v = mixed.split([H * K, H * K, HV * V])
        q, k = (t.view(H, K) / (t.view(H, K).square().sum(-1, keepdim=True) + 1e-6).sqrt() for t in (q, k))
        q, k = q.repeat_interleave(HV // H, 0) * K**-0.5, k.repeat_interleave(HV // H, 0)
        g = -engine.a_log[layer].double().exp() * torch.nn.functional.softplus(
            engine.a[layer, at].double() + engine.dt_bias[layer].double()
        )
        beta = engine.b[layer, at].double().sigmoid()
        state = state * g.exp()[:, None, None]
        u = beta[:, None] * (v.view(HV, V) - (state @ k[:, :, None])[..., 0])
        state = state + u[:, :, None] * k[:, None, :]
        out = (state @ q[:, :, None])[..., 0]
    return out, state, window


def close(got, wanted):
    return torch.allclose(got.double(), wanted, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("form", ["links", "parents"])
@pytest.mark.parametrize("strided", [True, False], ids=["views", "copies"])
def test_target_verify_is_every_root_path(form, strided):
    engine = Engine()
    before = engine.temporal.clone(), engine.conv.clone()
    o = engine.step(form, strided)
    assert o.shape == (LAYERS, 1, B * T, HV, V)
    for layer in range(LAYERS):
        for row in (0, 2, 3):
            for node in range(T):
                assert close(o[layer, 0, row * T + node], expected(engine, layer, row, TREES[row].path(node))[0])
        assert not o[layer, 0, T : 2 * T].any(), "the padding request has zeros"
    assert torch.equal(engine.temporal, before[0]) and torch.equal(engine.conv, before[1])


def test_inputs_computed_in_place_are_not_copied():
    """An engine that projects into inputs(layer) gives the same, and the convolution's result lies where q, k, v are kept."""
    one, two = Engine(), Engine()
    two.verifier.begin(two.indices)
    for layer in range(LAYERS):
        two.verifier.inputs(layer).copy_(two.x[layer])
    two.x = [two.verifier.inputs(layer) for layer in range(LAYERS)]
    assert torch.equal(two.step(), one.step())
    x = two.x[1].view(B, T, C).transpose(1, 2)
    mixed = two.verifier.causal_conv1d_update(1, x, two.conv[1], two.weight[1], two.bias[1], "silu")
    kept = two.verifier._inputs[1], two.verifier._mixed[1]
    assert (x.data_ptr(), mixed.data_ptr()) == tuple(t.data_ptr() for t in kept)


def test_chains_need_no_tree():
    engine = Engine()
    o = engine.step("chain")
    assert close(o[1, 0, 3 * T + 6], expected(engine, 1, 3, range(7))[0])


def test_commit_of_all_layers_with_tracking():
    engine = Engine()
    engine.step()
    start = engine.temporal.clone(), engine.conv.clone()
    accepted = torch.tensor([9, 4, -1, 6])
    track = {"mamba_track_indices": torch.tensor([8, 1, 2, 3]), "mamba_steps_to_track": torch.tensor([0, 2, 3, -1])}
    wanted = {(layer, slot): expected(engine, layer, row, TREES[row].path(node))[1:]
              for layer in range(LAYERS) for slot, row, node in ((5, 0, 9), (7, 3, 6), (8, 0, 0))}  # fmt: skip
    engine.verifier.update_mamba_state_after_mtp_verify(accepted, **track, temporal=engine.temporal, conv=engine.conv)
    for layer in range(LAYERS):
        for slot in range(SLOTS):
            if (layer, slot) in wanted:
                state, window = wanted[layer, slot]
                assert close(engine.temporal[layer, slot], state) and close(engine.conv[layer, slot], window)
            else:
                assert torch.equal(engine.temporal[layer, slot], start[0][layer, slot]), (layer, slot)
                assert torch.equal(engine.conv[layer, slot], start[1][layer, slot]), (layer, slot)


def test_nothing_accepted_changes_no_bit():
    engine = Engine()
    engine.step()
    before = engine.temporal.clone(), engine.conv.clone()
    engine.verifier.update_mamba_state_after_mtp_verify(
        torch.tensor([-1] * B), temporal=engine.temporal, conv=engine.conv
    )
    assert torch.equal(engine.temporal, before[0]) and torch.equal(engine.conv, before[1])


def test_rounds():
    """Steps with new inputs carry on from what was committed."""
    engine = Engine()
    for seed in range(3):
        engine.draw()
        o = engine.step()
        node = 9 - seed
        wanted = [expected(engine, layer, 0, TREES[0].path(node)) for layer in range(LAYERS)]
        assert all(close(o[layer, 0, node], wanted[layer][0]) for layer in range(LAYERS))
        engine.verifier.update_mamba_state_after_mtp_verify(
            torch.full((B,), node), temporal=engine.temporal, conv=engine.conv
        )
        assert all(close(engine.temporal[layer, 5], wanted[layer][1]) for layer in range(LAYERS))


def test_memory_is_the_activations():
    verifier = TreeVerifier(layers=24, max_batch=1, draft_token_num=128, num_k_heads=16, num_v_heads=32, device="meta")
    snapshots = 24 * 128 * 32 * 128 * 128 * 4
    assert verifier.nbytes < snapshots / 60, (verifier.nbytes, snapshots)


def test_wrong_calls_say_what_was_expected():
    engine = Engine()
    with pytest.raises(RuntimeError, match="cache_indices: expected at most max_batch = 5 requests, got 6"):
        engine.verifier.begin(torch.zeros(6, dtype=torch.int32))
    with pytest.raises(
        RuntimeError, match=r"the trees: expected shape \[B, draft_token_num\] = \[4, 10\], got \[4, 7\]"
    ):
        engine.verifier.begin(engine.indices, retrieve_parent_token=torch.zeros(4, 7))
    engine.verifier.begin(engine.indices)
    with pytest.raises(RuntimeError, match=r"x: expected shape \[B, C, T\] = \[4, 128, 10\]"):
        engine.verifier.causal_conv1d_update(0, torch.zeros(4, 64, 10), engine.conv[0], engine.weight[0])
    with pytest.raises(RuntimeError, match=r"q: expected shape \[1, 40, 2, 16\]"):
        engine.verifier.target_verify(0, engine.a_log[0], engine.dt_bias[0], *[torch.zeros(1, 3, 2, 16)] * 3, engine.a[0], engine.b[0],
                                      ssm_states=engine.temporal[0], cache_indices=engine.indices)  # fmt: skip
    assert canopy_gdn.library_version()
