"""The notation of samples: what stands in `.samples("...")` of a row of the op table, as calls.

Calls are separated by `;`. Each is the arguments of a Python call, in these words:

| word | means |
|---|---|
| `f32[2, 3]`, `f32[()]` | a tensor of this shape with values of its own (also `bf16 f64 c64 i64 u8 b8 ...`) |
| `f32([1, 2])`, `i64(3)` | a tensor with these values |
| `.pos`, `.unit`, `.below(n)`, `.spd` | above zero, between 0 and 1, integers from 0 to n - 1, positive definite |
| `.T`, `.cl` | the last two dimensions swapped in memory, channels last |
| `dtype=f32`, `device=dev`, `nan`, `inf`, `strided`, ... | the objects of these names; `dev` is the device under test |
"""

from __future__ import annotations

import itertools
import math
import zlib
from typing import Any, NamedTuple

import numpy as np

import torchlike as torch

DTYPES = {
    "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64,
    "c32": torch.complex32, "c64": torch.complex64, "c128": torch.complex128,
    "u8": torch.uint8, "u16": torch.uint16, "u32": torch.uint32, "u64": torch.uint64,
    "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64, "b8": torch.bool,
    "f8": torch.float8_e4m3fn,
}  # fmt: skip


class Call(NamedTuple):
    """One sample: a text, and its arguments."""

    text: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Given:
    """A tensor that a sample describes; `make` builds it on a device."""

    def __init__(self, dtype: torch.dtype, shape: tuple[int, ...], values: Any, layout: str = ""):
        self.dtype, self.shape, self.values, self.layout = dtype, shape, values, layout

    def _with(self, **changed: Any) -> Given:
        return Given(**{**vars(self), **changed})

    pos = property(lambda self: self._with(values=lambda r, s: r.uniform(0.1, 2, s)))
    unit = property(lambda self: self._with(values=lambda r, s: r.uniform(0.05, 0.95, s)))
    T = property(lambda self: self._with(layout="T"))
    cl = property(lambda self: self._with(layout="cl"))

    @property
    def spd(self) -> Given:
        def values(r: Any, shape: Any) -> Any:
            a = r.standard_normal(shape)
            return a @ np.swapaxes(a, -1, -2) + shape[-1] * np.eye(shape[-1])

        return self._with(values=values)

    def below(self, n: int) -> Given:
        return self._with(values=lambda r, s: r.integers(0, n, s))

    def make(self, device: str, seed: int) -> torch.Tensor:
        """The tensor, the same for the same seed."""
        made = (
            self.values(np.random.default_rng(seed), self.shape)
            if callable(self.values)
            else self.values
        )
        t = torch.tensor(np.asarray(made).tolist()).reshape(self.shape).to(self.dtype)
        if self.layout == "T":
            t = t.transpose(-1, -2).contiguous().transpose(-1, -2)
        elif self.layout == "cl":
            t = t.contiguous(
                memory_format=torch.channels_last if t.ndim == 4 else torch.channels_last_3d
            )
        made = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=device)
        return made if device == "meta" else made.copy_(t)


class Kind:
    """A dtype of the notation: `f32[2, 3]`, `f32([1, 2])`, or the dtype itself."""

    def __init__(self, dtype: torch.dtype):
        self.dtype = dtype

    def __getitem__(self, shape: Any) -> Given:
        return Given(self.dtype, shape if isinstance(shape, tuple) else (shape,), self._values)

    def __call__(self, values: Any) -> Given:
        return Given(self.dtype, np.shape(values), values)

    def _values(self, r: Any, shape: Any) -> Any:
        if self.dtype == torch.bool:
            return r.integers(0, 2, shape).astype(bool)
        if self.dtype.is_complex:
            return r.standard_normal(shape) + 1j * r.standard_normal(shape)
        if self.dtype.is_floating_point:
            return r.standard_normal(shape) * 2
        return r.integers(-5 if self.dtype.is_signed else 0, 9, shape)


WORDS: dict[str, Any] = {
    **{name: Kind(d) for name, d in DTYPES.items()},
    **{n: getattr(torch, n) for n in ("strided", "contiguous_format", "preserve_format", "channels_last")},
    "nan": math.nan, "inf": math.inf, "dev": "dev", "__builtins__": {},
}  # fmt: skip


def elsewhere(text: str) -> str:
    """The file of tests of a row whose arguments or results are no strided tensors; empty for all others."""
    return text.removeprefix("see ") if text.startswith("see ") else ""


def calls(text: str) -> list[Call]:
    """The calls that a text describes; none for rows that are called elsewhere."""
    if elsewhere(text):
        return []
    parts = [p.strip() for p in text.split(";") if p.strip()]
    return [Call(p, *eval(f"(lambda *a, **k: (a, k))({p})", WORDS)) for p in parts]


def arguments(
    call: Call, device: str, change: Any = None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call on a device; `change` makes another layout of each tensor."""
    seeds = itertools.count(zlib.crc32(call.text.encode()))

    def build(v: Any) -> Any:
        if isinstance(v, Kind):
            return v.dtype
        if isinstance(v, Given):
            t = v.make(device, next(seeds))
            return change(t) if change else t
        if isinstance(v, list | tuple):
            return type(v)(build(x) for x in v)
        return device if v == "dev" else v

    return build(call.args), {k: build(v) for k, v in call.kwargs.items()}
