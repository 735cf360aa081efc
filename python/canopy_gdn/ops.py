"""The PyTorch operators torch.ops.canopy_gdn.*: loaded with this module, with what torch.compile needs to know of them.

canopy_gdn.plan, verify, commit and the convolution call them for tensors; engines that want the last microsecond can call torch.ops directly,
with the arguments in the order of the schemas (bindings/torch/operators.cpp).
"""

from __future__ import annotations

import torch
from torch import Tensor

from . import _abi


def _load() -> None:
    release = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    if release < (2, 10):
        raise _abi.CanopyError(
            f"torch = {torch.__version__}: expected 2.10 or newer (the stable ABI that the operators use); upgrade PyTorch, "
            "or pass NumPy arrays",
            "internal",
        )
    path = _abi.library_folder() / "libcanopy_torch.so"
    if not path.exists():
        raise _abi.CanopyError(
            f"libcanopy_torch.so: expected it in {_abi.library_folder()}, found none (the package was built where no PyTorch "
            "was found); install PyTorch first, then canopy-gdn again",
            "internal",
        )
    torch.ops.load_library(str(path))


_load()
_OPS = torch.ops.canopy_gdn
_plan, _plan_out = _OPS.plan.default, _OPS.plan_out.default
_verify, _verify_out, _commit = _OPS.verify.default, _OPS.verify_out.default, _OPS.commit.default
_conv, _conv_out, _conv_commit = _OPS.conv1d_tree.default, _OPS.conv1d_tree_out.default, _OPS.conv1d_commit.default


# ---- fakes: shapes and dtypes for torch.compile ---------------------------------------------------------------------------


def _one_device(model: str, tensor: Tensor, *others: object) -> None:
    """The fakes also run where a tensor of a call is on the meta device, which otherwise would give memory of nobody as the result."""
    for other in others:
        if isinstance(other, Tensor) and other.device != tensor.device:
            raise _abi.CanopyError(
                f"tensors of a call: expected all on {tensor.device}, the device of {model}, got one on {other.device}; move it with .to()"
            )


@torch.library.register_fake("canopy_gdn::plan")
def _(parents, next_token, next_sibling, count, slot_index, *, slots=0, padding_slot=-1):
    trees = parents if parents is not None else next_token
    rows = torch.sym_max(trees.shape[0], 1)
    return trees.new_empty((rows, _abi.plan_row_bytes(trees.device.type)), dtype=torch.uint8)


@torch.library.register_fake("canopy_gdn::verify")
def _(q, k, v, state, *inputs, out_dtype=None, **options):
    _one_device("q", q, k, v, state, *inputs, *options.values())
    return q.new_empty((*q.shape[:2], *v.shape[2:]), dtype=out_dtype or v.dtype)


@torch.library.register_fake("canopy_gdn::conv1d_tree")
def _(x, state, weight, *inputs, out_dtype=None, **options):
    _one_device("x", x, state, weight, *inputs, *options.values())
    return x.new_empty(x.shape, dtype=out_dtype or x.dtype)


# These write into tensors that they are given and return nothing: there is no shape to tell.
for _name, _model in (
    ("plan_out", None),
    ("verify_out", "q"),
    ("commit", "k"),
    ("conv1d_tree_out", "x"),
    ("conv1d_commit", "x"),
):
    torch.library.register_fake(
        f"canopy_gdn::{_name}",
        lambda *tensors, _model=_model, **options: _one_device(_model, *tensors, *options.values()) if _model else None,
    )


# ---- the calls of canopy_gdn for tensors ----------------------------------------------------------------------------------


def _refuse_grad(**tensors: Tensor | None) -> None:
    for name, tensor in tensors.items():
        if getattr(tensor, "requires_grad", False):  # what is no tensor is refused by the schema
            raise _abi.CanopyError(
                f"{name}: expected a tensor that does not require grad, got requires_grad=True; there is no backward pass: call "
                "it under torch.no_grad() or torch.inference_mode(), or detach()",
                "unsupported",
            )


# Only what differs from a default is passed on: see the schemas.
def _options(beta_doubled, l2norm, l2norm_eps, state_layout, padding_slot, implementation):
    options = {}
    if beta_doubled:
        options["beta_doubled"] = True
    if l2norm:
        options["l2norm"] = True
        if l2norm_eps != 1e-6:
            options["l2norm_eps"] = l2norm_eps
    if state_layout != "vk":
        options["state_layout"] = _abi.choose("state_layout", state_layout, _abi.STATE_LAYOUTS)
    if padding_slot != -1:
        options["padding_slot"] = padding_slot
    if implementation is not None:
        options["implementation"] = implementation
    return options


def plan(parents, next_token, next_sibling, count, slot_index, slots, padding_slot, out):
    options = {} if slot_index is None else {"slots": slots, "padding_slot": padding_slot}
    if out is None:
        return _plan(parents, next_token, next_sibling, count, slot_index, **options)
    _plan_out(parents, next_token, next_sibling, count, slot_index, out, **options)
    return out


