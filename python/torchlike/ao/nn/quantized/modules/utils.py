"""What layers of quantised weights have in common."""

from __future__ import annotations

import abc
from typing import Any

import torchlike as torch
from torchlike import nn
from torchlike.nn.modules.module import _addindent

_root: Any = torch
_SCHEMES_OF_ONE = (torch.per_tensor_symmetric, torch.per_tensor_affine)


class WeightedQuantizedModule(nn.Module, metaclass=abc.ABCMeta):
    """A layer with a quantised weight that a reference layer can become."""

    @classmethod
    @abc.abstractmethod
    def from_reference(cls, ref_module: Any, output_scale: float, output_zero_point: int) -> Any:
        """The layer of a reference layer."""
        raise NotImplementedError


def _clamped(qweight: Any, observer: Any, scale: Any, zero_point: Any) -> Any:
    """The weight within the observer's range, if that is smaller than the type's."""
    observer = getattr(observer, "activation_post_process", observer)
    ends = torch.iinfo(qweight.dtype)
    if observer.quant_min <= ends.min and observer.quant_max >= ends.max:
        return qweight
    integers = qweight.int_repr().clamp(observer.quant_min, observer.quant_max)
    if observer.qscheme in _SCHEMES_OF_ONE:
        return _root._make_per_tensor_quantized_tensor(integers, float(scale), int(zero_point))
    return _root._make_per_channel_quantized_tensor(integers, scale, zero_point, observer.ch_axis)


def _quantize_weight(float_wt: Any, observer: Any) -> Any:
    """A weight quantised by what an observer saw of it.

    Raises:
        ValueError: if the observer's scheme is none that weights have.
    """
    scale, zero_point = observer.calculate_qparams()
    scheme = observer.qscheme
    if scheme in _SCHEMES_OF_ONE:
        made = _root.quantize_per_tensor(float_wt, float(scale), int(zero_point), torch.qint8)
    elif scheme in (torch.per_channel_symmetric, torch.per_channel_affine):
        numbers = scale.to(torch.double), zero_point.to(torch.int64)
        made = _root.quantize_per_channel(float_wt, *numbers, observer.ch_axis, torch.qint8)
    elif scheme == torch.per_channel_affine_float_qparams:
        numbers = scale.to(torch.float), zero_point.to(torch.float)
        made = _root.quantize_per_channel(float_wt, *numbers, observer.ch_axis, observer.dtype)
        if observer.dtype == torch.quint4x2:  # two numbers a byte
            return made
    else:
        raise ValueError(f"Unexpected qscheme {scheme}")
    return _clamped(made, observer, scale, zero_point)


_SHAPES = {1: "(N, C, L)", 2: "(N, C, H, W)", 3: "(N, C, D, H, W)"}


def check_dimensions(input: Any, count: int) -> None:
    """Refuses what a convolution over so many dimensions is not given.

    Raises:
        ValueError: with what was expected.
    """
    if input.dim() != count + 2:
        raise ValueError(f"Input shape must be `{_SHAPES[count]}`!")


def _hide_packed_params_repr(self: Any, params: Any) -> str:
    """As modules are shown, without those that hold packed parameters."""
    extra = self.extra_repr()
    extra_lines = extra.split("\n") if extra else []
    child_lines = [
        f"({key}): " + _addindent(repr(module), 2)
        for key, module in self._modules.items()
        if not isinstance(module, params)
    ]
    lines = extra_lines + child_lines
    if len(extra_lines) == 1 and not child_lines:
        inside = extra_lines[0]
    else:
        inside = "\n  " + "\n  ".join(lines) + "\n" if lines else ""
    return f"{self._get_name()}({inside})"


def _ntuple_from_first(n: int) -> Any:
    """What makes `n` of the first of a list of another length, or of a number."""

    def parse(x: Any) -> tuple[Any, ...]:
        while isinstance(x, list | tuple) and len(x) != n:
            x = x[0]
        return tuple(x) if isinstance(x, list | tuple) else (x,) * n

    return parse


_pair_from_first = _ntuple_from_first(2)


class _Scaled(nn.Module):
    """A layer whose results have a scale and zero point, which are buffers."""

    scale: Any
    zero_point: Any

    def _scaled(self, scale: float, zero_point: int, device: Any = None, dtype: Any = None) -> None:
        self.register_buffer("scale", torch.tensor(scale, device=device, dtype=dtype))
        self.register_buffer("zero_point", torch.tensor(zero_point, device=device))


def _output(mod: Any) -> tuple[float, int]:
    """The scale and zero point that the observer of a layer's results gives."""
    scale, zero_point = mod.activation_post_process.calculate_qparams()
    return float(scale), int(zero_point)
