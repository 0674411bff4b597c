"""Plans: a style for each module of a model."""

from __future__ import annotations

import warnings
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from torchlike.distributed.device_mesh import _mesh_resources
from torchlike.distributed.tensor.parallel.style import ParallelStyle

if TYPE_CHECKING:
    from collections.abc import Callable

    from torchlike import nn
    from torchlike.distributed.device_mesh import DeviceMesh


def parallelize_module(
    module: nn.Module,
    device_mesh: DeviceMesh | None = None,
    parallelize_plan: ParallelStyle | dict[str, ParallelStyle] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> nn.Module:
    """Applies a style to a module, or styles to the modules below it, whose names may be patterns (`layers.*.q`).

    Raises:
        TypeError: if the plan is neither.
    """
    mesh = _mesh_resources.chosen(device_mesh)
    if parallelize_plan is None:
        warnings.warn(
            "No parallelize_plan is provided and auto-parallel is not supported at the moment, so this "
            "parallelize_module call will do nothing.",
            stacklevel=2,
        )
        return module
    if isinstance(parallelize_plan, ParallelStyle):
        parallelize_plan.src_data_rank = src_data_rank
        return parallelize_plan._apply(module, mesh)
    if not isinstance(parallelize_plan, dict):
        raise TypeError(
            "Expect Union[ParallelStyle, Dict[str, ParallelStyle]] for parallelize_plan, "
            f"{type(parallelize_plan)} found!"
        )
    for path, style in parallelize_plan.items():
        _apply_at(module, path, _applied(style, mesh, src_data_rank))
    return module


def _applied(style: Any, mesh: DeviceMesh, source: int | None) -> Callable[[nn.Module], Any]:
    """A function that applies a style, or a plan, to a module."""
    if isinstance(style, ParallelStyle):
        style.src_data_rank = source
        return lambda module: style._apply(module, mesh)
    return lambda module: parallelize_module(module, mesh, style, src_data_rank=source)


def _children(module: nn.Module, pattern: str) -> list[nn.Module]:
    """The modules right below one whose names fit; one that has several names goes by its first."""
    if any(c in pattern for c in "*?["):
        return [m for name, m in module.named_children() if fnmatchcase(name, pattern)]
    state = module._state_
    kinds = state["_kinds"]
    wanted = state[pattern] if kinds.get(pattern) == "module" else None
    if wanted is None:
        return []
    for name, kind in kinds.items():
        if kind == "module" and state[name] is wanted:
            return [wanted] if name == pattern else []
    return []


def _apply_at(module: nn.Module, path: str, apply: Callable[[nn.Module], Any]) -> None:
    """Applies a function to the modules below one whose path fits."""
    if not path:
        apply(module)
        return
    first, _, rest = path.partition(".")
    found = _children(module, first)
    if not found:
        warnings.warn(
            f"Parallelize plan key '{path}' could not be resolved: no submodule matching token '{first}' in module "
            f"{module}, skipping this plan entry.",
            stacklevel=3,
        )
    for child in found:
        _apply_at(child, rest, apply)
