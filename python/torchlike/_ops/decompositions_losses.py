"""Losses and distances that PyTorch makes of other operators."""

from __future__ import annotations

import math
from typing import Any

import torchlike
from torchlike import _C
from torchlike._ops import ops
from torchlike._ops.decompositions import of, reduced
from torchlike._ops.schema import REDUCTIONS

aten: Any = ops.aten
_N = "nn.functional."
_WORDS = tuple(REDUCTIONS)


def _word(reduction: Any) -> str:
    """A reduction by its name."""
    return reduction if isinstance(reduction, str) else _WORDS[reduction]


@of(_N + "cross_entropy")
def cross_entropy(
    input: Any,
    target: Any,
    weight: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    **_: Any,
) -> Any:
    """Logarithms, then the loss of the classes."""
    if target.is_floating_point() or label_smoothing or input.dim() > 2 or input.dim() == 0:
        return NotImplemented
    if target.shape != input.shape[:-1]:
        return NotImplemented
    logs = aten._log_softmax(input, input.dim() - 1, False)
    return nll_loss(logs, target, weight, ignore_index, reduction)


@of(_N + "nll_loss")
def nll_loss(
    input: Any,
    target: Any,
    weight: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    **_: Any,
) -> Any:
    """The first result of the operator that also gives the weights' sum."""
    fits = target.dim() == input.dim() - 1 and target.shape == input.shape[:-1]
    if input.dim() not in (1, 2) or not fits:
        return NotImplemented
    return aten.nll_loss_forward(input, target, weight, REDUCTIONS[reduction], ignore_index)[0]


@of(_N + "l1_loss")
def l1_loss(input: Any, target: Any, reduction: str = "mean", **_: Any) -> Any:
    """The mean or sum of absolute differences."""
    return reduced(aten.abs(aten.sub.Tensor(input, target)), reduction)


@of(_N + "kl_div")
def kl_div(
    input: Any, target: Any, reduction: str = "mean", log_target: bool = False, **_: Any
) -> Any:
    """target * (log target - input)."""
    if log_target or reduction == "batchmean":
        return NotImplemented
    product = aten.mul.Tensor(target, input)
    return reduced(aten.sub.Tensor(aten.xlogy.Tensor(target, target), product), reduction)


@of(_N + "poisson_nll_loss")
def poisson_nll_loss(
    input: Any,
    target: Any,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: str = "mean",
    **_: Any,
) -> Any:
    """exp(input) - target * input; of a rate, without its logarithm, input - target * log(input)."""
    if log_input:
        product = aten.mul.Tensor(target, input)
        loss = aten.sub.Tensor(aten.exp(input), product)
        del product
    else:
        logs = aten.log(aten.add.Scalar(input, eps))
        loss = aten.sub.Tensor(input, aten.mul.Tensor(target, logs))
    if full:
        # Stirling's approximation of the logarithm of a factorial
        square = aten.mul.Scalar(aten.log(aten.mul.Scalar(target, 2 * math.pi)), 0.5)
        terms = aten.mul.Tensor(target, aten.log(target))
        terms = aten.add.Tensor(aten.sub.Tensor(terms, target), square)
        terms = aten.masked_fill.Scalar(terms, aten.le.Scalar(target, 1), 0)
        loss = aten.add_.Tensor(loss, terms)
    return reduced(loss, reduction)


@of(_N + "binary_cross_entropy")
def binary_cross_entropy(
    input: Any, target: Any, weight: Any = None, reduction: Any = "mean", **_: Any
) -> Any:
    """The operator of weights for each element."""
    if weight is None:
        return NotImplemented
    weight = aten.expand(weight, list(torchlike.broadcast_shapes(target.shape, weight.shape)))
    return aten.binary_cross_entropy(input, target, weight, _WORDS.index(_word(reduction)))


@of(_N + "normalize")
def normalize(input: Any, p: float = 2.0, dim: Any = 1, eps: float = 1e-12, **_: Any) -> Any:
    """Divides by the norms, which are kept from zero."""
    norms = aten.linalg_vector_norm(input, p, [dim] if isinstance(dim, int) else dim, True)
    floor = aten.clamp_min(norms, eps)
    return aten.div.Tensor(input, aten.expand(floor, list(input.shape)))


