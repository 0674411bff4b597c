"""Losses in core operators."""

from __future__ import annotations

from typing import Any

from torchlike._decomp._activations import log_of_sigmoid
from torchlike._decomp._table import aten, chosen, core, counting, full, in_single, reduced


@core("mse_loss.default")
@in_single
def mse_loss(self: Any, target: Any, reduction: int = 1) -> Any:
    """Squared differences."""
    return reduced(aten.pow.Tensor_Scalar(aten.sub.Tensor(self, target), 2), reduction)


@core("smooth_l1_loss.default")
@in_single
def smooth_l1_loss(self: Any, target: Any, reduction: int = 1, beta: float = 1.0) -> Any:
    """Squares near zero, differences beyond."""
    far = aten.abs.default(aten.sub.Tensor(self, target))
    if beta == 0:
        return reduced(far, reduction)
    near = aten.lt.Scalar(far, beta)
    square = aten.mul.Tensor(aten.pow.Tensor_Scalar(far, 2), 0.5)
    square = aten.div.Tensor(square, beta)
    return reduced(aten.where.self(near, square, aten.sub.Tensor(far, 0.5 * beta)), reduction)


@core("huber_loss.default")
@in_single
def huber_loss(self: Any, target: Any, reduction: int = 1, delta: float = 1.0) -> Any:
    """Squares near zero, differences beyond, with one slope where they meet."""
    far = aten.abs.default(aten.sub.Tensor(self, target))
    near = aten.lt.Scalar(far, delta)
    square = aten.mul.Tensor(aten.mul.Tensor(far, 0.5), far)
    line = aten.mul.Tensor(aten.sub.Tensor(far, 0.5 * delta), delta)
    return reduced(aten.where.self(near, square, line), reduction)


@core("soft_margin_loss.default")
@in_single
def soft_margin_loss(self: Any, target: Any, reduction: int = 1) -> Any:
    """log(1 + exp(-x * y))."""
    product = aten.mul.Tensor(aten.neg.default(self), target)
    return reduced(aten.log1p.default(aten.exp.default(product)), reduction)


@core("binary_cross_entropy.default")
@in_single
def binary_cross_entropy(self: Any, target: Any, weight: Any = None, reduction: int = 1) -> Any:
    """Of probabilities; no logarithm is below -100."""
    missed = aten.sub.Tensor(target, 1)
    log_missed = aten.log1p.default(aten.neg.default(self))
    log_missed = aten.maximum.default(log_missed, full([], -100, self))
    missed = aten.mul.Tensor(missed, log_missed)
    hit = aten.maximum.default(aten.log.default(self), full([], -100, self))
    loss = aten.sub.Tensor(missed, aten.mul.Tensor(target, hit))
    loss = loss if weight is None else aten.mul.Tensor(loss, weight)
    return reduced(loss, reduction)


@core("binary_cross_entropy_with_logits.default")
@in_single
def binary_cross_entropy_with_logits(
    self: Any, target: Any, weight: Any = None, pos_weight: Any = None, reduction: int = 1
) -> Any:
    """Of logits."""
    if pos_weight is None:
        missed = aten.mul.Tensor(aten.sub.Tensor(1, target), self)
        log = log_of_sigmoid(self)
    else:
        scaled = aten.mul.Tensor(aten.sub.Tensor(pos_weight, 1), target)
        scaled = aten.add.Tensor(scaled, 1)
        missed = aten.mul.Tensor(aten.sub.Tensor(1, target), self)
        log = aten.mul.Tensor(scaled, log_of_sigmoid(self))
    loss = aten.sub.Tensor(missed, log)
    loss = loss if weight is None else aten.mul.Tensor(loss, weight)
    return reduced(loss, reduction)


def _of_classes(x: Any, target: Any, weight: Any, reduction: int, ignored: int) -> tuple[Any, Any]:
    dim = 0 if x.dim() < 2 else 1
    weights = None
    if weight is not None:
        lies = [1] * x.dim()
        lies[dim] = weight.shape[0]
        weights = weight if x.dim() < 2 else aten.view.default(weight, lies)
        x = aten.mul.Tensor(x, weights)

    def counts() -> Any:
        return aten.ne.Scalar(target, ignored)

    at = aten.unsqueeze.default(chosen(counts(), target, 0), dim)

    def picked(of: Any) -> Any:
        return aten.squeeze.dims(aten.gather.default(of, dim, at), [dim])

    loss = aten.neg.default(picked(x))
    loss = chosen(counts(), loss, 0)
    none = full([], 0, x)
    if reduction == 0 and x.dim() > 1:
        return loss, none
    if weights is not None:
        each = picked(aten.expand.default(weights, list(x.shape)))
        total = aten.sum.dim_IntList(chosen(counts(), each, 0), [])
    else:
        total = aten.sum.dim_IntList(counts(), [])
        total = aten._to_copy.default(total, dtype=x.dtype, device=x.device)
    if reduction == 2:
        return aten.sum.dim_IntList(loss, []), total
    if reduction == 1:
        return aten.div.Tensor(aten.sum.dim_IntList(loss, []), total), total
    return loss, none


@core("nll_loss_forward.default")
def nll_loss(
    self: Any, target: Any, weight: Any, reduction: int, ignore_index: int
) -> tuple[Any, Any]:
    """What the right classes have, negated, and the sum of their weights."""
    return _of_classes(self, target, weight, reduction, ignore_index)


@core("nll_loss2d_forward.default")
def nll_loss2d(
    self: Any, target: Any, weight: Any, reduction: int, ignore_index: int
) -> tuple[Any, Any]:
    """The same of images."""
    return _of_classes(self, target, weight, reduction, ignore_index)


@core("multi_margin_loss.default")
@in_single
def multi_margin_loss(
    self: Any, target: Any, p: Any = 1, margin: Any = 1, weight: Any = None, reduction: int = 1
) -> Any:
    """How much other classes come near to the right one."""
    if self.dim() != 2:
        return NotImplemented
    count = self.shape[1]
    at = aten.unsqueeze.default(target, 1)
    right = aten.gather.default(self, 1, at)
    near = aten.add.Tensor(aten.sub.Tensor(margin, right), self)
    near = aten.clamp.default(near, 0)
    near = near if p == 1 else aten.mul.Tensor(near, near)
    if weight is not None:
        near = aten.mul.Tensor(near, aten.index.Tensor(weight, [at]))
    others = aten.ne.Tensor(counting(count, self.device), at)
    loss = chosen(others, near, 0)
    if reduction == 1:
        return aten.mean.default(loss)
    loss = aten.div.Tensor(aten.sum.dim_IntList(loss, [1]), count)
    return aten.sum.dim_IntList(loss, []) if reduction == 2 else loss
