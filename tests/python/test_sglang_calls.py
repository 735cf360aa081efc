"""The adapter at SGLang's call sites: the same keywords to the adapter and to a plain model of what SGLang computes."""

import pytest
from canopy_gdn import Tree
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
import sglang_model as model  # noqa: E402
from canopy_gdn.integrations.sglang import TreeVerifier  # noqa: E402

LAYERS, SLOTS, B, T, H, HV, K, V, W = 2, 9, 5, 8, 1, 2, 16, 16, 4
SPLIT = [H * K, H * K, HV * V]
C = sum(SPLIT)


def links(trees):
    """First children and next siblings in ascending order, as SGLang's tree builder makes them; int64."""
    next_token, next_sibling = torch.full((len(trees), T), -1), torch.full((len(trees), T), -1)
    for row, tree in enumerate(trees):
        for node in range(T - 1, 0, -1):
            parent = tree.parents[node]
            next_sibling[row, node] = next_token[row, parent]
            next_token[row, parent] = node
    return next_token, next_sibling


class Backend:
    """Pools, weights and inputs; a step through the model or through the adapter, with the keywords of SGLang's GDN backend."""

    def __init__(self, seed, padding):
        generator = torch.Generator().manual_seed(seed)
        normal = lambda *shape: torch.randn(*shape, generator=generator)
        self.temporal, self.conv = normal(LAYERS, SLOTS, HV, V, K), normal(LAYERS, SLOTS, C, W - 1)
        self.layers = [
            {"weight": normal(C, W) / 2, "bias": normal(C), "A_log": normal(HV), "dt_bias": normal(HV)}
            for _ in range(LAYERS)
        ]
        self.x, self.gates = normal(LAYERS, B * T, C), normal(LAYERS, B * T, 2 * HV)
        self.indices = torch.randperm(SLOTS, generator=generator)[:B].int()
        self.indices[B - padding :] = -1
        self.starts = torch.arange(0, B * T + 1, T, dtype=torch.int32)
        self.windows, self.snapshots = torch.zeros(LAYERS, B, T, C, W - 1), torch.zeros(LAYERS, B, T, HV, V, K)

    def pools(self):
        return {"temporal": self.temporal, "conv": self.conv}

    def step(self, convolve, verify, next_token=None, next_sibling=None):
        """Outputs [LAYERS, 1, B*T, HV, V]; `convolve` and `verify` take the layer's number first."""
        rows = torch.arange(B, dtype=torch.int32)
        parent_token = (
            None if next_token is None else torch.full_like(next_token, 2**40)
        )  # memory that nobody has written yet
        outputs = []
        for layer, weights in enumerate(self.layers):
            mixed = self.x[layer].view(B, T, C).transpose(1, 2)
            mixed = convolve(layer, mixed, self.conv[layer], weights["weight"], weights["bias"], "silu", conv_state_indices=self.indices[:B],
                             intermediate_conv_window=self.windows[layer], intermediate_state_indices=rows[:B],
                             retrieve_next_token=next_token, retrieve_next_sibling=next_sibling, retrieve_parent_token=parent_token)  # fmt: skip
            q, k, v = mixed.transpose(1, 2).view(B * T, C).split(SPLIT, -1)
            outputs.append(verify(layer, A_log=weights["A_log"], dt_bias=weights["dt_bias"], q=q.view(1, B * T, H, K), k=k.view(1, B * T, H, K),
                                  v=v.view(1, B * T, HV, V), a=self.gates[layer, :, HV:], b=self.gates[layer, :, :HV],
                                  ssm_states=self.temporal[layer], cache_indices=self.indices, query_start_loc=self.starts,
                                  intermediate_states_buffer=self.snapshots[layer], intermediate_state_indices=rows, cache_steps=T,
                                  retrieve_parent_token=parent_token, stable_rows=False))  # fmt: skip
        return torch.stack(outputs)


def adapter(**options):
    return TreeVerifier(layers=LAYERS, max_batch=B, draft_token_num=T, num_k_heads=H, num_v_heads=HV, head_k_dim=K, head_v_dim=V,
                        conv_width=W, device="cpu", **{"dtype": torch.float32} | options)  # fmt: skip


def through_model(backend, tree):
    return backend.step(
        lambda _, *a, **n: model.causal_conv1d_update(*a, **n), lambda _, **n: model.target_verify(**n), *tree
    )


def through_adapter(backend, verifier, tree):
    verifier.begin(backend.indices, *tree)
    return backend.step(verifier.causal_conv1d_update, verifier.target_verify, *tree)


