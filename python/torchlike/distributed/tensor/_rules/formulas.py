"""Operators by what they are made of: their formulas run on tensors of a mesh of one rank, one placement at a time, and
what would have to be moved for it is refused."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike._ops import modes
from torchlike._ops.schema import REDUCTIONS
from torchlike.distributed.tensor._rules import Call, R, Rows, rule
from torchlike.distributed.tensor._spec import Spec
from torchlike.distributed.tensor.placement_types import (
    Partial,
    Placement,
    is_cut,
    moved,
)

if TYPE_CHECKING:
    from collections.abc import Callable

aten: Any = torch.ops.aten
_MEAN, _SUM = REDUCTIONS["mean"], REDUCTIONS["sum"]


def _reduced(x: Any, reduction: int) -> Any:
    if reduction == _MEAN:
        return aten.mean.default(x)
    return aten.sum.default(x) if reduction == _SUM else x


def _squares(a: Any, b: Any, reduction: int = _MEAN) -> Any:
    return _reduced(aten.pow.Tensor_Scalar(aten.sub.Tensor(a, b), 2), reduction)


def _mixed(a: Any, b: Any) -> Any:
    """Some operator on each element that keeps nothing that is partial."""
    return aten.atan2.default(a, b)


def _pointwise(a: Any, b: Any, reduction: int = _MEAN, *_: Any) -> Any:
    return _reduced(_mixed(a, b), reduction)


def _weighted(a: Any, b: Any, weight: Any = None, *rest: Any) -> Any:
    *more, reduction = rest or (_MEAN,)
    x = _mixed(a, b)
    for w in (weight, *more):
        if w is not None:
            x = _mixed(x, w)
    return _reduced(x, reduction)


def _glu(x: Any, dim: int = -1) -> Any:
    half = x.shape[dim] // 2
    a, b = (aten.slice.Tensor(x, dim, i * half, (i + 1) * half) for i in range(2))
    return aten.mul.Tensor(a, aten.sigmoid.default(b))


def _glu_backward(grad: Any, x: Any, dim: int = -1) -> Any:
    half = x.shape[dim] // 2
    a, b = (aten.slice.Tensor(x, dim, i * half, (i + 1) * half) for i in range(2))
    gate = aten.sigmoid.default(b)
    first = aten.mul.Tensor(gate, grad)
    slope = aten.mul.Tensor(aten.mul.Tensor(aten.rsub.Scalar(gate, 1), gate), a)
    return aten.cat.default([first, aten.mul.Tensor(slope, grad)], dim)


def _added(x: Any, product: Any, beta: Any, alpha: Any) -> Any:
    product = product if alpha == 1 else aten.mul.Scalar(product, alpha)
    if beta == 0:
        return product
    return aten.add.Tensor(x if beta == 1 else aten.mul.Scalar(x, beta), product)


def _addr(x: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    product = aten.mul.Tensor(aten.unsqueeze.default(a, 1), aten.unsqueeze.default(b, 0))
    return _added(x, product, beta, alpha)


def _addbmm(x: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _added(x, aten.sum.dim_IntList(aten.bmm.default(a, b), [0]), beta, alpha)


def _trilinear(
    a: Any, b: Any, c: Any, more_a: Any, more_b: Any, more_c: Any, summed: Any, unroll: int = 1
) -> Any:
    parts = []
    for t, dims in ((a, more_a), (b, more_b), (c, more_c)):
        for d in dims:
            t = aten.unsqueeze.default(t, d)
        parts.append(t)
    product = aten.mul.Tensor(aten.mul.Tensor(parts[0], parts[1]), parts[2])
    return aten.sum.dim_IntList(product, summed) if summed else product


def _renorm(x: Any, p: Any, dim: int, maxnorm: Any) -> Any:
    """Every line times something that depends on all of it, which is what placements follow from."""
    others = [d for d in range(x.ndim) if d != dim % x.ndim]
    norms = aten.linalg_vector_norm.default(x, p, others, True)
    return aten.mul.Tensor(x, aten.reciprocal.default(aten.add.Scalar(norms, 1e-7)))


def _mv(a: Any, b: Any) -> Any:
    return aten.sum.dim_IntList(aten.mul.Tensor(a, b), [1])


def _addmv(x: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _added(x, _mv(a, b), beta, alpha)


def _put(x: Any, dim: int, index: Any, source: Any, adds: bool) -> Any:
    places = [None] * (dim + x.ndim if dim < 0 else dim) + [index]
    return aten.index_put.default(x, places, source, adds)


def _index_add(x: Any, dim: int, index: Any, source: Any, **_: Any) -> Any:
    return _put(x, dim, index, source, True)


def _rot90(x: Any, k: int = 1, dims: Any = (0, 1)) -> Any:
    a, b = dims
    if k % 4 == 0:
        return aten.clone.default(x)
    if k % 4 == 2:
        return aten.flip.default(x, list(dims))
    return aten.transpose.int(aten.flip.default(x, [b if k % 4 == 1 else a]), a, b)


def _dist(a: Any, b: Any, p: float = 2) -> Any:
    return aten.linalg_vector_norm.default(aten.sub.Tensor(a, b), p)


def _aminmax(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
    dims = [] if dim is None else [dim]
    return aten.amin.default(x, dims, keepdim), aten.amax.default(x, dims, keepdim)


def _count(x: Any, dims: Any = None) -> Any:
    listed = [dims] if isinstance(dims, int) else list(dims or range(x.ndim))
    return aten.sum.dim_IntList(aten.ne.Scalar(x, 0), listed)


def _index_copy(x: Any, dim: int, index: Any, source: Any) -> Any:
    return _put(x, dim, index, source, False)


def _trace(x: Any) -> Any:
    return aten.sum.default(aten.diagonal.default(x))


def _rsub(a: Any, b: Any) -> Any:
    return aten.sub.Tensor(b, a)


def _isin(elements: Any, test: Any, **_: Any) -> Any:
    if not isinstance(elements, torch.Tensor):
        return aten.any.default(aten.eq.Scalar(test, elements))
    if not isinstance(test, torch.Tensor):
        return aten.eq.Scalar(elements, test)
    wide = aten.view.default(elements, [*elements.shape, *[1] * test.ndim])
    dims = list(range(elements.ndim, wide.ndim))
    return aten.any.dims(aten.eq.Tensor(wide, test), dims)


def _prelu(a: Any, weight: Any) -> Any:
    return aten.where.self(aten.gt.Scalar(a, 0), a, aten.mul.Tensor(weight, a))


def _take(a: Any, index: Any) -> Any:
    return aten.index.Tensor(aten.view.default(a, [-1]), [index])


_FORMULAS: dict[str, Callable[..., Any]] = {
    "mse_loss": _squares,
    "binary_cross_entropy": _weighted,
    "binary_cross_entropy_with_logits": _weighted,
    "huber_loss": _pointwise,
    "smooth_l1_loss": _pointwise,
    "soft_margin_loss": _pointwise,
    "glu": _glu,
    "glu_backward": _glu_backward,
    "addr": _addr,
    "addbmm": _addbmm,
    "_trilinear": _trilinear,
    "renorm": _renorm,
    "mv": _mv,
    "addmv": _addmv,
    "index_add": _index_add,
    "index_add_": _index_add,
    "rot90": _rot90,
    "dist": _dist,
    "aminmax": _aminmax,
    "count_nonzero": _count,
    "index_copy": _index_copy,
    "index_copy_": _index_copy,
    "trace": _trace,
    "rsub": _rsub,
    "isin": _isin,
    "_prelu_kernel": _prelu,
    "take": _take,
}


# Arguments by name on which it depends how results lie.
_NAMED = ("dim", "keepdim", "beta", "alpha")


def _candidates(specs: list[Spec]) -> list[list[Placement]]:
    """For each tensor, the placements that some tensor has, along any of its own dimensions.

    Those that cut come first: of calls that cost the same, PyTorch takes the one that computes least.
    """
    seen: list[Placement] = [R]
    for p in (p for s in specs for p in s.placements):
        if p not in seen:
            seen.append(p)
    found = []
    for spec in specs:
        kinds = [p for p in seen if is_cut(p)]
        cut = dict.fromkeys(moved(p, d) for d in range(spec.ndim) for p in kinds)
        found.append([*cut, *(p for p in seen if not is_cut(p))])
    return found


def _traced(mesh: Any, call: Call, placements: Any) -> list[Placement] | None:
    """How the results of the formula lie; None if it would have to move something."""
    from torchlike.distributed.tensor import _dispatch
    from torchlike.distributed.tensor._dtensor import DTensor

    found = iter(
        DTensor._of(
            [torch.empty(s.shape, dtype=s.dtype, device="meta")], Spec(mesh, (p,), s.tensor_meta)
        )
        for p, s in zip(placements, call.specs, strict=True)
    )

    def filled(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [filled(v) for v in value]
        return next(found) if isinstance(value, Spec) else value

    args = [filled(a) for a in call.args]
    named = {n: filled(v) for n, v in call.kwargs.items() if n in _NAMED}
    try:
        with modes.without(), torch.no_grad(), _dispatch.in_place():
            made = _FORMULAS[call.name](*args, **named)
    except (_dispatch.Moves, RuntimeError):
        return None
    return [t._spec.placements[0] for t in (made if isinstance(made, tuple) else (made,))]


@rule(*_FORMULAS)
def _formula(call: Call) -> Rows:
    from torchlike.distributed.device_mesh import DeviceMesh

    mesh = DeviceMesh(call.mesh.device_type, [call.mesh._rank], _rank=call.mesh._rank)
    rows: list[list[Any]] = []
    for placements in product(*_candidates(call.specs)):
        made = _traced(mesh, call, placements)
        if made is not None:
            rows.append([*made, *placements])
    # A mean of means is the mean where all parts are of one size.
    means = [row for row in rows if _averages(row[: -len(call.specs)]) and any(map(is_cut, row))]
    return Rows(rows, even=[row for row in rows if row not in means] if means else None)


def _averages(results: list[Placement]) -> bool:
    return any(isinstance(p, Partial) and p.reduce_op == "avg" for p in results)
