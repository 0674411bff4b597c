"""Wholes that are cut and sent to the ranks of a mesh: tensors, and all that a module has."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike import _C, nn
from torchlike.distributed._ops import c10d
from torchlike.distributed.device_mesh import _mesh_resources
from torchlike.distributed.tensor import _moves
from torchlike.distributed.tensor._dtensor import DTensor
from torchlike.distributed.tensor._spec import Spec, meta_of, replicated
from torchlike.distributed.tensor.placement_types import (
    Partial,
    Placement,
    Shard,
    _MaskPartial,
    check_mixed,
    is_cut,
    normalized,
)
from torchlike.nn._hooks import put_hook

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torchlike.distributed._groups import ProcessGroup
    from torchlike.distributed.device_mesh import DeviceMesh

__all__ = ["distribute_module", "distribute_tensor"]


def distribute_tensor(
    tensor: Any,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> DTensor:
    """A whole that the rank `src_data_rank` of each dimension of the mesh has, cut and sent as `placements` say; with
    None every rank has the whole already, and nothing is sent.

    Raises:
        RuntimeError: if the tensor is no leaf.
        ValueError: if there are not as many placements as the mesh has dimensions.
        IndexError: if a dimension is to be cut that is not there.
    """
    mesh = _mesh_resources.chosen(device_mesh)
    if not tensor.is_leaf:
        raise RuntimeError(
            "`distribute_tensor` should be used to distribute leaf tensors! but found non-leaf tensor!"
        )
    given = replicated(mesh) if placements is None else tuple(placements)
    if len(given) != mesh.ndim:
        raise ValueError(
            "`placements` must have the same length as `device_mesh.ndim`! Found placements length: "
            f"{len(given)}, and device_mesh.ndim: {mesh.ndim}."
        )
    if isinstance(tensor, DTensor):
        check_mixed(given)
        return _checked(tensor, mesh, given)
    if mesh.device_type != tensor.device.type and not tensor.is_meta:
        tensor = tensor.to(mesh.device_type)
    spec = _spec(mesh, given, tensor)
    pieces = [_own(tensor, spec, seat, src_data_rank) for seat in range(len(mesh._seats))]
    return DTensor._of(pieces, spec, tensor.requires_grad)


def _spec(mesh: DeviceMesh, given: tuple[Placement, ...], whole: Any) -> Spec:
    """How a whole lies that is cut as it is said; wholes that look alike are asked about again and again."""
    key = (distribute_tensor, given, whole.shape, whole.stride(), whole.dtype)
    found: Spec | None = mesh._known.get(key)
    if found is not None:
        return found
    check_mixed(given)
    ndim = whole.ndim
    chosen = tuple(normalized(p, ndim) for p in given)
    for p in chosen:
        if is_cut(p) and not 0 <= p.dim < ndim:  # type: ignore[attr-defined]
            raise IndexError(
                f"Dimension out of range (expected to be in range of [{-ndim}, {ndim - 1}], but got "
                f"{p.dim})"  # type: ignore[attr-defined]
            )
    found = Spec(mesh, chosen, meta_of(whole))
    if not any(isinstance(p, _MaskPartial) for p in chosen):
        mesh._note(key, found)
    return found


def _checked(t: DTensor, mesh: DeviceMesh, placements: tuple[Placement, ...]) -> DTensor:
    if t.device_mesh != mesh:
        raise ValueError(
            f"Cannot distribute a DTensor with device mesh {t.device_mesh} to a different device mesh {mesh}."
        )
    if t.placements != placements:
        raise ValueError(
            f"Cannot distribute a DTensor with placements {t.placements} to a different placements {placements}. "
            "do you want to call `redistribute` instead?"
        )
    return t


def _own(whole: Any, spec: Spec, seat: int, source: int | None) -> Any:
    """The piece of a rank, sent as PyTorch does: one dimension of the mesh after the other."""
    mesh = spec.mesh
    sends = source is not None and not whole.is_meta and mesh._world.backend != "local"
    if not sends and (bounds := spec.bounds(seat)) is not None:
        return _C._part(whole, *bounds)
    part = whole = whole.detach()
    at = mesh._places[seat]
    for dim, p in spec.applied():
        parts = mesh.size(dim)
        if is_cut(p):
            own = _moves._taken(part, p, parts, at[dim])
            sent = _scatter(part, p, mesh, dim, at[dim], source or 0) if sends else None
            part = own if sent is None else sent.narrow(p.dim, 0, own.shape[p.dim])  # type: ignore[attr-defined]
        elif sends:
            part = _broadcast(part, mesh.get_group(dim), source or 0)
        if isinstance(p, Partial):
            part = p._partition([part], mesh, dim)[0]
    return part.contiguous() if part is not whole else whole.clone()


def _broadcast(whole: Any, group: ProcessGroup, source: int) -> Any:
    """What the source has; on a world that moves nothing, the tensor itself."""
    if not group.connected:
        c10d.broadcast_([whole.contiguous()], group, source)
        return whole
    found = whole.clone(memory_format=torch.contiguous_format)
    c10d.broadcast_([found], group, source).wait()
    return found


def _scatter(whole: Any, p: Any, mesh: DeviceMesh, dim: int, at: int, source: int) -> Any:
    """This rank's part of what the source has, padded to the size of the largest; None if nothing moves."""
    parts = mesh.size(dim)
    if isinstance(p, Shard) and whole.shape[p.dim] % parts == 0:
        padded = list(whole.chunk(parts, p.dim))
    else:
        pieces = [_moves._taken(whole, p, parts, i) for i in range(parts)]
        size = max(t.shape[p.dim] for t in pieces)
        padded = [_moves._padded(t, p.dim, size) for t in pieces]
    out = torch.empty_like(padded[at])
    lists = [padded] if at == source else []
    group = mesh.get_group(dim)
    work = c10d.scatter_([out], lists, group, source)
    if not group.connected:
        return None
    work.wait()
    return out


