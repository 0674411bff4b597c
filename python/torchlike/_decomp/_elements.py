"""Functions of each element in core operators."""

from __future__ import annotations

import math
from typing import Any

import torchlike
from torchlike._decomp._table import aten, cast, chosen, core, full, in_single, number

_INF = float("inf")


@core("logit.default")
@in_single
def logit(self: Any, eps: float | None = None) -> Any:
    """log(x / (1 - x)), of what is kept within the bounds."""
    low, high = (-1.0, 2.0) if eps is None else (eps, 1 - eps)
    below, above = aten.lt.Scalar(self, low), aten.gt.Scalar(self, high)
    kept = chosen(below, low, chosen(above, high, self))
    return aten.log.default(aten.div.Tensor(kept, aten.sub.Tensor(1, kept)))


@core("nan_to_num.default")
def nan_to_num(
    self: Any, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Any:
    """Numbers in place of what is none, and of infinities."""
    if not self.is_floating_point():
        return NotImplemented if self.is_complex() else aten.clone.default(self)
    ends = torchlike.finfo(self.dtype)
    nan = 0.0 if nan is None else nan
    made = chosen(aten.isnan.default(self), nan, self)
    made = chosen(aten.eq.Scalar(self, -_INF), ends.min if neginf is None else neginf, made)
    return chosen(aten.eq.Scalar(self, _INF), ends.max if posinf is None else posinf, made)


@core("sgn.default")
def sgn(self: Any) -> Any:
    """The sign of real numbers."""
    return NotImplemented if self.is_complex() else aten.sign.default(self)


@core("sinc.default")
@in_single
def sinc(self: Any) -> Any:
    """sin(pi x) / (pi x)."""
    turned = aten.mul.Tensor(self, math.pi)
    none = aten.eq.Scalar(turned, 0)
    return chosen(none, 1, aten.div.Tensor(aten.sin.default(turned), turned))


@core("frac.default")
def frac(self: Any) -> Any:
    """What is left of the whole part."""
    return aten.sub.Tensor(self, aten.trunc.default(self))


@core("deg2rad.default")
@in_single
def deg2rad(self: Any) -> Any:
    """Degrees as radians."""
    return aten.mul.Tensor(self, math.pi / 180)


@core("rad2deg.default")
@in_single
def rad2deg(self: Any) -> Any:
    """Radians as degrees."""
    return aten.mul.Tensor(self, 180 / math.pi)


@core("isposinf.default")
def isposinf(self: Any) -> Any:
    """Whether it is infinity."""
    return aten.eq.Scalar(self, _INF)


@core("isneginf.default")
def isneginf(self: Any) -> Any:
    """Whether it is minus infinity."""
    return aten.eq.Scalar(self, -_INF)


def _times_log(self: Any, other: Any, log: Any) -> Any:
    none = aten.eq.Scalar(self, 0)
    made = chosen(none, 0, aten.mul.Tensor(self, log(other)))
    return chosen(aten.isnan.default(other), float("nan"), made)


@core("xlogy.Tensor")
@in_single
def xlogy(self: Any, other: Any) -> Any:
    """x * log(y), and 0 where x is."""
    return _times_log(self, other, aten.log.default)


@core("special_xlog1py.default")
@in_single
def xlog1py(self: Any, other: Any) -> Any:
    """x * log(1 + y), and 0 where x is."""
    return _times_log(self, other, aten.log1p.default)


@core("special_entr.default")
@in_single
def entr(self: Any) -> Any:
    """-x * log(x)."""
    none, some = aten.isnan.default(self), aten.gt.Scalar(self, 0)
    made = aten.mul.Tensor(aten.neg.default(self), aten.log.default(self))
    zero = aten.eq.Scalar(self, 0)
    below = chosen(zero, 0, number(-_INF, self))
    return aten.where.self(none, self, aten.where.self(some, made, below))


@core("special_log_ndtr.default")
@in_single
def log_ndtr(self: Any) -> Any:
    """The logarithm of the area under the normal distribution."""
    t = aten.mul.Tensor(self, math.sqrt(0.5))
    low = aten.lt.Scalar(self, 1.0)
    tail = aten.special_erfcx.default(aten.neg.default(t))
    small = aten.log.default(aten.div.Tensor(tail, 2))
    small = aten.sub.Tensor(small, aten.mul.Tensor(t, t))
    rest = aten.div.Tensor(aten.neg.default(aten.erfc.default(t)), 2)
    return aten.where.self(low, small, aten.log1p.default(rest))


def _ordered(self: Any, other: Any) -> tuple[Any, Any]:
    above = aten.ge.Tensor(self, other)
    return aten.where.self(above, self, other), aten.where.self(above, other, self)


@core("logaddexp.default")
@in_single
def logaddexp(self: Any, other: Any) -> Any:
    """log(exp(x) + exp(y))."""
    most, least = _ordered(self, other)
    finite = aten.ne.Scalar(aten.abs.default(self), _INF)
    finite = aten.mul.Tensor(aten.eq.Tensor(self, self), finite)
    same = aten.logical_and.default(aten.logical_not.default(finite), aten.eq.Tensor(self, other))
    rest = aten.log1p.default(aten.exp.default(aten.sub.Tensor(least, most)))
    return aten.where.self(same, self, aten.add.Tensor(most, rest))


@core("logaddexp2.default")
@in_single
def logaddexp2(self: Any, other: Any) -> Any:
    """log2(2 ** x + 2 ** y)."""
    most, least = _ordered(self, other)
    same = aten.logical_and.default(aten.isinf.default(self), aten.eq.Tensor(self, other))
    rest = aten.log1p.default(aten.exp2.default(aten.sub.Tensor(least, most)))
    rest = aten.mul.Tensor(rest, 1 / math.log(2))
    return aten.where.self(same, self, aten.add.Tensor(most, rest))


@core("mvlgamma.default")
@in_single
def mvlgamma(self: Any, p: int) -> Any:
    """The logarithm of the gamma function of several dimensions."""
    how = {"dtype": self.dtype, "device": self.device, "pin_memory": False}
    at = aten.mul.Tensor(aten.arange.start_step(1 - p, 1, **how), 0.5)
    made = aten.lgamma.default(aten.add.Tensor(aten.unsqueeze.default(self, -1), at))
    rest = math.log(math.pi) * p * (p - 1) / 4
    return aten.add.Tensor(aten.sum.dim_IntList(made, [-1]), rest)


@core("heaviside.default")
def heaviside(self: Any, values: Any) -> Any:
    """0 below zero, 1 above, and the value there."""
    how = {"layout": torchlike.strided, "device": self.device}
    zero = aten.eq.Scalar(self, 0)
    low = aten.logical_or.default(aten.lt.Scalar(self, 0), aten.isnan.default(self))
    one = aten.scalar_tensor.default(1, dtype=torchlike.int64, **how)
    none = aten.scalar_tensor.default(0, dtype=torchlike.int64, **how)
    return aten.where.self(zero, values, aten.where.self(low, none, one))


@core("floor_divide.default")
def floor_divide(self: Any, other: Any) -> Any:
    """The quotient, rounded down."""
    return aten.div.Tensor_mode(self, other, rounding_mode="floor")


@core("rsub.Tensor", "rsub.Scalar")
def rsub(self: Any, other: Any, alpha: Any = 1) -> Any:
    """Taken from the other one."""
    if alpha == 1:
        return aten.sub.Tensor(other, self)
    return aten.sub.Tensor(other, aten.mul.Tensor(self, alpha))


@core("clamp_min.default")
def clamp_min(self: Any, min: Any) -> Any:
    """Not below a number."""
    return aten.clamp.default(self, min)


@core("clamp_max.default")
def clamp_max(self: Any, max: Any) -> Any:
    """Not above a number."""
    return aten.clamp.default(self, None, max)


@core("clamp_min.Tensor")
def clamp_min_tensor(self: Any, min: Any) -> Any:
    """Not below another tensor."""
    return aten.clamp.Tensor(self, min)


@core("clamp_max.Tensor")
def clamp_max_tensor(self: Any, max: Any) -> Any:
    """Not above another tensor."""
    return aten.clamp.Tensor(self, None, max)


@core("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(self: Any, mask: Any, value: Any) -> Any:
    """The value where the mask is true."""
    if isinstance(value, torchlike.Tensor):
        value = cast(value, self.dtype)
    return chosen(mask, value, self)


@core("addcmul.default")
@in_single
def addcmul(self: Any, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Any:
    """self + value * tensor1 * tensor2."""
    return aten.add.Tensor(self, aten.mul.Tensor(aten.mul.Tensor(tensor1, value), tensor2))


@core("addcdiv.default")
@in_single
def addcdiv(self: Any, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Any:
    """self + value * tensor1 / tensor2."""
    return aten.add.Tensor(self, aten.div.Tensor(aten.mul.Tensor(tensor1, value), tensor2))


@core("lerp.Scalar", "lerp.Tensor")
@in_single
def lerp(self: Any, end: Any, weight: Any) -> Any:
    """Between two tensors, from the one that is nearer."""
    if not isinstance(weight, torchlike.Tensor):
        weight = full([], weight, self)
    near = aten.ge.Scalar(aten.abs.default(weight), 0.5)
    way = aten.where.self(near, aten.sub.Tensor(weight, 1), weight)
    start = aten.where.self(near, end, self)
    return aten.add.Tensor(aten.mul.Tensor(way, aten.sub.Tensor(end, self)), start)
