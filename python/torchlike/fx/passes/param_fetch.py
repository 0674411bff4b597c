"""What accelerators need of modules, noted on the nodes that call them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchlike import nn as _nn
from torchlike._tensor import typename
from torchlike.fx.graph_module import GraphModule

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["default_matching", "extract_attrs_for_lowering", "lift_lowering_attrs_to_nodes"]

# a table of layers that are imported when they are asked for, of which type checkers know nothing
nn: Any = _nn


def default_matching(name: str, target_version: int) -> str:
    """The name itself."""
    return name


_CONV = ["weight", "bias", "kernel_size", "stride", "padding", "dilation", "groups", "padding_mode"]
_NORM = ["weight", "bias", "running_mean", "running_var", "eps"]
_POOL = ["kernel_size", "stride", "padding", "dilation", "return_indices", "ceil_mode"]

module_fetch_book: dict[type, tuple[int, list[str], Callable[[str, int], str]]] = {
    nn.Linear: (1, ["weight", "bias"], default_matching),
    nn.Conv2d: (1, _CONV, default_matching),
    nn.BatchNorm2d: (2, _NORM, default_matching),
    nn.AdaptiveAvgPool2d: (1, [], default_matching),
    nn.MaxPool2d: (1, _POOL, default_matching),
    nn.ReLU: (1, ["inplace"], default_matching),
}


def extract_attrs_for_lowering(mod: _nn.Module) -> dict[str, Any]:
    """The attributes of a module that `module_fetch_book` names.

    Raises:
        RuntimeError: if the book does not have the class, or an older version of it.
    """
    name = typename(mod)
    if type(mod) not in module_fetch_book:
        raise RuntimeError(
            f"{name} is not in the module_fetch_book yet, please add it to the "
            "module_fetch_book, open an issue and @842974287 or report a bug to AIACC team directly."
        )
    version, attrs, match = module_fetch_book[type(mod)]
    if version < mod._version:
        raise RuntimeError(
            f"Fetcher version {version} try to fetch {name} version {mod._version}, "
            "please upgrade the module_fetch_book, open an issue and @842974287 "
            "or report a bug to AIACC team directly."
        )
    return {"name": name, **{a: getattr(mod, match(a, mod._version)) for a in attrs}}


def lift_lowering_attrs_to_nodes(fx_module: GraphModule) -> None:
    """Notes on every call of a module, as `attrs_for_lowering`, the attributes of the module."""
    modules = dict(fx_module.named_modules())
    for node in fx_module.graph.nodes:
        if node.op != "call_module":
            continue
        below = modules[node.target]
        if isinstance(below, GraphModule):
            lift_lowering_attrs_to_nodes(below)
        else:
            node.attrs_for_lowering = extract_attrs_for_lowering(below)  # type: ignore[attr-defined]
