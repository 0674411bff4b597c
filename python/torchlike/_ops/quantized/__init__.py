"""The operators `quantized`: their schemas are a file, their kernels stand in the modules of this folder.

Layers of `ao.nn.quantized` call them, and so do TorchScript and graphs of PyTorch's.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from torchlike._ops import ops

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")
KERNELS: dict[str, Callable[..., Any]] = {}


def kernel(*names: str) -> Callable[[F], F]:
    """Takes a function as the kernel of overloads, `add.Scalar`, as a decorator."""

    def taken(fn: F) -> F:
        KERNELS.update(dict.fromkeys(names, fn))
        return fn

    return taken


def _define() -> None:
    from torchlike._ops.quantized import cells, embeddings, norms, pointwise, products

    text = Path(__file__).parent.with_name("quantized.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        name = line.partition("(")[0]
        overload = ops.quantized.define(f"quantized::{line}")
        overload.kernels["CompositeExplicitAutograd"] = KERNELS[name]


_define()