def verify(q, k, v, state, slot_index, parents, next_token, next_sibling, count, plan, g, beta, a, b, a_log, dt_bias,
           beta_doubled, l2norm, l2norm_eps, scale, state_layout, padding_slot, precision, max_depth, implementation, o, out_dtype,
           stash_u, stash_l, row_status, workspace):  # fmt: skip
    if torch.is_grad_enabled():
        _refuse_grad(q=q, k=k, v=v, state=state, g=g, beta=beta, a=a, b=b, a_log=a_log, dt_bias=dt_bias, o=o)
    options = _options(beta_doubled, l2norm, l2norm_eps, state_layout, padding_slot, implementation)
    if scale is not None:
        options["scale"] = scale
    if precision != "default":
        options["precision"] = _abi.choose("precision", precision, _abi.PRECISIONS)
    if max_depth:
        options["max_depth"] = max_depth
    inputs = _inputs(parents, plan, g, beta, slot_index, count, a, b, a_log, dt_bias, next_token, next_sibling)
    extra = stash_u is not None or stash_l is not None or row_status is not None
    if o is None and workspace is None and not extra:
        if out_dtype is not None:
            options["out_dtype"] = out_dtype
        return _verify(q, k, v, state, *inputs, **options)
    if o is None:
        o = q.new_zeros((*q.shape[:2], *v.shape[2:]), dtype=out_dtype or v.dtype)
    if extra:
        options.update(stash_u=stash_u, stash_l=stash_l, row_status=row_status)
    _verify_out(q, k, v, state, o, workspace, *inputs, **options)
    return o


def _inputs(parents, plan, g, beta, slot_index, count, a, b, a_log, dt_bias, next_token, next_sibling):
    """As the schemas have them, without what is absent at the end."""
    if next_token is not None or next_sibling is not None:
        return parents, plan, g, beta, slot_index, count, a, b, a_log, dt_bias, next_token, next_sibling
    if a is not None or b is not None or a_log is not None or dt_bias is not None:
        return parents, plan, g, beta, slot_index, count, a, b, a_log, dt_bias
    if slot_index is not None or count is not None:
        return parents, plan, g, beta, slot_index, count
    return parents, plan, g, beta


def commit(k, v, leaf, state, slot_index, parents, next_token, next_sibling, count, plan, g, beta, a, b, a_log, dt_bias,
           beta_doubled, l2norm, l2norm_eps, state_layout, padding_slot, dst_slot, track_leaf, track_slot, stash_u, stash_l,
           method, implementation, row_status, workspace):  # fmt: skip
    if torch.is_grad_enabled():
        _refuse_grad(k=k, v=v, state=state, g=g, beta=beta, a=a, b=b, a_log=a_log, dt_bias=dt_bias)
    options = _options(beta_doubled, l2norm, l2norm_eps, state_layout, padding_slot, implementation)
    if method != "resolve":
        options["method"] = _abi.choose("method", method, _abi.METHODS)
    for name, tensor in (("dst_slot", dst_slot), ("track_leaf", track_leaf), ("track_slot", track_slot), ("stash_u", stash_u),
                         ("stash_l", stash_l), ("row_status", row_status)):  # fmt: skip
        if tensor is not None:
            options[name] = tensor
    _commit(k, v, leaf, state, workspace,
            *_inputs(parents, plan, g, beta, slot_index, count, a, b, a_log, dt_bias, next_token, next_sibling), **options)  # fmt: skip


def _conv_options(padding_slot, implementation, **tensors):
    options = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    if padding_slot != -1:
        options["padding_slot"] = padding_slot
    if implementation is not None:
        options["implementation"] = implementation
    return options


def conv1d_tree(x, state, weight, bias, silu, slot_index, parents, next_token, next_sibling, count, plan, padding_slot,
                implementation, o, out_dtype, row_status):  # fmt: skip
    if torch.is_grad_enabled():
        _refuse_grad(x=x, state=state, weight=weight, bias=bias, o=o)
    options = _conv_options(padding_slot, implementation, next_token=next_token, next_sibling=next_sibling)
    if silu:
        options["silu"] = True
    inputs = bias, parents, plan, slot_index, count
    if o is None and row_status is None:
        if out_dtype is not None:
            options["out_dtype"] = out_dtype
        return _conv(x, state, weight, *inputs, **options)
    if o is None:
        o = x.new_zeros(x.shape, dtype=out_dtype or x.dtype)
    if row_status is not None:
        options["row_status"] = row_status
    _conv_out(x, state, weight, o, *inputs, **options)
    return o


def conv1d_commit(x, leaf, state, slot_index, parents, next_token, next_sibling, count, plan, padding_slot, dst_slot, track_leaf,
                  track_slot, implementation, row_status):  # fmt: skip
    if torch.is_grad_enabled():
        _refuse_grad(x=x, state=state)
    options = _conv_options(padding_slot, implementation, next_token=next_token, next_sibling=next_sibling, dst_slot=dst_slot,
                            track_leaf=track_leaf, track_slot=track_slot, row_status=row_status)  # fmt: skip
    _conv_commit(x, leaf, state, parents, plan, slot_index, count, **options)