def distribute_module(
    module: nn.Module,
    device_mesh: DeviceMesh | None = None,
    partition_fn: Callable[[str, nn.Module, DeviceMesh], None] | None = None,
    input_fn: Callable[..., Any] | None = None,
    output_fn: Callable[..., Any] | None = None,
) -> nn.Module:
    """Distributes the parameters and buffers of a module: as `partition_fn(name, module, mesh)` says, and replicated
    where it says nothing. `input_fn(module, inputs, mesh)` and `output_fn(module, outputs, mesh)` become hooks.

    Raises:
        RuntimeError: if it was called on the module before.
    """
    mesh = _mesh_resources.chosen(device_mesh)
    before = None if input_fn is None else _hook(input_fn, mesh, "input_fn")
    after = None if output_fn is None else _out_hook(output_fn, mesh)
    return distributed(module, mesh, partition_fn, before, after)


def distributed(
    module: nn.Module,
    mesh: DeviceMesh,
    partition: Callable[[str, nn.Module, DeviceMesh], None] | None,
    before: Callable[..., Any] | None,
    after: Callable[..., Any] | None,
) -> nn.Module:
    """As `distribute_module`, with hooks as modules call them.

    Raises:
        RuntimeError: if the module is distributed already.
    """
    if module._state_.get("_distribute_module_applied"):
        raise RuntimeError(
            "distribute_module should only be called once on a module, but it has already been called on this module!"
        )
    below = "module" in module._state_["_kinds"].values()
    for name, part in module.named_modules() if below else (("", module),):
        if partition is not None:
            partition(name, part, mesh)
        _replicate(part, mesh)
    if before is not None:
        put_hook(module, "_forward_pre_hooks", before)
    if after is not None:
        put_hook(module, "_forward_hooks", after)
    module._state_["_distribute_module_applied"] = True
    return module


def parameters_of(module: nn.Module) -> list[tuple[str, Any]]:
    """The parameters of a module itself with their names, as they are now."""
    state = module._state_
    kinds = state["_kinds"].items()
    return [(n, state[n]) for n, k in kinds if k == "parameter" and state[n] is not None]


def _replicate(module: nn.Module, mesh: DeviceMesh) -> None:
    """Parameters and buffers that do not lie on a mesh become whole ones there."""
    state = module._state_
    for name, kind in list(state["_kinds"].items()):
        t = state[name]
        if kind == "module" or t is None or isinstance(t, DTensor):
            continue
        whole = replicated(mesh)
        if kind == "parameter":
            made = distribute_tensor(t.data, mesh, whole)
            module.register_parameter(name, nn.Parameter(made, requires_grad=t.requires_grad))
        else:
            module._buffers[name] = distribute_tensor(t, mesh, whole)


@functools.cache
def _arguments(f: Any) -> int:
    return len(inspect.signature(f).parameters)


def _hook(f: Any, mesh: DeviceMesh, name: str) -> Any:
    count = _arguments(getattr(f, "__func__", f)) - hasattr(f, "__func__")
    if count == 2:
        return lambda _, inputs: f(inputs, mesh)
    if count == 3:
        return lambda module, inputs: f(module, inputs, mesh)
    raise ValueError(f"{name} should take in 3 arguments, but got {count} arguments!")


def _out_hook(f: Any, mesh: DeviceMesh) -> Any:
    inner = _hook(f, mesh, "output_fn")
    return lambda module, inputs, outputs: inner(module, outputs)
