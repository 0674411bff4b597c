"""What becomes of sequences of layers that are one layer when they are quantised."""

from __future__ import annotations

import itertools
from typing import Any

from torchlike import nn
from torchlike.ao.nn import intrinsic as nni
from torchlike.ao.quantization.utils import MatchAllNode, get_combined_dict
from torchlike.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

layers: Any = nn


__all__ = [
    "fuse_conv_bn",
    "fuse_conv_bn_relu",
    "fuse_convtranspose_bn",
    "fuse_linear_bn",
    "get_fuser_method",
    "get_fuser_method_new",
]


def _dimensions(conv: Any) -> int | None:
    return {layers.Conv1d: 1, layers.Conv2d: 2, layers.Conv3d: 3}.get(type(conv))


def _check_modes(words: str, *modules: Any) -> None:
    if len({m.training for m in modules}) > 1:
        raise AssertionError(f"{words} both must be in the same mode (train or eval).")


def _check_norm(bn: Any, channels: int, words: str, norm: str) -> None:
    if bn.num_features != channels:
        raise AssertionError(f"{words} must match num_features of {norm}")
    if not bn.affine:
        raise AssertionError(f"Only support fusing {norm} with affine set to True")
    if not bn.track_running_stats:
        raise AssertionError(f"Only support fusing {norm} with tracking_running_stats set to True")


def fuse_conv_bn(is_qat: bool, conv: Any, bn: Any) -> Any:
    """A convolution and batch norm as one convolution, or as a pair for training.

    Raises:
        AssertionError: if they do not fit.
        NotImplementedError: if there is no such pair.
    """
    _check_modes("Conv and BN", conv, bn)
    if not is_qat:
        return fuse_conv_bn_eval(conv, bn)
    _check_norm(bn, conv.out_channels, "Output channel of Conv2d", "BatchNorm2d")
    if (n := _dimensions(conv)) is None:
        raise NotImplementedError(f"Cannot fuse train modules: {(conv, bn)}")
    return getattr(nni, f"ConvBn{n}d")(conv, bn)


def fuse_conv_bn_relu(is_qat: bool, conv: Any, bn: Any, relu: Any) -> Any:
    """A convolution, batch norm and ReLU as a convolution and ReLU, or as three for training.

    Raises:
        AssertionError: if they do not fit.
        NotImplementedError: if there is no such sequence.
    """
    _check_modes("Conv and BN", conv, bn, relu)
    n = _dimensions(conv)
    if is_qat:
        _check_norm(bn, conv.out_channels, "Output channel of Conv2d", "BatchNorm2d")
        if n is None:
            raise NotImplementedError(f"Cannot fuse train modules: {(conv, bn, relu)}")
        return getattr(nni, f"ConvBnReLU{n}d")(conv, bn, relu)
    if n is None:
        raise NotImplementedError(f"Cannot fuse eval modules: {(conv, bn, relu)}")
    return getattr(nni, f"ConvReLU{n}d")(fuse_conv_bn_eval(conv, bn), relu)


def fuse_linear_bn(is_qat: bool, linear: Any, bn: Any) -> Any:
    """A linear layer and batch norm as one linear layer, or as a pair for training.

    Raises:
        AssertionError: if they do not fit.
    """
    _check_modes("Linear and BN", linear, bn)
    if not is_qat:
        return fuse_linear_bn_eval(linear, bn)
    _check_norm(bn, linear.out_features, "Output features of Linear", "BatchNorm1d")
    return nni.LinearBn1d(linear, bn)


def fuse_convtranspose_bn(is_qat: bool, convt: Any, bn: Any) -> Any:
    """A transposed convolution and batch norm as one transposed convolution.

    Raises:
        AssertionError: if they do not fit.
        Exception: for training.
    """
    _check_modes("ConvTranspose and BN", convt, bn)
    if is_qat:
        raise Exception("Fusing ConvTranspose+BatchNorm not yet supported in QAT.")
    return fuse_conv_bn_eval(convt, bn, transpose=True)


def _pair(sequential: Any) -> Any:
    def made(is_qat: bool, first: Any, second: Any) -> Any:
        return sequential(first, second)

    return made


_DEFAULT_OP_LIST_TO_FUSER_METHOD: dict[Any, Any] = {
    (layers.Conv1d, layers.BatchNorm1d): fuse_conv_bn,
    (layers.Conv1d, layers.BatchNorm1d, layers.ReLU): fuse_conv_bn_relu,
    (layers.Conv2d, layers.BatchNorm2d): fuse_conv_bn,
    (layers.Conv2d, layers.BatchNorm2d, layers.ReLU): fuse_conv_bn_relu,
    (layers.Conv3d, layers.BatchNorm3d): fuse_conv_bn,
    (layers.Conv3d, layers.BatchNorm3d, layers.ReLU): fuse_conv_bn_relu,
    (layers.Conv1d, layers.ReLU): _pair(nni.ConvReLU1d),
    (layers.Conv2d, layers.ReLU): _pair(nni.ConvReLU2d),
    (layers.Conv3d, layers.ReLU): _pair(nni.ConvReLU3d),
    (layers.Linear, layers.BatchNorm1d): fuse_linear_bn,
    (layers.Linear, layers.ReLU): _pair(nni.LinearReLU),
    (layers.BatchNorm2d, layers.ReLU): _pair(nni.BNReLU2d),
    (layers.BatchNorm3d, layers.ReLU): _pair(nni.BNReLU3d),
    (layers.ConvTranspose1d, layers.BatchNorm1d): fuse_convtranspose_bn,
    (layers.ConvTranspose2d, layers.BatchNorm2d): fuse_convtranspose_bn,
    (layers.ConvTranspose3d, layers.BatchNorm3d): fuse_convtranspose_bn,
}


def get_fuser_method(op_list: Any, additional_fuser_method_mapping: Any = None) -> Any:
    """What fuses layers of these classes.

    Raises:
        AssertionError: if nothing does.
    """
    known = get_combined_dict(
        _DEFAULT_OP_LIST_TO_FUSER_METHOD, additional_fuser_method_mapping or {}
    )
    if (found := known.get(op_list)) is None:
        raise AssertionError(f"did not find fuser method for: {op_list} ")
    return found


def _patterns(pattern: Any) -> list[Any]:
    """A pattern, and those with anything in places of it."""
    if isinstance(pattern, tuple | list):
        return list(itertools.product(*map(_patterns, pattern)))
    return [pattern, MatchAllNode]


def get_fuser_method_new(op_pattern: Any, fuser_method_mapping: Any) -> Any:
    """What fuses a pattern, or one with anything in places of it.

    Raises:
        AssertionError: if nothing does.
    """
    for pattern in _patterns(op_pattern):
        if (found := fuser_method_mapping.get(pattern)) is not None:
            return found
    raise AssertionError(f"did not find fuser method for: {op_pattern} ")