def close(got, wanted):
    return torch.allclose(got, wanted, atol=1e-5, rtol=1e-5)


@settings(max_examples=15)
@given(st.integers(0, 2**31), st.booleans(), st.integers(0, 2), st.booleans())
def test_a_step_is_sglangs(seed, chains, padding, tracked):
    """A batch padded for a CUDA graph, committed without its padding; some requests accept nothing, some states are tracked."""
    theirs, mine = Backend(seed, padding), Backend(seed, padding)
    generator = torch.Generator().manual_seed(seed)
    draw = lambda low, high: torch.randint(low, high, (real,), generator=generator)
    real, tree = B - padding, ()
    if not chains:
        tree = links([Tree.family("random", T, seed=seed + row) for row in range(B)])
        for side in tree:
            side[real:] = 77  # what an earlier batch left in the captured buffers
    verifier = adapter()
    before = mine.temporal.clone(), mine.conv.clone()
    expected, got = through_model(theirs, tree), through_adapter(mine, verifier, tree)
    live = slice(0, real * T)
    assert close(got[:, :, live], expected[:, :, live]) and not got[:, :, real * T :].any()
    assert torch.equal(mine.temporal, before[0]) and torch.equal(mine.conv, before[1]), "only read"

    accepted = draw(-1, T)
    track = (None, None)
    if tracked:
        spare = [slot for slot in range(SLOTS) if slot not in mine.indices.tolist()]
        slots = torch.tensor((spare + [-1] * real)[:real])
        track = (slots, torch.where(accepted >= 0, draw(-1, T), -1))
    # Rows of nobody and of requests that accept nothing: SGLang's convolution has rolled their windows already, canopy's has not.
    rolled = [int(slot) for slot, node in zip(theirs.indices, accepted) if node < 0]
    model.update_mamba_state_after_mtp_verify(accepted, *track, cache_indices=theirs.indices, **theirs.pools(), intermediate_ssm=theirs.snapshots,
                                              intermediate_conv_window=theirs.windows)  # fmt: skip
    theirs.conv[:, rolled] = before[1][:, rolled]
    verifier.update_mamba_state_after_mtp_verify(last_correct_step_indices=accepted, mamba_track_indices=track[0], mamba_steps_to_track=track[1],
                                                 model=None, req_pool_indices=torch.arange(real), **mine.pools())  # fmt: skip
    assert torch.equal(mine.conv, theirs.conv), "windows are copies of inputs"
    assert close(mine.temporal, theirs.temporal)
    untouched = sorted(
        set(range(SLOTS))
        - {int(s) for s, n in zip(mine.indices, accepted) if n >= 0}
        - set(() if track[0] is None else track[0].tolist())
    )
    assert torch.equal(mine.temporal[:, untouched], before[0][:, untouched])


def test_a_longer_window_is_read_and_written_from_its_first_input():
    """SGLang's kernel takes conv_state [slots, C, state_len >= W-1] and counts W - 1 from the front; strides as they are."""
    plain, longer = Backend(0, 0), Backend(0, 0)
    memory = torch.full((LAYERS, SLOTS, W + 1, C), float("nan"))
    memory[:, :, : W - 1] = plain.conv.transpose(2, 3)
    longer.conv = memory.transpose(2, 3)
    one, two = adapter(), adapter()
    assert torch.equal(through_adapter(plain, one, ()), through_adapter(longer, two, ()))
    for verifier, backend in ((one, plain), (two, longer)):
        verifier.update_mamba_state_after_mtp_verify(torch.tensor([7, 4, -1, 1, 0]), **backend.pools())
    assert torch.equal(longer.conv[..., : W - 1], plain.conv) and torch.isnan(memory[:, :, W - 1 :]).all()


def test_parents_beside_links_are_not_read():
    """SGLang allocates retrieve_parent_token without filling it; its convolution does, later."""
    tree = links([Tree.family("random", T, seed=row) for row in range(B)])
    one, two = Backend(1, 0), Backend(1, 0)
    verifier = adapter()
    verifier.begin(two.indices, *tree, retrieve_parent_token=torch.full((B, T), 2**40))
    got = two.step(verifier.causal_conv1d_update, verifier.target_verify, *tree)
    assert torch.equal(got, through_adapter(one, adapter(), tree))


