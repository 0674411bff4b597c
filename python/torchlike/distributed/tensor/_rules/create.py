"""What is made like a tensor, filled, copied or drawn."""

from __future__ import annotations

from typing import Any

from torchlike.distributed.tensor._rules import Call, Cut, Fixed, P, R, Rows, follow, rule
from torchlike.distributed.tensor.placement_types import Partial, Replicate, is_cut

rule(
    "contiguous detach detach_ alias fill_.Scalar view.dtype zero_ empty_like lift_fresh resolve_conj resolve_neg"
)(follow)


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


# Which argument is the shape, and which the strides.
_SHAPES = {
    "new_empty": (1,),
    "new_full": (1,),
    "new_ones": (1,),
    "new_zeros": (1,),
    "new_empty_strided": (1, 2),
}


@rule(*_SHAPES)
def _new(call: Call) -> Fixed:
    spec = call.first
    alike = tuple(spec.shape) == tuple(call.args[1])
    kept = any(map(is_cut, spec.placements)) or call.name in ("new_empty", "new_empty_strided")
    made: Any = spec.placements if alike and kept else [R] * call.mesh.ndim
    return Fixed([made], [spec.placements], ordered=spec.ordered)


def sizes_in(name: str) -> tuple[int, ...]:
    """Where the arguments of an operator have the whole's shape, and strides, and have to have the piece's."""
    return _SHAPES.get(name, ())


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
