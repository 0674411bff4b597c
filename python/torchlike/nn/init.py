"""Initialisers: fill a tensor in place, with PyTorch's bits."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike._function import overridable

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "calculate_gain",
    "constant",
    "constant_",
    "dirac",
    "dirac_",
    "eye",
    "eye_",
    "kaiming_normal",
    "kaiming_normal_",
    "kaiming_uniform",
    "kaiming_uniform_",
    "normal",
    "normal_",
    "ones_",
    "orthogonal",
    "orthogonal_",
    "sparse",
    "sparse_",
    "trunc_normal_",
    "uniform",
    "uniform_",
    "xavier_normal",
    "xavier_normal_",
    "xavier_uniform",
    "xavier_uniform_",
    "zeros_",
]

_PLAIN = frozenset(
    ["linear", "sigmoid"]
    + [f"conv{n}d" for n in (1, 2, 3)]
    + [f"conv_transpose{n}d" for n in (1, 2, 3)]
)
_SQRT3 = math.sqrt(3.0)


def _valueless(tensor: Any) -> bool:
    """True for a meta tensor without a source: filling it by looking at values is impossible, and not needed."""
    return tensor.is_meta and tensor.source is None


def _warn(text: str) -> None:
    import warnings

    warnings.warn(text, stacklevel=3)


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor by which a nonlinearity wants weights to be larger."""
    if nonlinearity in _PLAIN:
        return 1
    if nonlinearity == "tanh":
        return 5.0 / 3
    if nonlinearity == "relu":
        return math.sqrt(2.0)
    if nonlinearity == "leaky_relu":
        if param is None:
            slope: float = 0.01
        elif isinstance(param, (int, float)) and not isinstance(param, bool):
            slope = param
        else:
            raise ValueError(f"negative_slope {param} not a valid number")
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity == "selu":
        return 3.0 / 4
    raise ValueError(f"Unsupported nonlinearity {nonlinearity}")


def _no_grad_uniform_(tensor: Any, a: float, b: float, generator: Any = None) -> Any:
    with torch.no_grad():
        return tensor.uniform_(a, b, generator=generator)


def _no_grad_normal_(tensor: Any, mean: float, std: float, generator: Any = None) -> Any:
    with torch.no_grad():
        return tensor.normal_(mean, std, generator=generator)


def _no_grad_fill_(tensor: Any, val: float) -> Any:
    with torch.no_grad():
        return tensor.fill_(val)


def _no_grad_zero_(tensor: Any) -> Any:
    with torch.no_grad():
        return tensor.zero_()


def _mass_below(x: float) -> float:
    return (1.0 + math.erf(x / math.sqrt(2.0))) / 2.0


def _no_grad_trunc_normal_(
    tensor: Any, mean: float, std: float, a: float, b: float, generator: Any = None
) -> Any:
    if _valueless(tensor):
        return tensor
    if mean < a - 2 * std or mean > b + 2 * std:
        _warn(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_. "
            "The distribution of values may be incorrect."
        )
    with torch.no_grad():
        inside = _mass_below((b - mean) / std) - _mass_below((a - mean) / std)
        if inside > 0.3:
            return _redraw_outside(tensor, mean, std, a, b, generator)
        return _accept_by_density(tensor, mean, std, a, b, generator)


def _redraw_outside(
    tensor: Any, mean: float, std: float, a: float, b: float, generator: Any
) -> Any:
    """Normal draws of the whole tensor until no element is outside of the bounds."""
    low = tensor.new_tensor(a, device="cpu").item()
    high = tensor.new_tensor(b, device="cpu").item()
    tensor.normal_(mean, std, generator=generator)
    outside = (tensor < low) | (tensor > high)
    if not outside.any():
        return tensor
    values = tensor
    while True:
        again = torch.empty_like(values).normal_(mean, std, generator=generator)
        values = torch.where(outside, again, values)
        outside = (values < low) | (values > high)
        if not outside.any():
            return tensor.copy_(values)


def _accept_by_density(
    tensor: Any, mean: float, std: float, a: float, b: float, generator: Any
) -> Any:
    """Uniform draws of the whole tensor, each kept with the normal density's probability."""
    peak = -0.5 * ((max(a, min(mean, b)) - mean) / std) ** 2
    chance = torch.empty_like(tensor)

    def refused(drawn: Any) -> Any:
        """Where ``drawn`` is rejected; its memory is used up."""
        density = drawn.sub_(mean).div_(std).pow_(2).mul_(-0.5).sub_(peak)
        return chance.uniform_(generator=generator).log_().gt(density)

    tensor.uniform_(a, b, generator=generator)
    drawn = torch.empty_like(tensor).copy_(tensor)
    waiting = refused(drawn)
    values = tensor
    while waiting.any():
        drawn.uniform_(a, b, generator=generator)
        values = torch.where(waiting, drawn, values)
        waiting = waiting & refused(drawn)
    return tensor if values is tensor else tensor.copy_(values)


