"""The extension of the array API for Fourier transforms."""

from __future__ import annotations

from typing import Any

import torchlike as torch


def _one(name: str) -> Any:
    ours = getattr(torch.fft, name)

    def call(x: Any, /, *, n: Any = None, axis: int = -1, norm: str = "backward") -> Any:
        return ours(x, n=n, dim=axis, norm=norm)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"`{name}` along an axis."
    return call


def _many(name: str) -> Any:
    ours = getattr(torch.fft, name)

    def call(x: Any, /, *, s: Any = None, axes: Any = None, norm: str = "backward") -> Any:
        return ours(x, s=s, dim=axes, norm=norm)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"`{name}` along axes."
    return call


fft, ifft, rfft, irfft, hfft, ihfft = (
    _one(n) for n in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
)
fftn, ifftn, rfftn, irfftn = (_many(n) for n in ("fftn", "ifftn", "rfftn", "irfftn"))


def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Any:
    """The frequencies of a transform of `n` elements."""
    return torch.fft.fftfreq(n, d=d, dtype=dtype, device=device)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Any:
    """The frequencies of a transform of `n` real elements."""
    return torch.fft.rfftfreq(n, d=d, dtype=dtype, device=device)


def fftshift(x: Any, /, *, axes: Any = None) -> Any:
    """The frequency zero moved to the middle."""
    return torch.fft.fftshift(x, dim=axes)


def ifftshift(x: Any, /, *, axes: Any = None) -> Any:
    """The frequency zero moved back to the front."""
    return torch.fft.ifftshift(x, dim=axes)
