"""What is made like a tensor, filled, copied or drawn."""

from __future__ import annotations

from typing import Any

from torchlike.distributed.tensor._rules import Call, Cut, Fixed, P, R, Rows, follow, rule, uncut
from torchlike.distributed.tensor._rules.sizes import MADE
from torchlike.distributed.tensor.placement_types import Partial, Replicate, is_cut

rule(
    "contiguous detach detach_ alias fill_.Scalar zero_ empty_like lift_fresh resolve_conj resolve_neg"
)(follow)


@rule("view.dtype")
def _as_dtype(call: Call) -> Fixed:
    """Elements of another width make other lines."""
    spec = call.first
    alike = spec.dtype.itemsize == call.args[1].itemsize
    placements = (
        spec.placements if alike else uncut(spec.placements, [spec.ndim - 1], partial=False)
    )
    return Fixed([placements], [placements], ordered=spec.ordered)


@rule("fill.Scalar fill.Tensor fill_.Tensor")
def _filled(call: Call) -> Fixed:
    """Numbers that are the same everywhere."""
    spec, *value = call.specs
    kept = call.name == "fill_"
    made = [R if isinstance(p, Partial) and not kept else p for p in spec.placements]
    return Fixed(
        [made], [spec.placements, *[[R] * call.mesh.ndim for _ in value]], ordered=spec.ordered
    )


@rule("_to_copy")
def _to_copy(call: Call) -> Rows:
    spec, dtype = call.first, call.kwargs.get("dtype")
    rows: list[list[Any]] = [[Cut(d), Cut(d)] for d in range(spec.ndim)]
    ops = [r for r in Partial.ALL_REDUCE_OPS if not _must_reduce(r, spec.dtype, dtype)]
    return Rows(rows + [[P(r), P(r)] for r in ops], uneven=True)


def _must_reduce(op: str, old: Any, new: Any) -> bool:
    """Whether parts may not be cast before they are reduced."""
    if new is None or old == new:
        return False
    if str(new).endswith(".bool"):
        return True
    if op in ("max", "min"):
        return False
    return old.is_floating_point and not new.is_floating_point


@rule("ones_like zeros_like full_like rand_like randn_like randint_like")
def _like(call: Call) -> Fixed:
    spec = call.first
    made = [Replicate() if isinstance(p, Partial) else p for p in spec.placements]
    return Fixed([made], [spec.placements], ordered=spec.ordered)


@rule(*MADE)
def _new(call: Call) -> Fixed:
    spec = call.first
    alike = tuple(spec.shape) == tuple(call.args[1])
    kept = any(map(is_cut, spec.placements)) or call.name in ("new_empty", "new_empty_strided")
    made: Any = spec.placements if alike and kept else [R] * call.mesh.ndim
    return Fixed([made], [spec.placements], ordered=spec.ordered)


@rule(
    "normal_ uniform_ native_dropout bernoulli_.float bernoulli log_normal_ exponential_ geometric_ cauchy_"
)
def _random(call: Call) -> Rows:
    return Rows([[Cut(d)] * (call.results + 1) for d in range(call.first.ndim)], uneven=True)


@rule("multinomial")
def _multinomial(call: Call) -> Rows:
    return Rows([[Cut(d), Cut(d)] for d in range(call.first.ndim - 1)])


@rule("_fused_adam_ _fused_adamw_ _fused_sgd_ _fused_adagrad_")
def _fused(call: Call) -> Fixed:
    return Fixed([None], [s.placements for s in call.specs])
