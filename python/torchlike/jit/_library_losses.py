"""Losses of `nn.functional` as TorchScript, in the words of PyTorch's operators."""

from __future__ import annotations

import torchlike
from torchlike import Tensor

aten = torchlike.ops.aten


def _reduction(reduction: str) -> int:
    if reduction == "none":
        return 0
    if reduction == "mean":
        return 1
    if reduction == "sum":
        return 2
    raise ValueError("not a valid value for reduction")


def _reduced(losses: Tensor, reduction: str) -> Tensor:
    if reduction == "none":
        return losses
    return aten.mean(losses) if reduction == "mean" else aten.sum(losses)


def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    if weight is not None:
        raise NotImplementedError("weighted losses are not written as TorchScript")
    return aten.mse_loss(input, target, _reduction(reduction))


def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    if weight is not None:
        raise NotImplementedError("weighted losses are not written as TorchScript")
    return aten.l1_loss(input, target, _reduction(reduction))


def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    return aten.smooth_l1_loss(input, target, _reduction(reduction), beta)


def huber_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:
    if weight is not None:
        raise NotImplementedError("weighted losses are not written as TorchScript")
    return aten.huber_loss(input, target, _reduction(reduction), delta)


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: None = None,
    ignore_index: int = -100,
    reduce: None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    return aten.cross_entropy_loss(
        input, target, weight, _reduction(reduction), ignore_index, label_smoothing
    )


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: None = None,
    ignore_index: int = -100,
    reduce: None = None,
    reduction: str = "mean",
) -> Tensor:
    return aten.nll_loss_nd(input, target, weight, _reduction(reduction), ignore_index)


def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
) -> Tensor:
    return aten.binary_cross_entropy(input, target, weight, _reduction(reduction))


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    return aten.binary_cross_entropy_with_logits(
        input, target, weight, pos_weight, _reduction(reduction)
    )


def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    if reduction == "batchmean":
        whole = aten.kl_div(input, target, 2, log_target=log_target)
        return whole / input.size(0) if input.dim() > 0 else whole
    return aten.kl_div(input, target, _reduction(reduction), log_target=log_target)


def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0.0,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
) -> Tensor:
    return aten.cosine_embedding_loss(input1, input2, target, margin, _reduction(reduction))


def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0.0,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
) -> Tensor:
    return aten.margin_ranking_loss(input1, input2, target, margin, _reduction(reduction))


def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
) -> Tensor:
    return aten.hinge_embedding_loss(input, target, margin, _reduction(reduction))


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
) -> Tensor:
    return aten.triplet_margin_loss(
        anchor, positive, negative, margin, p, eps, swap, _reduction(reduction)
    )


def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: None = None,
    eps: float = 1e-8,
    reduce: None = None,
    reduction: str = "mean",
) -> Tensor:
    return aten.poisson_nll_loss(input, target, log_input, full, eps, _reduction(reduction))


def soft_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
) -> Tensor:
    return aten.soft_margin_loss(input, target, _reduction(reduction))


def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
) -> Tensor:
    return aten.multi_margin_loss(input, target, p, margin, weight, _reduction(reduction))


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    return aten.ctc_loss(
        log_probs,
        targets,
        input_lengths,
        target_lengths,
        blank,
        _reduction(reduction),
        zero_infinity,
    )


def multilabel_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
) -> Tensor:
    return aten.multilabel_margin_loss(input, target, _reduction(reduction))


def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
) -> Tensor:
    yes = aten.mul(target, aten.log_sigmoid(input))
    no = aten.mul(aten.rsub(target, 1), aten.log_sigmoid(aten.neg(input)))
    losses = aten.neg(aten.add(yes, no))
    if weight is not None:
        losses = aten.mul(losses, weight)
    return _reduced(aten.div(aten.sum(losses, [-1]), input.size(input.dim() - 1)), reduction)
