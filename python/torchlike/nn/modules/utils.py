"""Numbers that may be given once for all dimensions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def _ntuple(n: int) -> Any:
    def parse(x: Any) -> tuple[Any, ...]:
        if type(x) is int:  # asking an abstract class takes longer than all else
            return (x,) * n
        return tuple(x) if isinstance(x, Iterable) else (x,) * n

    return parse


_single = _ntuple(1)
_pair = _ntuple(2)
_triple = _ntuple(3)
_quadruple = _ntuple(4)


def _reverse_repeat_tuple(t: Any, n: int) -> tuple[Any, ...]:
    return tuple([x for x in reversed(t) for _ in range(n)])


def _list_with_default(out_size: Any, defaults: list[int]) -> Any:
    if isinstance(out_size, (int, str)):
        return out_size
    if len(defaults) <= len(out_size):
        raise ValueError(f"Input dimension should be at least {len(out_size) + 1}")
    return [
        v if v is not None else d
        for v, d in zip(out_size, defaults[-len(out_size) :], strict=False)
    ]


def consume_prefix_in_state_dict_if_present(state_dict: Any, prefix: str) -> None:
    """Take ``prefix`` off the keys (and the metadata) of a state dict, in place."""
    for key in list(state_dict):
        if key.startswith(prefix):
            state_dict[key[len(prefix) :]] = state_dict.pop(key)
    metadata: Any = getattr(state_dict, "_metadata", None)
    for key in list(metadata or ()):
        if key and (key == prefix.replace(".", "") or key.startswith(prefix)):
            metadata[key[len(prefix) :]] = metadata.pop(key)