@of(_N + "one_hot")
def one_hot(self: Any, num_classes: int = -1) -> Any:
    """Compares with every class; where there are values, writes ones instead, after a look at the classes."""
    meshed = hasattr(self, "device_mesh")
    if self.is_meta and (num_classes < 0 or self.dtype != _C.int64):
        return NotImplemented
    if self.is_meta and not meshed:
        classes = aten.arange(num_classes, dtype=self.dtype, layout=_C.strided, device=self.device)
        same = aten.eq.Tensor(aten.unsqueeze(self, -1), classes)
        return aten._to_copy(same, dtype=_C.int64)
    if self.dtype != _C.int64 or self.numel() == 0:
        return NotImplemented
    if meshed:
        if num_classes < 0:
            num_classes = aten._local_scalar_dense(aten.max(self)) + 1
        # The classes lie on the mesh as well.
        counted = aten.cumsum(aten.new_ones(self, [num_classes]), 0)
        same = aten.eq.Tensor(aten.unsqueeze(self, -1), aten.sub.Scalar(counted, 1))
        return aten._to_copy(same, dtype=_C.int64)
    least, most = (aten._local_scalar_dense(t) for t in aten.aminmax(self))
    count = most + 1 if num_classes == -1 else num_classes
    if least < 0 or most >= count or count < 1:
        return NotImplemented
    made = aten.zeros([*self.shape, count], dtype=_C.int64, layout=_C.strided, device=self.device)
    return aten.scatter_.value(made, -1, aten.unsqueeze(self, -1), 1)


def _beyond(margin: float, x: Any) -> Any:
    """How far elements are below a margin, which is brought to the shape first."""
    filled = aten.fill_.Scalar(aten.empty_like(x), margin)
    return aten.sub_.Tensor(filled, x)


def _where(target: Any, word: int, x: Any, zeros: Any) -> Any:
    """`x` where the target is not this number."""
    return aten.where.self(aten.ne.Scalar(target, word), x, zeros)


@of("hinge_embedding_loss", _N + "hinge_embedding_loss")
def hinge_embedding_loss(
    target: Any,
    self: Any = None,
    input: Any = None,
    margin: float = 1.0,
    reduction: Any = "mean",
    **_: Any,
) -> Any:
    """The distance, or how far it is below a margin."""
    x = input if self is None else self
    if not x.is_floating_point():
        return NotImplemented
    zeros = aten.zeros_like(x, memory_format=_C.contiguous_format)
    below = aten.clamp_min_(_beyond(margin, x), 0)
    below = _where(target, 1, below, zeros)
    alike = _where(target, -1, x, zeros)
    return reduced(aten.add.Tensor(below, alike), _word(reduction))


@of("margin_ranking_loss", _N + "margin_ranking_loss")
def margin_ranking_loss(
    input1: Any,
    input2: Any,
    target: Any,
    margin: float = 0.0,
    reduction: Any = "mean",
    **_: Any,
) -> Any:
    """How far the two are from being ranked as told."""
    if len({input1.dim(), input2.dim(), target.dim()}) > 1:
        return NotImplemented
    apart = aten.sub.Tensor(input1, input2)
    product = aten.mul.Tensor(aten.neg(target), apart)
    return reduced(aten.clamp_min_(aten.add.Scalar(product, margin), 0), _word(reduction))


@of("cosine_embedding_loss", _N + "cosine_embedding_loss")
def cosine_embedding_loss(
    input1: Any,
    input2: Any,
    target: Any,
    margin: float = 0.0,
    reduction: Any = "mean",
    **_: Any,
) -> Any:
    """One minus the cosine, or how far it is above a margin."""
    dims = (input1.dim(), input2.dim(), target.dim())
    if dims not in ((2, 2, 1), (1, 1, 0)) or input1.is_complex():
        return NotImplemented
    last = [target.dim()]

    def total(a: Any, b: Any) -> Any:
        return aten.sum.dim_IntList(aten.mul.Tensor(a, b), last)

    product = total(input1, input2)
    first = aten.add.Scalar(total(input1, input1), 1e-12)
    second = aten.add.Scalar(total(input2, input2), 1e-12)
    cosine = aten.div.Tensor(product, aten.sqrt_(aten.mul.Tensor(first, second)))
    zeros = aten.zeros_like(cosine, memory_format=_C.contiguous_format)
    unlike = _beyond(1.0, cosine)
    above = aten.clamp_min_(aten.sub.Scalar(cosine, margin), 0)
    alike = aten.where.self(aten.eq.Scalar(target, 1), unlike, zeros)
    other = aten.where.self(aten.eq.Scalar(target, -1), above, zeros)
    return reduced(aten.add.Tensor(alike, other), _word(reduction))


