"""Convolutions with quantised weights."""

from __future__ import annotations

from typing import Any, ClassVar

import torchlike as torch
from torchlike import nn
from torchlike._ops import ops
from torchlike.ao.nn.quantized.modules.utils import (
    WeightedQuantizedModule,
    _quantize_weight,
    check_dimensions,
)
from torchlike.nn.utils.fusion import fuse_conv_bn_weights

layers: Any = nn


__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]

_root: Any = torch
_STATE = (
    "in_channels",
    "out_channels",
    "kernel_size",
    "stride",
    "padding",
    "dilation",
    "transposed",
    "output_padding",
    "groups",
    "padding_mode",
)


def _spread(value: Any, count: int) -> Any:
    if isinstance(value, str):
        return value
    return tuple(value) if isinstance(value, list | tuple) else (value,) * count


def _float_kinds() -> Any:
    from torchlike.ao.nn import intrinsic

    return intrinsic


class _ConvNd(WeightedQuantizedModule):
    """A convolution of quantised tensors."""

    _COUNT: ClassVar[int] = 2
    _FLOAT_MODULE: ClassVar[Any] = None
    in_channels: int
    out_channels: int
    kernel_size: Any
    stride: Any
    padding: Any
    dilation: Any
    transposed: bool
    output_padding: Any
    groups: int
    padding_mode: str

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        moves = kernel_size, stride, padding, dilation, False, 0
        self._init(in_channels, out_channels, *moves, groups, bias, padding_mode, device, dtype)

    def _init(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        transposed: bool,
        output_padding: Any,
        groups: int,
        bias: bool,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if out_channels <= 0:
            raise ValueError(f"out_channels must be greater than 0, got {out_channels}")
        if in_channels % groups != 0:
            raise ValueError("in_channels must be divisible by groups")
        if out_channels % groups != 0:
            raise ValueError("out_channels must be divisible by groups")
        if padding_mode not in ("zeros", "reflect"):
            raise ValueError(
                f"'padding_mode' {padding_mode} is not supported by quantized convolution"
            )
        spread = [_spread(m, self._COUNT) for m in (kernel_size, stride, padding, dilation)]
        kernel_size = spread[0]
        moves = *spread, transposed, _spread(output_padding, self._COUNT)
        values = in_channels, out_channels, *moves, groups, padding_mode
        for name, value in zip(_STATE, values, strict=True):
            setattr(self, name, value)
        channels = [out_channels, in_channels // groups]
        if transposed:
            channels = [in_channels, out_channels // groups]
        zeros = torch.zeros([*channels, *kernel_size], dtype=torch.int8)
        weight = _root._make_per_tensor_quantized_tensor(zeros, 1.0, 0)
        self.set_weight_bias(weight, torch.zeros(out_channels) if bias else None)
        self.scale = 1.0
        self.zero_point = 0

    def _get_name(self) -> str:
        return f"QuantizedConv{'Transpose' * self.transposed}{self._COUNT}d"

    def set_weight_bias(self, w: Any, b: Any) -> None:
        """Packs a weight and a bias."""
        # What is not filled with zeros is filled before.
        padding = self.padding if self.padding_mode == "zeros" else (0,) * self._COUNT
        if self.transposed:
            pack = getattr(ops.quantized, f"conv_transpose{self._COUNT}d_prepack")
            moves = [self.stride, padding, self.output_padding, self.dilation]
        else:
            pack = getattr(ops.quantized, f"conv{self._COUNT}d_prepack")
            moves = [self.stride, padding, self.dilation]
        self._packed_params = pack(w, b, *map(list, moves), self.groups)

    def _weight_bias(self) -> Any:
        if self._COUNT > 1:
            return self._packed_params.unpack()
        return ops.quantized.conv1d_unpack(self._packed_params)

    def weight(self) -> Any:
        """The quantised weight."""
        return self._weight_bias()[0]

    def bias(self) -> Any:
        """The bias."""
        return self._weight_bias()[1]

    def _padded(self, input: Any) -> Any:
        """The input, with its margins where they are not zeros.

        Raises:
            ValueError: if it has another number of dimensions.
        """
        check_dimensions(input, self._COUNT)
        if self.padding_mode == "zeros":
            return input
        margins = [p for p in reversed(self.padding) for _ in range(2)]
        return nn.functional.pad(input, margins, mode=self.padding_mode)

    def _operator(self, end: str = "") -> Any:
        kind = "conv_transpose" if self.transposed else "conv"
        return getattr(ops.quantized, f"{kind}{self._COUNT}d{end}")

    def forward(self, input: Any) -> Any:
        """The convolution with the weight, and the bias."""
        input = self._padded(input)
        return self._operator()(input, self._packed_params, self.scale, self.zero_point)

    def extra_repr(self) -> str:
        """Sizes, how the window moves, and what the results are quantised by."""
        n = self._COUNT
        shown = (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"scale={self.scale}, zero_point={self.zero_point}"
        )
        for name, usual in (("padding", 0), ("dilation", 1), ("output_padding", 0)):
            if (value := getattr(self, name)) != (usual,) * n:
                shown += f", {name}={value}"
        if self.groups != 1:
            shown += f", groups={self.groups}"
        return shown if self.bias() is not None else shown + ", bias=False"

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "weight"], destination[prefix + "bias"] = self._weight_bias()
        destination[prefix + "scale"] = torch.tensor(self.scale)
        destination[prefix + "zero_point"] = torch.tensor(self.zero_point)

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, *lists: Any
    ) -> None:
        weight, bias = state_dict.pop(prefix + "weight"), state_dict.pop(prefix + "bias")
        self.set_weight_bias(weight, bias)
        self.scale = float(state_dict.pop(prefix + "scale"))
        self.zero_point = int(state_dict.pop(prefix + "zero_point"))
        super()._load_from_state_dict(state_dict, prefix, local_metadata, False, *lists)

    def __getstate__(self) -> Any:
        sizes = tuple(getattr(self, name) for name in _STATE)
        return (*sizes, *self._weight_bias(), self.scale, self.zero_point, self.training)

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, dict):
            return super().__setstate__(state)
        *sizes, weight, bias, scale, zero_point, training = state
        nn.Module.__init__(self)
        for name, value in zip(_STATE, sizes, strict=True):
            setattr(self, name, value)
        self.set_weight_bias(weight, bias)
        self.scale, self.zero_point, self.training = scale, zero_point, training
        return None

    def __deepcopy__(self, memo: Any) -> Any:
        made = type(self).__new__(type(self))
        made.__setstate__(self.__getstate__())
        memo[id(self)] = made
        return made

    def __copy__(self) -> Any:
        return self.__deepcopy__({})

    @classmethod
    def get_qconv(
        cls, mod: Any, activation_post_process: Any, weight_post_process: Any = None
    ) -> Any:
        """The layer of one of real numbers, by the observers of its results and its weight.

        Raises:
            AssertionError: if the weight is observed for another type.
        """
        observer = weight_post_process or mod.qconfig.weight()
        observer(mod.weight)
        if observer.dtype != torch.qint8:
            raise AssertionError(
                f"Weight observer must have a dtype of qint8, got {observer.dtype}"
            )
        made = cls(*cls._sizes(mod))
        made.set_weight_bias(_quantize_weight(mod.weight.float(), observer), mod.bias)
        if activation_post_process is not None and activation_post_process.dtype != torch.float:
            scale, zero_point = activation_post_process.calculate_qparams()
            made.scale, made.zero_point = float(scale), int(zero_point)
        return made

    @classmethod
    def _sizes(cls, mod: Any) -> tuple[Any, ...]:
        """The arguments for a layer like another."""
        first = (mod.in_channels, mod.out_channels, mod.kernel_size, mod.stride, mod.padding)
        return (*first, mod.dilation, mod.groups, mod.bias is not None, mod.padding_mode)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The layer of an observed one, or of one that was trained with rounding.

        Raises:
            AssertionError: if it is no such layer.
        """
        nni, n = _float_kinds(), cls._COUNT
        if hasattr(mod, "weight_fake_quant"):
            if type(mod) is getattr(nni.qat, f"ConvBn{n}d"):
                mod.weight, mod.bias = mod._folded(fuse_conv_bn_weights)
            if not hasattr(mod, "activation_post_process"):
                raise AssertionError("Input QAT module must have observer attached")
            return cls.get_qconv(mod, mod.activation_post_process, mod.weight_fake_quant)
        if type(mod) is not cls._FLOAT_MODULE:
            raise AssertionError(
                f"nnq.{cls.__name__}.from_float only works for {cls._FLOAT_MODULE.__name__} but got: "
                f"{type(mod).__name__}"
            )
        if not hasattr(mod, "qconfig"):
            raise AssertionError("Input float module must have qconfig defined.")
        observer = getattr(mod, "activation_post_process", None)
        if isinstance(mod, nni.modules.fused._FusedModule):
            mod = mod[0]
        return cls.get_qconv(mod, observer, mod.qconfig.weight())

    @classmethod
    def from_reference(cls, ref_module: Any, output_scale: float, output_zero_point: int) -> Any:
        """The layer of a reference layer."""
        made = cls(*cls._sizes(ref_module))
        made.set_weight_bias(ref_module.get_quantized_weight(), ref_module.bias)
        made.scale, made.zero_point = float(output_scale), int(output_zero_point)
        return made


class Conv1d(_ConvNd):
    """A convolution over quantised sequences."""

    _COUNT = 1
    _FLOAT_MODULE = layers.Conv1d


class Conv2d(_ConvNd):
    """A convolution over quantised images."""

    _COUNT = 2
    _FLOAT_MODULE = layers.Conv2d


class Conv3d(_ConvNd):
    """A convolution over quantised volumes."""

    _COUNT = 3
    _FLOAT_MODULE = layers.Conv3d

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        mode = args[8] if len(args) > 8 else kwargs.get("padding_mode")
        if mode == "reflect":
            raise AssertionError("Conv3d does not support reflection padding")
        super().__init__(*args, **kwargs)


class _ConvTransposeNd(_ConvNd):
    """A transposed convolution of quantised tensors."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        moves = kernel_size, stride, padding, dilation, True, output_padding
        self._init(in_channels, out_channels, *moves, groups, bias, padding_mode, device, dtype)

    @classmethod
    def _sizes(cls, mod: Any) -> tuple[Any, ...]:
        first = (mod.in_channels, mod.out_channels, mod.kernel_size, mod.stride, mod.padding)
        last = (mod.groups, mod.bias is not None, mod.dilation, mod.padding_mode)
        return (*first, mod.output_padding, *last)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The layer of an observed one.

        Raises:
            AssertionError: if it is no such layer.
        """
        if type(mod) is not cls._FLOAT_MODULE:
            raise AssertionError(
                f" nnq.{cls.__name__}.from_float only works for {cls._FLOAT_MODULE.__name__}"
            )
        if not hasattr(mod, "qconfig"):
            raise AssertionError("Input float module must have qconfig defined.")
        return cls.get_qconv(mod, getattr(mod, "activation_post_process", None))


class ConvTranspose1d(_ConvTransposeNd):
    """A transposed convolution over quantised sequences."""

    _COUNT = 1
    _FLOAT_MODULE = layers.ConvTranspose1d


class ConvTranspose2d(_ConvTransposeNd):
    """A transposed convolution over quantised images."""

    _COUNT = 2
    _FLOAT_MODULE = layers.ConvTranspose2d


class ConvTranspose3d(_ConvTransposeNd):
    """A transposed convolution over quantised volumes."""

    _COUNT = 3
    _FLOAT_MODULE = layers.ConvTranspose3d
