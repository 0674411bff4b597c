"""What operators come down to in PyTorch's core operators: the table that programs are decomposed by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchlike._decomp._table import TABLE, register_decomposition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    decomposition_table: dict[Any, Callable[..., Any]]

__all__ = [
    "core_aten_decompositions",
    "decomposition_table",
    "get_decompositions",
    "register_decomposition",
    "remove_decompositions",
]


def _filled() -> dict[Any, Callable[..., Any]]:
    # These fill the table.
    from torchlike._decomp import _activations as _a
    from torchlike._decomp import _elements as _b
    from torchlike._decomp import _losses as _c
    from torchlike._decomp import _made as _d
    from torchlike._decomp import _places as _e
    from torchlike._decomp import _products as _f
    from torchlike._decomp import _reductions as _g

    return TABLE


def core_aten_decompositions() -> dict[Any, Callable[..., Any]]:
    """The functions, by overload, of all operators that are no core operators."""
    return dict(_filled())


def _overloads(aten_ops: Iterable[Any]) -> Iterator[Any]:
    for given in aten_ops:
        yield from given.real() if hasattr(given, "real") else [given]


def get_decompositions(aten_ops: Iterable[Any]) -> dict[Any, Callable[..., Any]]:
    """Those of some operators, which are given as overloads, or as names with all their overloads."""
    table = _filled()
    return {o: table[o] for o in _overloads(aten_ops) if o in table}


def remove_decompositions(
    decompositions: dict[Any, Callable[..., Any]], aten_ops: Iterable[Any]
) -> None:
    """Takes those of some operators, which are given as in `get_decompositions`, out of a table."""
    for overload in _overloads(aten_ops):
        decompositions.pop(overload, None)


def __getattr__(name: str) -> Any:
    if name == "decomposition_table":
        return _filled()
    raise AttributeError(f"module 'torchlike._decomp' has no attribute {name!r}")