@overridable
def uniform_(tensor: Any, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Any:
    """Uniform numbers from ``a`` to ``b``."""
    return _no_grad_uniform_(tensor, a, b, generator)


@overridable
def normal_(tensor: Any, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Any:
    """Normal numbers."""
    return _no_grad_normal_(tensor, mean, std, generator)


def trunc_normal_(
    tensor: Any,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Any = None,
) -> Any:
    """Normal numbers, all between ``a`` and ``b``."""
    return _no_grad_trunc_normal_(tensor, mean, std, a, b, generator=generator)


@overridable
def constant_(tensor: Any, val: float) -> Any:
    """The same number everywhere."""
    return _no_grad_fill_(tensor, val)


def ones_(tensor: Any) -> Any:
    """Ones."""
    return _no_grad_fill_(tensor, 1.0)


def zeros_(tensor: Any) -> Any:
    """Zeros."""
    return _no_grad_zero_(tensor)


def eye_(tensor: Any) -> Any:
    """Ones on the diagonal of a matrix, zeros elsewhere."""
    if tensor.dim() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    with torch.no_grad():
        torch.eye(*tensor.shape, out=tensor, requires_grad=tensor.requires_grad)
    return tensor


def dirac_(tensor: Any, groups: int = 1) -> Any:
    """A convolution kernel that passes its input channels through."""
    dims = tensor.dim()
    if dims not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    shape = tensor.size()
    if shape[0] % groups != 0:
        raise ValueError("dim 0 must be divisible by groups")
    per_group = shape[0] // groups
    middle = tuple(n // 2 for n in shape[2:])
    with torch.no_grad():
        tensor.zero_()
        for group in range(groups):
            for channel in range(min(per_group, shape[1])):
                tensor[(group * per_group + channel, channel, *middle)] = 1
    return tensor


def _calculate_fan_in_and_fan_out(tensor: Any) -> tuple[int, int]:
    if tensor.dim() < 2:
        raise ValueError(
            "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions"
        )
    inputs, outputs = tensor.size(1), tensor.size(0)
    field = math.prod(tensor.shape[2:]) if tensor.dim() > 2 else 1
    return inputs * field, outputs * field


def _calculate_correct_fan(tensor: Any, mode: str) -> int:
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of {['fan_in', 'fan_out']}")
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    return fan_in if mode == "fan_in" else fan_out


def xavier_uniform_(tensor: Any, gain: float = 1.0, generator: Any = None) -> Any:
    """Glorot's uniform numbers."""
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    bound = _SQRT3 * (gain * math.sqrt(2.0 / float(fan_in + fan_out)))
    return _no_grad_uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Any, gain: float = 1.0, generator: Any = None) -> Any:
    """Glorot's normal numbers."""
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    std = gain * math.sqrt(2.0 / float(fan_in + fan_out))
    return _no_grad_normal_(tensor, 0.0, std, generator)


@overridable
def kaiming_uniform_(
    tensor: Any,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Any:
    """He's uniform numbers; ``a`` is the negative slope of a leaky ReLU."""
    if 0 in tensor.shape:
        _warn("Initializing zero-element tensors is a no-op")
        return tensor
    fan = _calculate_correct_fan(tensor, mode)
    bound = _SQRT3 * (calculate_gain(nonlinearity, a) / math.sqrt(fan))
    return _no_grad_uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Any,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Any:
    """He's normal numbers; ``a`` is the negative slope of a leaky ReLU."""
    if 0 in tensor.shape:
        _warn("Initializing zero-element tensors is a no-op")
        return tensor
    fan = _calculate_correct_fan(tensor, mode)
    std = calculate_gain(nonlinearity, a) / math.sqrt(fan)
    return _no_grad_normal_(tensor, 0, std, generator)


def orthogonal_(tensor: Any, gain: float = 1, generator: Any = None) -> Any:
    """A matrix (trailing dimensions taken together) with orthonormal rows or columns."""
    if tensor.dim() < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if tensor.numel() == 0:
        return tensor
    if _valueless(tensor):
        return tensor
    rows = tensor.size(0)
    cols = tensor.numel() // rows
    wide = rows < cols
    with torch.no_grad():
        matrix = tensor.new_empty((rows, cols)).normal_(0, 1, generator=generator)
        q, r = torch.linalg.qr(matrix.t_() if wide else matrix)
        q *= torch.diag(r, 0).sign()  # makes the factorisation unique
        tensor.copy_((q.t_() if wide else q).reshape(tensor.shape))
        tensor.mul_(gain)
    return tensor


def sparse_(tensor: Any, sparsity: float, std: float = 0.01, generator: Any = None) -> Any:
    """A matrix of normal numbers in which a share of each column is zero."""
    if tensor.dim() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    if _valueless(tensor):
        return tensor
    rows, cols = tensor.shape
    zeros = math.ceil(sparsity * rows)
    with torch.no_grad():
        tensor.normal_(0, std, generator=generator)
        for col in range(cols):
            tensor[torch.randperm(rows)[:zeros], col] = 0
    return tensor


def _old_name(function: Callable[..., Any]) -> Callable[..., Any]:
    new = function.__name__
    old = new[:-1]

    def deprecated_init(*args: Any, **kwargs: Any) -> Any:
        import warnings

        warnings.warn(
            f"`nn.init.{old}` is now deprecated in favor of `nn.init.{new}`.",
            FutureWarning,
            stacklevel=2,
        )
        return function(*args, **kwargs)

    deprecated_init.__name__ = old
    deprecated_init.__doc__ = f"The older name of ``{new}``."
    return deprecated_init


uniform = _old_name(uniform_)
normal = _old_name(normal_)
constant = _old_name(constant_)
eye = _old_name(eye_)
dirac = _old_name(dirac_)
xavier_uniform = _old_name(xavier_uniform_)
xavier_normal = _old_name(xavier_normal_)
kaiming_uniform = _old_name(kaiming_uniform_)
kaiming_normal = _old_name(kaiming_normal_)
orthogonal = _old_name(orthogonal_)
sparse = _old_name(sparse_)
