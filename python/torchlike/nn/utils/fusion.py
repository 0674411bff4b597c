"""Batch normalisation in evaluation, taken into the weights of the layer before it."""

from __future__ import annotations

import copy
from typing import Any

import torchlike as torch
from torchlike.nn.parameter import Parameter

__all__ = [
    "fuse_conv_bn_eval",
    "fuse_conv_bn_weights",
    "fuse_linear_bn_eval",
    "fuse_linear_bn_weights",
]


def _fused(
    weight: Any, bias: Any, norm: tuple[Any, Any, float, Any, Any], features_at: int
) -> tuple[Parameter, Parameter]:
    """Weight and bias that also do what a normalisation (mean, variance, eps, weight, bias) does."""
    mean, variance, eps, gain, shift = norm
    kind = weight.dtype
    bias_kind = kind if bias is None else bias.dtype
    bias = torch.zeros_like(mean) if bias is None else bias
    gain = torch.ones_like(mean) if gain is None else gain
    shift = torch.zeros_like(mean) if shift is None else shift
    scale = gain * torch.rsqrt(variance + eps)
    shape = [1] * weight.ndim
    shape[features_at] = -1
    fused = (weight * scale.reshape(shape)).to(kind)
    fused_bias = ((bias - mean) * scale + shift).to(bias_kind)
    return Parameter(fused, weight.requires_grad), Parameter(fused_bias, bias.requires_grad)


def _norm(bn: Any) -> tuple[Any, Any, float, Any, Any]:
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError("Fusion needs running averages")
    return bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias


def _both_evaluate(layer: Any, bn: Any) -> None:
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval!")


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """A copy of ``conv`` that also normalises as ``bn`` does; both in evaluation."""
    _both_evaluate(conv, bn)
    fused = copy.deepcopy(conv)
    fused.weight, fused.bias = _fused(fused.weight, fused.bias, _norm(bn), int(transpose))
    return fused


def fuse_conv_bn_weights(
    conv_w: Any,
    conv_b: Any,
    bn_rm: Any,
    bn_rv: Any,
    bn_eps: float,
    bn_w: Any,
    bn_b: Any,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """Weight and bias of a convolution and the batch normalisation after it, in one."""
    return _fused(conv_w, conv_b, (bn_rm, bn_rv, bn_eps, bn_w, bn_b), int(transpose))


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """A copy of ``linear`` that also normalises as ``bn`` does; both in evaluation."""
    _both_evaluate(linear, bn)
    if bn.num_features not in (linear.out_features, 1):
        raise AssertionError(
            "To fuse, linear.out_features == bn.num_features or bn.num_features == 1"
        )
    fused = copy.deepcopy(linear)
    fused.weight, fused.bias = _fused(fused.weight, fused.bias, _norm(bn), 0)
    return fused


def fuse_linear_bn_weights(
    linear_w: Any, linear_b: Any, bn_rm: Any, bn_rv: Any, bn_eps: float, bn_w: Any, bn_b: Any
) -> tuple[Parameter, Parameter]:
    """Weight and bias of a linear layer and the batch normalisation after it, in one."""
    return _fused(linear_w, linear_b, (bn_rm, bn_rv, bn_eps, bn_w, bn_b), 0)
