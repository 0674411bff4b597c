"""State dicts in dictionaries and lists, as flat ones, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import torchlike as torch

PATH = tuple[str | int, ...]
OBJ_PATH = PATH


def _is_leaf(value: Any, whole_dicts: bool) -> bool:
    """Whether a value is kept as one: lists (and, in files of PyTorch before 2.4, dictionaries) without tensors."""
    if isinstance(value, Mapping):
        if not whole_dicts:
            return False
        inner = list(value.values())
    elif isinstance(value, list):
        inner = value
    else:
        return True
    return not any(
        isinstance(v, torch.Tensor)
        or (isinstance(v, Mapping | list) and not _is_leaf(v, whole_dicts))
        for v in inner
    )


def traverse_state_dict(
    state_dict: Mapping[str, Any],
    visitor: Callable[[PATH, Any], None],
    whole_dicts: bool = False,
) -> None:
    """Calls `visitor(path, value)` for every value, and for lists that hold no tensors as a whole."""

    def visit(path: PATH, value: Any) -> None:
        if _is_leaf(value, whole_dicts):
            visitor(path, value)
        elif isinstance(value, Mapping):
            for k, v in value.items():
                visit((*path, str(k)), v)
        else:
            for i, v in enumerate(value):
                visit((*path, i), v)

    for key, value in state_dict.items():
        visit((str(key),), value)


def flatten_state_dict(
    state_dict: Mapping[str, Any], whole_dicts: bool = False
) -> tuple[dict[str, Any], dict[str, PATH]]:
    """The values by their paths joined by dots, and the paths.

    Raises:
        ValueError: if two paths are joined to the same name.
    """
    flat: dict[str, Any] = {}
    paths: dict[str, PATH] = {}

    def add(path: PATH, value: Any) -> None:
        name = ".".join(map(str, path))
        if name in flat:
            raise ValueError(f"duplicated flatten key {name}")
        flat[name], paths[name] = value, path

    traverse_state_dict(state_dict, add, whole_dicts)
    return flat, paths


def unflatten_state_dict(
    state_dict: Mapping[str, Any], mapping: Mapping[str, PATH]
) -> dict[str, Any]:
    """The nested state dict of a flat one."""
    nested: dict[str, Any] = {}
    for name, value in state_dict.items():
        set_element(nested, mapping[name], value)
    return nested


def set_element(root_dict: Any, path: PATH, value: Any) -> None:
    """Puts a value where a path leads; what is missing on the way is made, and lists are filled with None."""
    here = root_dict
    for key, after in pairwise(path):
        empty: Any = {} if isinstance(after, str) else []
        if isinstance(here, Mapping):
            here = here.setdefault(key, empty)  # type: ignore[attr-defined]
            continue
        here += [None] * (key + 1 - len(here))  # type: ignore[operator]
        if here[key] is None:
            here[key] = empty
        here = here[key]
    last = path[-1]
    if isinstance(last, int) and isinstance(here, list):
        here += [None] * (last + 1 - len(here))
    here[last] = value


def get_element(root_dict: Any, path: PATH, default_value: Any = None) -> Any:
    """The value where a path leads, or the default."""
    here = root_dict
    for part in path:
        if isinstance(part, int):
            if not isinstance(here, list) or len(here) <= part:
                return default_value
        elif not isinstance(here, Mapping) or part not in here:
            return default_value
        here = here[part]
    return here
