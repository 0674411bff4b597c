"""Activations in core operators."""

from __future__ import annotations

from typing import Any

from torchlike._decomp._table import aten, chosen, core, full, in_single, wrapped


@core("glu.default")
@in_single
def glu(self: Any, dim: int = -1) -> Any:
    """The first half, each element weighted by the second."""
    dim = wrapped(dim, self.dim())
    half = self.shape[dim] // 2
    first = aten.slice.Tensor(self, dim, 0, half)
    second = aten.slice.Tensor(self, dim, half, 2 * half)
    return aten.mul.Tensor(first, aten.sigmoid.default(second))


@core("silu.default")
@in_single
def silu(self: Any) -> Any:
    """x * sigmoid(x)."""
    return aten.mul.Tensor(self, aten.sigmoid.default(self))


@core("softplus.default")
@in_single
def softplus(self: Any, beta: Any = 1, threshold: Any = 20) -> Any:
    """The smooth relu, which is its argument above the threshold."""
    scaled = self if beta == 1 else aten.mul.Tensor(self, beta)
    smooth = aten.log1p.default(aten.exp.default(scaled))
    smooth = smooth if beta == 1 else aten.div.Tensor(smooth, beta)
    return aten.where.self(aten.gt.Scalar(scaled, threshold), self, smooth)


@core("mish.default")
@in_single
def mish(self: Any) -> Any:
    """x * tanh(softplus(x))."""
    return aten.mul.Tensor(self, aten.tanh.default(softplus(self)))


def _six(self: Any) -> Any:
    shifted = aten.add.Tensor(self, 3)
    return aten.clamp.default(aten.clamp.default(shifted, 0), None, 6)


@core("hardswish.default")
@in_single
def hardswish(self: Any) -> Any:
    """x * relu6(x + 3) / 6."""
    return aten.div.Tensor(aten.mul.Tensor(self, _six(self)), 6)


@core("hardsigmoid.default")
@in_single
def hardsigmoid(self: Any) -> Any:
    """relu6(x + 3) / 6."""
    return aten.div.Tensor(_six(self), 6)


@core("hardshrink.default")
def hardshrink(self: Any, lambd: Any = 0.5) -> Any:
    """Zero within the bounds."""
    return chosen(aten.le.Scalar(aten.abs.default(self), lambd), 0, self)


@core("softshrink.default")
@in_single
def softshrink(self: Any, lambd: Any = 0.5) -> Any:
    """Nearer to zero by the bound, and zero within it."""
    far = aten.gt.Scalar(aten.abs.default(self), lambd)
    moved = aten.sub.Tensor(self, aten.mul.Tensor(aten.sign.default(self), lambd))
    return aten.where.self(far, moved, aten.mul.Tensor(self, 0))


@core("celu.default")
@in_single
def celu(self: Any, alpha: Any = 1.0) -> Any:
    """Exponential below zero."""
    if alpha == 1:
        below = aten.expm1.default(self)
    else:
        below = aten.mul.Tensor(aten.expm1.default(aten.div.Tensor(self, alpha)), alpha)
    return aten.where.self(aten.gt.Scalar(self, 0), self, below)


@core("threshold.default")
def threshold(self: Any, threshold: Any, value: Any) -> Any:
    """The value up to the threshold."""
    return chosen(aten.le.Scalar(self, threshold), value, self)


@core("_prelu_kernel.default")
def prelu(self: Any, weight: Any) -> Any:
    """Weighted below zero."""
    return aten.where.self(aten.gt.Scalar(self, 0), self, aten.mul.Tensor(weight, self))


def log_of_sigmoid(x: Any) -> Any:
    """log(sigmoid(x)), by what cannot overflow."""
    least = aten.minimum.default(full([], 0, x), x)
    far = aten.exp.default(aten.neg.default(aten.abs.default(x)))
    return aten.sub.Tensor(least, aten.log1p.default(far))


@core("log_sigmoid_forward.default")
@in_single
def log_sigmoid(self: Any) -> Any:
    """The logarithm of sigmoid, and no buffer."""
    return log_of_sigmoid(self), full([0], 0, self)