@of(_N + "multilabel_margin_loss")
def multilabel_margin_loss(input: Any, target: Any, reduction: Any = "mean", **_: Any) -> Any:
    """The first result of the operator that also says which classes are targets."""
    return aten.multilabel_margin_loss_forward(input, target, REDUCTIONS[reduction])[0]


@of("pairwise_distance")
def pairwise_distance(
    x1: Any, x2: Any, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Any:
    """The norm of the difference, moved off zero."""
    apart = aten.add.Scalar(aten.sub.Tensor(x1, x2), eps)
    last = max(x1.dim(), x2.dim()) - 1
    return aten.norm.ScalarOpt_dim(apart, p, [last], keepdim)


@of("cosine_similarity")
def cosine_similarity(x1: Any, x2: Any, dim: int = 1, eps: float = 1e-8) -> Any:
    """The product of what is divided by norms that are kept from zero."""
    if x1.dtype != x2.dtype or not x1.is_floating_point():
        return NotImplemented
    sizes = list(torchlike.broadcast_shapes(x1.shape, x2.shape))
    if x1.shape != x2.shape:
        x1, x2 = aten.expand(x1, sizes), aten.expand(x2, sizes)
    norms = [aten.clone(aten.linalg_vector_norm(x, 2, [dim], True)) for x in (x1, x2)]
    least = aten.scalar_tensor(eps, dtype=x1.dtype, device=x1.device)
    for norm in norms:
        aten.clamp_min_.Tensor(norm, least)
    first, second = (aten.div.Tensor(x, n) for x, n in zip((x1, x2), norms, strict=True))
    return aten.sum.dim_IntList(aten.mul.Tensor(first, second), [dim])


def _ctc_loss(
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: Any = "mean",
    zero_infinity: bool = False,
) -> Any:
    """The loss of each sequence, by tensors of lengths; the mean is one a label."""
    lengths = input_lengths, target_lengths
    each = aten._ctc_loss.Tensor(log_probs, targets, *lengths, blank, zero_infinity)[0]
    if zero_infinity:
        none = aten.zeros([], dtype=each.dtype, layout=each.layout, device=each.device)
        each = aten.where.self(aten.eq.Scalar(each, math.inf), none, each)
    if _word(reduction) == "mean":
        return aten.mean(aten.div.Tensor(each, aten.clamp_min(target_lengths, 1)))
    return reduced(each, _word(reduction))


# By their whole names: lengths that are numbers are another row's.
of("ctc_loss#", _N + "ctc_loss#")(_ctc_loss)


@of(_N + "gaussian_nll_loss")
def gaussian_nll_loss(
    input: Any,
    target: Any,
    var: Any,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Any:
    """Half of the logarithms of variances and of squared distances over them, after a look at the signs."""
    if not isinstance(var, _C.Tensor) or var.shape != input.shape:
        return NotImplemented
    if aten._local_scalar_dense(aten.any(aten.lt.Scalar(var, 0))):
        return NotImplemented
    var = aten.clamp_(aten.clone(var), eps)
    logs = aten.log(var)
    squares = aten.pow.Tensor_Scalar(aten.sub.Tensor(input, target), 2)
    each = aten.mul.Tensor(aten.add.Tensor(logs, aten.div.Tensor(squares, var)), 0.5)
    if full:
        each = aten.add_.Tensor(each, 0.5 * math.log(2 * math.pi))
    return reduced(each, reduction)


@of("_nn.mse", "_nn.smooth_l1", "_nn.huber")
def loss_of_each(
    self: Any, target: Any, beta: Any = None, delta: Any = None, name: str = ""
) -> Any:
    """The loss of each element, by the operator that can also reduce."""
    loss = getattr(aten, name.removeprefix("_nn.") + "_loss")
    return loss(self, target, 0, *(p for p in (beta, delta) if p is not None))


@of("_nn.bce")
def cross_entropy_of_each(self: Any, target: Any) -> Any:
    """The loss of each element, by the operator that can also reduce."""
    return aten.binary_cross_entropy(self, target, None, 0)