def test_weights_updated_in_place_count_at_once():
    """As reinforcement learning does: the same memory, new values, and no step of the version counter."""
    backend, verifier = Backend(2, 0), adapter()
    through_adapter(backend, verifier, ())
    verifier.update_mamba_state_after_mtp_verify(torch.full((B,), -1), temporal=backend.temporal)
    for weights in backend.layers:
        weights["A_log"].data.add_(0.5)
        weights["dt_bias"].data.mul_(-1)
    fresh = Backend(2, 0)
    fresh.layers = backend.layers
    assert torch.equal(through_adapter(backend, verifier, ()), through_adapter(fresh, adapter(), ()))
    leaf, snapshots = torch.full((B,), 5), fresh.snapshots
    through_model(fresh, ())
    verifier.update_mamba_state_after_mtp_verify(leaf, temporal=backend.temporal)
    assert close(backend.temporal[:, backend.indices.long()], snapshots[:, :, 5])


def test_queries_keys_and_values_from_elsewhere():
    """An engine with a convolution of its own: what is verified and committed is what target_verify was given."""
    mixed = torch.randn(LAYERS, B, T, C).transpose(2, 3)
    convolve = lambda layer, *_, **__: mixed[layer]
    theirs, mine, verifier = Backend(5, 0), Backend(5, 0), adapter()
    expected = theirs.step(convolve, lambda _, **n: model.target_verify(**n))
    verifier.begin(mine.indices)
    assert close(mine.step(convolve, verifier.target_verify), expected)
    verifier.update_mamba_state_after_mtp_verify(torch.full((B,), 6), temporal=mine.temporal)
    assert close(mine.temporal[:, mine.indices.long()], theirs.snapshots[:, :, 6])


def test_gates_of_another_type_are_kept_as_they_are():
    backend = Backend(3, 0)
    halves = adapter(dtype=torch.bfloat16, gate_dtype=torch.float32)
    backend.x = backend.x.bfloat16()
    through_adapter(backend, halves, ())
    assert torch.equal(halves._gates[1, :, :, 0].reshape(B * T, HV), backend.gates[1, :, HV:])


def wrong(change, *pieces):
    backend, verifier = Backend(4, 0), adapter()
    with pytest.raises(RuntimeError) as error:
        change(backend, verifier)
    for piece in pieces:
        assert piece in str(error.value), str(error.value)


def test_wrong_calls_say_what_was_expected():
    tree = links([Tree.family("random", T)] * B)
    x = lambda backend: backend.x[0].view(B, T, C).transpose(1, 2)

    def convolve(backend, verifier, **change):
        verifier.begin(backend.indices)
        call = {
            "layer_id": 0,
            "x": x(backend),
            "conv_state": backend.conv[0],
            "weight": backend.layers[0]["weight"],
        } | change
        verifier.causal_conv1d_update(**call)

    def commit(backend, verifier, *arguments):
        through_adapter(backend, verifier, ())
        verifier.update_mamba_state_after_mtp_verify(*arguments, temporal=backend.temporal)

    wrong(lambda b, v: convolve(b, v, activation="gelu"), "activation = 'gelu': expected 'silu'", "apply others")
    wrong(
        lambda b, v: convolve(b, v, x=x(b).bfloat16()),
        "x.dtype = torch.bfloat16: expected torch.float32, the dtype of the TreeVerifier",
        "dtype=torch.bfloat16",
    )
    wrong(
        lambda b, v: convolve(b, v, layer_id=2),
        "layer_id = 2: expected 0 <= layer_id < layers = 2",
        "count the GDN layers alone",
    )
    wrong(
        lambda b, v: v.causal_conv1d_update(0, x(b), b.conv[0], b.layers[0]["weight"]),
        "begin: expected it once in each step",
    )
    wrong(lambda b, v: v.begin(b.indices, tree[0]), "retrieve_next_token and retrieve_next_sibling together", "got one")
    wrong(
        lambda b, v: setattr(b, "gates", b.gates.bfloat16()) or through_adapter(b, v, ()),
        "a.dtype = torch.bfloat16: expected torch.float32, the gate_dtype",
    )
    wrong(
        lambda b, v: commit(b, v, torch.zeros(B + 1)),
        "last_correct_step_indices: expected at most the 5 requests of begin, got 6",
    )
    wrong(
        lambda b, v: commit(b, v, torch.zeros(B), torch.zeros(B)),
        "tracking: expected mamba_track_indices and mamba_steps_to_track together",
    )
    wrong(lambda b, v: v.begin(b.indices) or v.update_mamba_state_after_mtp_verify(torch.zeros(B), temporal=b.temporal),
          "layers: expected target_verify of all 2, got none of layer 0")  # fmt: skip
