"""What operators come down to in PyTorch's core operators: the table that programs are decomposed by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchlike._decomp._table import TABLE, register_decomposition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["core_aten_decompositions", "get_decompositions", "register_decomposition"]


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


def get_decompositions(aten_ops: Iterable[Any]) -> dict[Any, Callable[..., Any]]:
    """Those of some operators, which are given as overloads, or as names with all their overloads."""
    table, found = _filled(), {}
    for given in aten_ops:
        overloads = given.real() if hasattr(given, "real") else [given]
        found.update({o: table[o] for o in overloads if o in table})
    return found
