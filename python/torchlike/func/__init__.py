"""Function transforms: calling a module with other parameters."""

from __future__ import annotations

from typing import Any

__all__ = ["functional_call"]


def functional_call(
    module: Any,
    parameter_and_buffer_dicts: Any,
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Calls `module` with other parameters and buffers, given by name in a dict or in several."""
    from torchlike.nn.utils import stateless

    given = parameter_and_buffer_dicts
    if not isinstance(given, dict):
        if not isinstance(given, list | tuple):
            raise ValueError(
                f"Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got {type(given)}"
            )
        if not all(isinstance(d, dict) for d in given):
            raise ValueError(
                "Expected all elements of parameter_and_buffer_dicts to be dictionaries"
            )
        names = [name for d in given for name in d]
        repeated = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        if repeated:
            raise ValueError(
                f"{repeated} appeared in multiple dictionaries; behavior of functional call is ambiguous"
            )
        given = {name: value for d in given for name, value in d.items()}
    return stateless._functional_call(module, given, args, kwargs, tie_weights, strict)
