"""Taking trees apart as a structure says, for generated code."""

from __future__ import annotations

from collections import namedtuple
from typing import TYPE_CHECKING, Any

from torchlike.utils._pytree import TreeSpec, tree_flatten

if TYPE_CHECKING:
    from collections.abc import Callable

SUPPORTED_NODES: dict[Any, Callable[[Any, TreeSpec], list[Any]]] = {}
SUPPORTED_NODES_EXACT_MATCH: dict[Any, Callable[[Any, TreeSpec], bool] | None] = {}


def register_pytree_flatten_spec(
    cls: type[Any],
    flatten_fn_spec: Callable[[Any, TreeSpec], list[Any]],
    flatten_fn_exact_match_spec: Callable[[Any, TreeSpec], bool] | None = None,
) -> None:
    """Says how objects of a class are taken apart by a structure."""
    SUPPORTED_NODES[cls] = flatten_fn_spec
    SUPPORTED_NODES_EXACT_MATCH[cls] = flatten_fn_exact_match_spec


def _deregister_pytree_flatten_spec(cls: type[Any]) -> None:
    del SUPPORTED_NODES[cls]
    del SUPPORTED_NODES_EXACT_MATCH[cls]


def tree_flatten_spec(pytree: Any, spec: TreeSpec) -> list[Any]:
    """The leaves of a tree that has this structure.

    Raises:
        RuntimeError: if it has another one.
    """
    if spec.is_leaf():
        return [pytree]
    if spec.type in SUPPORTED_NODES:
        found: list[Any] = []
        children = SUPPORTED_NODES[spec.type](pytree, spec)
        for child, below in zip(children, spec.children_specs, strict=False):
            found += tree_flatten_spec(child, below)
        return found
    leaves, real = tree_flatten(pytree)
    if spec != real:
        raise RuntimeError(
            f"Real spec {real} of object {pytree} is different from expected spec {spec}. "
            "Please file an issue at https://github.com/pytorch/pytorch/issues/new?"
            "template=bug-report.yml"
        )
    return leaves


def _keys(d: Any, spec: TreeSpec) -> list[Any]:
    return [d[k] for k in spec.context]


def _items(d: Any, spec: TreeSpec) -> list[Any]:
    return [d[i] for i in range(spec.num_children)]


def _same_length(d: Any, spec: TreeSpec) -> bool:
    return len(d) == spec.num_children


register_pytree_flatten_spec(dict, _keys, _same_length)
for _kind in (list, tuple, namedtuple):
    register_pytree_flatten_spec(_kind, _items, _same_length)  # type: ignore[arg-type]
