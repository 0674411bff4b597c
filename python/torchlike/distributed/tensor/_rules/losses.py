"""Losses, by what they are made of: their formulas run on placements, one dimension of a mesh at a time."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

from torchlike.distributed.tensor._rules import Call, Fixed, R, Rows, filled, rule, rule_of
from torchlike.distributed.tensor._spec import Spec, TensorMeta, contiguous
from torchlike.distributed.tensor.placement_types import Placement, is_cut, moved

if TYPE_CHECKING:
    from collections.abc import Callable

_MEAN, _SUM = 1, 2


class _Tracer:
    """Placements along one dimension of a mesh, through the operators of a formula."""

    def __init__(self, placement: Placement, shape: tuple[int, ...], dtype: Any) -> None:
        self.placement, self.shape, self.dtype = placement, shape, dtype

    def _spec(self, mesh: Any) -> Spec:
        meta = TensorMeta(self.shape, contiguous(self.shape), self.dtype)
        return Spec(mesh, (self.placement,), meta)


class _Refused(Exception):
    """The formula would have to move data."""


def apply(mesh: Any, name: str, overload: str, *args: Any, shape: Any = None, **kwargs: Any) -> _Tracer:
    """The result of an operator, if its rule leaves the operands where they are."""
    given = [a for a in args if isinstance(a, _Tracer)]
    specs = [a._spec(mesh) for a in given]
    found = iter(specs)
    call = Call(name, overload, tuple(next(found) if isinstance(a, _Tracer) else a for a in args), kwargs, 1)
    said = rule_of(name, overload)
    assert said is not None
    made = said(call)
    now = [a.placement for a in given]
    if isinstance(made, Fixed):
        if [p[0] for p in made.inputs] != now or made.results[0] is None:
            raise _Refused
        out = made.results[0][0]
    else:
        rows = filled(made.rows, specs, 1 + len(given))
        fit = next((r for r in rows if list(r[1:]) == now), None)
        if fit is None:
            raise _Refused
        out = fit[0]
    return _Tracer(out, given[0].shape if shape is None else shape, given[0].dtype)


def _reduced(mesh: Any, x: _Tracer, reduction: int) -> _Tracer:
    if reduction not in (_MEAN, _SUM):
        return x
    return apply(mesh, "mean" if reduction == _MEAN else "sum", "default", x, shape=())


def _squares(mesh: Any, a: Any, b: Any, reduction: int = _MEAN) -> _Tracer:
    return _reduced(mesh, apply(mesh, "pow", "Tensor_Scalar", apply(mesh, "sub", "Tensor", a, b), 2), reduction)


def _pointwise(mesh: Any, a: Any, b: Any, reduction: int = _MEAN, *_: Any) -> _Tracer:
    """A loss whose terms are no sums of what is partial."""
    return _reduced(mesh, apply(mesh, "atan2", "default", a, b), reduction)


def _weighted(mesh: Any, a: Any, b: Any, weight: Any = None, *rest: Any) -> _Tracer:
    *more, reduction = rest or (_MEAN,)
    x = apply(mesh, "atan2", "default", a, b)
    for w in (weight, *more):
        if isinstance(w, _Tracer):
            x = apply(mesh, "atan2", "default", x, w)
    return _reduced(mesh, x, reduction)


_FORMULAS: dict[str, Callable[..., _Tracer]] = {
    "mse_loss": _squares,
    "binary_cross_entropy": _weighted,
    "binary_cross_entropy_with_logits": _weighted,
    "huber_loss": _pointwise,
    "smooth_l1_loss": _pointwise,
    "soft_margin_loss": _pointwise,
}


def _candidates(specs: list[Spec]) -> list[list[Placement]]:
    """For each tensor, the placements that some tensor has, along any of its own dimensions."""
    seen: list[Placement] = [R]
    for p in (p for s in specs for p in s.placements):
        if p not in seen:
            seen.append(p)
    found = []
    for spec in specs:
        options = [p for p in seen if not is_cut(p)]
        kinds = [p for p in seen if is_cut(p)]
        options += list(dict.fromkeys(moved(p, d) for p in kinds for d in range(spec.ndim)))
        found.append(options)
    return found


@rule(*_FORMULAS)
def _formula(call: Call) -> Rows:
    from torchlike.distributed.device_mesh import DeviceMesh

    mesh = DeviceMesh(call.mesh.device_type, [call.mesh._rank], _rank=call.mesh._rank)
    rows: list[list[Any]] = []
    for placements in product(*_candidates(call.specs)):
        found = iter(
            _Tracer(p, s.shape, s.dtype) for p, s in zip(placements, call.specs, strict=True)
        )
        args = [next(found) if isinstance(a, Spec) else a for a in call.args]
        try:
            out = _FORMULAS[call.name](mesh, *args)
        except _Refused:
            continue
        rows.append([out.placement, *placements])
    return Rows(rows)



