"""Operators whose pieces need more than the operator itself."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike._ops import modes
from torchlike._ops.schema import REDUCTIONS
from torchlike.distributed.tensor import _dispatch, _moves
from torchlike.distributed.tensor._spec import Spec, TensorMeta, contiguous
from torchlike.distributed.tensor.placement_types import Partial, Shard, _StridedShard

if TYPE_CHECKING:
    from torchlike._ops import OpOverload

aten: Any = torch.ops.aten


def into(func: OpOverload, outs: list[str], args: Any, kwargs: dict[str, Any]) -> Any:
    """The tensors that a call is told to write, which keep their placements, with its results.

    Raises:
        NotImplementedError: if a result has another shape than its tensor.
    """
    mesh = _dispatch._mesh_of(_dispatch.tensors_of((*args, *kwargs.values())))
    specs = _dispatch.mapped(
        (list(args), list(kwargs.values())), lambda t: _dispatch._spec_of(func, t, mesh)
    )
    _dispatch.result_of(func, specs[0], dict(zip(kwargs, specs[1], strict=True)))  # types must fit
    plain = func.without_writing
    assert plain is not None
    made = plain(*args, **{n: v for n, v in kwargs.items() if n not in outs})
    several = isinstance(made, list | tuple)
    for name, result in zip(outs, made if several else (made,), strict=True):
        out = kwargs[name]
        if result.shape != out.shape:
            raise NotImplementedError(f"{func}: a DTensor cannot take another shape in place")
        for piece, found in zip(out._locals, _dispatch._brought(result, out._spec), strict=True):
            piece.copy_(found)
        out._hold(out._locals)
    found = tuple(kwargs[name] for name in outs)
    return found if several else found[0]


def _same_size(func: OpOverload, args: Any, kwargs: Any) -> Any:
    return tuple(args[0].shape) == tuple(args[1].shape)


def _pinned(func: OpOverload, args: Any, kwargs: Any) -> Any:
    return args[0]._local_tensor.is_pinned()


def _as_strided(func: OpOverload, args: Any, kwargs: Any) -> Any:
    """Nothing changes, or it is refused: elements of other pieces would be needed.

    Raises:
        RuntimeError: for another size, other strides or another offset.
    """
    t, size, stride, *offset = args
    same = tuple(t.shape) == tuple(size) and tuple(t.stride()) == tuple(stride)
    if same and (not offset or offset[0] in (None, t.storage_offset())):
        return aten.alias.default(t)
    raise RuntimeError("as_strided not supported with DTensor")


def _item(func: OpOverload, args: Any, kwargs: Any) -> Any:
    spec = args[0]._spec
    piece = _moves.redistribute(args[0]._locals, spec, _dispatch.whole_spec(spec))[0]
    return func(piece)


def _equal(func: OpOverload, args: Any, kwargs: Any) -> Any:
    """All pieces have to be equal, on all ranks."""
    a, b = args
    if tuple(a.shape) != tuple(b.shape):
        return False
    decision = _dispatch.decide(func, args, kwargs)
    lhs, rhs = (_dispatch._brought(t, s) for t, s in zip(args, decision.inputs, strict=True))
    same = [func(x, y) for x, y in zip(lhs, rhs, strict=True)]
    mesh = decision.inputs[0].mesh
    if len(same) == mesh.size():
        return all(same)
    verdict = [torch.tensor(int(s), device=lhs[0].device) for s in same]
    for dim in range(mesh.ndim):
        verdict = _moves.all_reduce(verdict, mesh, dim, "min")
    return bool(verdict[0].item())


def _extreme(func: OpOverload, args: Any, kwargs: Any) -> Any:
    """The position of an extreme: each rank finds its own, and the values decide between them."""
    dim = args[1] if len(args) > 1 else kwargs.get("dim")
    keep = bool(args[2] if len(args) > 2 else kwargs.get("keepdim", False))
    spec = _dispatch.no_partial(args[0]._spec)
    pieces = _moves.redistribute(args[0]._locals, args[0]._spec, spec)
    out = _dispatch.fixed(func, args, kwargs).results[0]
    assert out is not None
    dim = None if dim is None else dim + spec.ndim if dim < 0 else dim
    if any(isinstance(p, _StridedShard) for p in spec.placements):
        raise NotImplementedError(f"{func} does not support _StridedShard!")
    cut = [
        i for i, p in enumerate(spec.placements) if isinstance(p, Shard) and dim in (None, p.dim)
    ]
    values, indices = _own_extremes(func, pieces, dim)
    if cut:
        indices = [_global(i, spec, s, dim) for s, i in enumerate(indices)]
        along = dim or 0
        for m in cut:
            values = _moves.all_gather(values, spec.mesh, m, along)
            indices = _moves.all_gather(indices, spec.mesh, m, along)
        winners = [func(v, along, True) for v in values]
        indices = [torch.gather(i, along, w) for i, w in zip(indices, winners, strict=True)]
    sizes = list(spec.shape)
    if dim is None:
        sizes = [1] * len(sizes) if keep else []
    elif sizes:
        sizes[dim : dim + 1] = [1] if keep else []
    shape = tuple(sizes)
    made = Spec(spec.mesh, out, TensorMeta(shape, contiguous(shape), torch.int64))
    parts = [i.reshape(s) for i, s in zip(indices, made.locals(), strict=True)]
    from torchlike.distributed.tensor._dtensor import DTensor

    return DTensor._of(parts, made)


def _own_extremes(func: OpOverload, pieces: Any, dim: int | None) -> tuple[list[Any], list[Any]]:
    best = torch.max if func._opname == "argmax" else torch.min
    if dim is None:
        found = [
            (best(p).unsqueeze(0), func(p).unsqueeze(0))
            if p.numel()
            else _nothing(p.reshape(0), 0, best)
            for p in pieces
        ]
        return [f[0] for f in found], [f[1] for f in found]
    found = [
        best(p, dim=dim, keepdim=True) if p.shape[dim] else _nothing(p, dim, best) for p in pieces
    ]
    return [f[0] for f in found], [f[1] for f in found]


def _nothing(piece: Any, dim: int, best: Any) -> tuple[Any, Any]:
    """The extreme of a piece that has no elements: a value that all others are chosen before."""
    shape = list(piece.shape)
    shape[dim] = 1
    info = torch.finfo if piece.dtype.is_floating_point else torch.iinfo
    limits = info(piece.dtype)
    worst = limits.min if best is torch.max else limits.max
    value = piece.new_full(shape, worst)
    return value, torch.zeros_like(value, dtype=torch.int64)


def _global(index: Any, spec: Spec, seat: int, dim: int | None) -> Any:
    """Where positions in a piece are in the whole."""
    local, offset = spec.mesh._seats[seat].local(list(spec.shape), spec.lies[0])
    if dim is not None:
        return index + offset[dim]
    made, rest = torch.zeros_like(index), index
    for i in range(len(local)):
        step = max(prod(local[i + 1 :]), 1)
        made = made + (rest // step + offset[i]) * prod(spec.shape[i + 1 :])
        rest = rest % step
    return made


def _checked(func: OpOverload, args: Any, kwargs: Any) -> None:
    """Every rank asks what all others were told of."""
    spec = args[0]._spec
    for piece in _moves.redistribute(args[0]._locals, spec, _dispatch.whole_spec(spec)):
        func(piece, *args[1:], **kwargs)


# What changes nothing where parts are put together.
_IDLE = {"sum": 0, "product": 1}


def _fill(func: OpOverload, args: Any, kwargs: Any) -> Any:
    """Parts of a sum are nothing, but for those of one rank."""
    t, value = args
    spec = t._spec
    idle = [
        i for i, p in enumerate(spec.placements) if isinstance(p, Partial) and p.reduce_op in _IDLE
    ]
    if not idle:
        return NotImplemented
    if _dispatch._is_ours(value):
        whole = _dispatch.whole_spec(value._spec)
        value = _moves.redistribute(value._locals, value._spec, whole)[0]
    for piece, rank in zip(t._locals, spec.mesh._here, strict=True):
        at = spec.mesh._position(rank)
        away = next((i for i in idle if at[i]), None)
        if away is None:
            func(piece, value)
        else:
            aten.fill_.Scalar(piece, _IDLE[spec.placements[away].reduce_op])
    return t


def _as_real(func: OpOverload, args: Any, kwargs: Any) -> Any:
    """Of pieces that are conjugated once somebody reads them, what they will be."""
    t = args[0]
    if not any(p.is_conj() for p in t._locals):
        return NotImplemented
    from torchlike.distributed.tensor._dtensor import DTensor

    return _dispatch.run(
        func, (DTensor._of([p.resolve_conj() for p in t._locals], t._spec),), kwargs
    )


def _mean_backward(func: OpOverload, args: Any, kwargs: Any) -> Any:
    """The gradient of a mean: pieces do not know over how many elements it is."""
    values = func.bind(args, kwargs)
    if values["reduction"] != REDUCTIONS["mean"]:
        return NotImplemented
    grad = aten.div.Scalar(values["grad_output"], max(values["self"].numel(), 1))
    return func(**{**values, "grad_output": grad, "reduction": REDUCTIONS["sum"]})


def _may_count_differently(mesh: Any, values: dict[str, Any]) -> bool:
    """Whether even pieces of targets may be of different weight: ranks of other processes cannot be looked at."""
    if values["weight"] is not None or mesh._world.backend not in ("local", "fake"):
        return True
    target = values["target"]
    pieces = getattr(target, "_locals", [target])
    with modes.without():
        return any(
            not p.is_meta and not hasattr(p, "fake_mode") and values["ignore_index"] in p
            for p in pieces
        )


def _mean_of_targets(func: OpOverload, args: Any, kwargs: Any) -> Any:
    """The mean loss of what is cut: over all that count on any rank, of which ranks have different numbers."""
    values = func.bind(args, kwargs)
    if values["reduction"] != REDUCTIONS["mean"]:
        return NotImplemented
    mesh = _dispatch._mesh_of(_dispatch.tensors_of(values.values()))
    if not _may_count_differently(mesh, values):
        return NotImplemented
    decision = _dispatch.decide(func, tuple(values.values()), {}, mesh)
    spec = decision.results[0]
    parts = prod(mesh.size(i) for i, p in enumerate(spec.placements) if p.is_partial())
    if parts == 1:
        return NotImplemented
    loss, total = _dispatch.run(
        func, tuple({**values, "reduction": REDUCTIONS["sum"]}.values()), {}
    )
    everywhere = _dispatch.whole_spec(total._spec)
    counts = _moves.redistribute(total._locals, total._spec, everywhere)
    means = [piece * parts / n for piece, n in zip(loss._locals, counts, strict=True)]
    from torchlike.distributed.tensor._dtensor import DTensor

    return DTensor._of(means, spec), DTensor._of(counts, everywhere)


def _copy(func: OpOverload, args: Any, kwargs: Any) -> Any:
    """A copy of a view; what the view may not bring together is."""
    view = getattr(getattr(aten, func._opname.removesuffix("_copy")), func._overloadname)
    try:
        made = view(*args, **kwargs)
    except RuntimeError:
        spec = args[0]._spec
        whole = args[0].redistribute(placements=_dispatch.whole_spec(spec).placements)
        made = view(whole, *args[1:], **kwargs)
    return (
        [aten.clone.default(t) for t in made]
        if isinstance(made, list)
        else aten.clone.default(made)
    )


_COPIES = "alias detach narrow permute squeeze t transpose unbind unfold unsqueeze view_as_complex view_as_real"
_MEANS = "binary_cross_entropy huber_loss mse_loss smooth_l1_loss soft_margin_loss"

HANDLERS = {
    "fill_": _fill,
    "view_as_real": _as_real,
    **{f"{name}_copy": _copy for name in _COPIES.split()},
    **{f"{name}_backward": _mean_backward for name in _MEANS.split()},
    "nll_loss_forward": _mean_of_targets,
    "nll_loss2d_forward": _mean_of_targets,
    "_linalg_check_errors": _checked,
    "is_same_size": _same_size,
    "is_pinned": _pinned,
    "as_strided": _as_strided,
    "_local_scalar_dense": _item,
    "equal": _equal,
    "argmax": _extreme,
    "argmin": _extreme,
}
