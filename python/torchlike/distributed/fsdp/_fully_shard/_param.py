"""One parameter: the part of it that this rank keeps, and the whole while it is used."""

from __future__ import annotations

import functools
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import torchlike as torch
from torchlike import _C, nn
from torchlike.distributed.device_mesh import DeviceMesh
from torchlike.distributed.tensor._dtensor import DTensor
from torchlike.distributed.tensor._spec import Spec, TensorMeta, contiguous, meta_of
from torchlike.distributed.tensor.placement_types import (
    Placement,
    Replicate,
    Shard,
    _StridedShard,
    normalized,
    shard,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from torchlike.distributed._groups import ProcessGroup


class MeshInfo:
    """Over what parameters are cut: the last dimension of the mesh; a first one is replicated."""

    def __init__(self, mesh: DeviceMesh) -> None:
        self.mesh = mesh

    @functools.cached_property
    def group(self) -> ProcessGroup:
        """The ranks that have the other parts."""
        return self.mesh.get_group(self.mesh.ndim - 1)

    @functools.cached_property
    def replicas(self) -> ProcessGroup | None:
        """The ranks that have the same part, if there are some."""
        return self.mesh.get_group(0) if self.mesh.ndim > 1 else None

    @functools.cached_property
    def size(self) -> int:
        """How many parts there are."""
        return self.group.size()


class Place:
    """Where a parameter is used: modules, and its name in each."""

    def __init__(self, module: nn.Module, name: str) -> None:
        self.module, self.name = module, name
        self._users = [(module, name)]
        self.tables: list[tuple[dict[str, Any], str]] = [(module._state_, name)]
        """What the modules have, by name."""

    def add(self, module: nn.Module, name: str) -> None:
        """Another module uses it too."""
        self._users.append((module, name))
        self.tables.append((module._state_, name))

    def everywhere(self) -> list[tuple[nn.Module, str]]:
        """All modules that use it, and its name in each."""
        return self._users

    def put(self, p: Any) -> None:
        """Has the modules use this parameter, in the place of the one that is registered."""
        for state, name in self.tables:
            state["_kinds"][name] = "parameter"
            state[name] = p


def joined(outer: DeviceMesh, inner: DeviceMesh) -> DeviceMesh:
    """The mesh of the dimensions of two slices of one mesh.

    Raises:
        ValueError: if they are none, or their dimensions have no names.
    """
    root = outer._get_root_mesh()
    names = (*(outer.mesh_dim_names or ()), *(inner.mesh_dim_names or ()))
    if root != inner._get_root_mesh() or not set(names) <= set(root.mesh_dim_names or ()):
        raise ValueError(
            "FSDP requires the DP and model parallel TP/EP mesh to have the same parent mesh, but got "
            f"{outer} and {inner}"
        )
    return root[names]


class Cut(NamedTuple):
    """How parameters that look alike are cut: found once for all of them."""

    spec: Spec
    shape: tuple[int, ...]
    """Of the piece of the whole that is cut: all of it, or what the other dimensions of the mesh leave here."""
    padded_shape: tuple[int, ...]
    part_shape: tuple[int, ...]
    width: int
    """Elements of a part, padding included."""
    at: tuple[int, ...]
    """Where this rank's part begins, in each dimension."""
    of_grads: dict[Any, Spec]
    """How gradients lie, by their dtypes."""
    gathered_shape: tuple[int, ...]
    """Of all padded parts together."""

    def of_grad(self, dtype: Any) -> Spec:
        """How a reduced gradient lies."""
        found = self.of_grads.get(dtype)
        if found is None:
            shape = self.spec.shape
            found = self.spec.of(TensorMeta(shape, contiguous(shape), dtype))
            self.of_grads[dtype] = found
        return found


def _cut(param: nn.Parameter, whole: Any, dim: int, info: MeshInfo, of_tp: Spec | None) -> Cut:
    """How a parameter is cut along a dimension of the piece `whole` that is here."""
    of_whole = (param.shape, param.stride(), param.dtype) if of_tp is None else of_tp.number
    key = (Cut, of_whole, whole.shape, dim)
    found: Cut | None = info.mesh._known.get(key)
    if found is None:
        found = _new_cut(_spec(param, dim, info, of_tp), whole.shape, dim, info)
        info.mesh._note(key, found)
    return found


def _spec(param: nn.Parameter, dim: int, info: MeshInfo, of_tp: Spec | None) -> Spec:
    cut: Placement = Shard(dim)
    mesh = info.mesh
    if of_tp is not None:
        factor = 1
        for i, p in enumerate(of_tp.placements):
            if isinstance(p, Shard | _StridedShard) and p.dim == dim:
                factor *= of_tp.mesh.size(i)
        if factor > 1:
            cut = _StridedShard(dim, split_factor=factor)
        mesh = joined(mesh, of_tp.mesh)
    before = (Replicate(),) * (info.mesh.ndim - 1)
    after = of_tp.placements if of_tp is not None else ()
    return Spec(mesh, (*before, cut, *after), meta_of(param))


def _new_cut(spec: Spec, whole: Any, dim: int, info: MeshInfo) -> Cut:
    shape, parts = tuple(whole), info.size
    if dim >= len(shape):
        raise AssertionError(f"Shard dim {dim} is invalid for {len(shape)}D tensor: {whole}")
    size = shape[dim]
    if dim and size % parts:
        raise NotImplementedError(
            f"FSDP does not support uneven sharding on dim {dim}: {whole} (world size: {parts})"
        )
    rows = -(-size // parts)
    start = min(rows * info.group.rank(), size)
    part = min(rows, size - start)
    before, after = shape[:dim], shape[dim + 1 :]
    padded = (*before, rows, *after)
    at = tuple([start if d == dim else 0 for d in range(len(shape))])
    gathered = (*before, rows * parts, *after)
    return Cut(spec, shape, padded, (*before, part, *after), prod(padded), at, {}, gathered)


class FSDPParam:
    """A parameter of a group."""

    def __init__(
        self,
        param: nn.Parameter,
        place: Place,
        info: MeshInfo,
        dtypes: Any,
        placement: Callable[[nn.Parameter], Any] | None,
    ) -> None:
        if not param.is_contiguous():
            raise NotImplementedError(
                f"FSDP does not support non-contiguous parameters yet: param.shape={param.shape!r} "
                f"param.stride()={param.stride()!r}"
            )
        self.place, self.info, self.name = place, info, place.name
        given = placement(param) if placement is not None else None
        cut = shard(0) if given is None else normalized(given, param.ndim)
        if not isinstance(cut, Shard):
            raise AssertionError(f"Expected Shard, got {type(cut)}: {cut}")
        self.dim = cut.dim
        self.of_tp: Spec | None = None
        whole: Any = param
        if isinstance(param, DTensor):
            self.of_tp, whole = param._spec, param._local_tensor
        self.cut = _cut(param, whole, self.dim, info, self.of_tp)
        self._dtypes = dtypes
        self._take_dtypes(param.dtype)
        self.requires_grad = param.requires_grad
        self._shard(whole)
        self.accumulated: Any = None
        self.flat: Any = None
        self.whole: nn.Parameter | None = None

    def _take_dtypes(self, own: Any) -> None:
        """What is computed in and reduced in, of a parameter of a dtype."""
        wanted = self._dtypes.param_dtype
        self.orig_dtype = own
        self.param_dtype = wanted if wanted != own else None
        self.reduce_dtype = self._dtypes.reduce_dtype

    def _shard(self, whole: Any) -> None:
        cut, dim = self.cut, self.dim
        if cut.part_shape == cut.padded_shape:
            self._keep(_C._part(whole, cut.at, cut.part_shape))
        else:
            part = whole.narrow(dim, cut.at[dim], cut.part_shape[dim])
            self._keep(whole.new_zeros(cut.padded_shape)).copy_(part)
        self.sharded: Any = DTensor._of([self.own], cut.spec, self.requires_grad)._flagged()
        self.place.put(self.sharded)

    def _keep(self, padded: Any) -> Any:
        """Takes the memory of the part; gives it without what is padded."""
        cut, dim = self.cut, self.dim
        self.kept, self.own, self._part = padded, padded, padded.view(-1)
        if cut.part_shape != cut.padded_shape:
            self.own = padded.narrow(dim, 0, cut.part_shape[dim])
        return self.own

    def reset(self) -> None:
        """Takes the part again that the modules have now."""
        state, name = self.place.tables[0]
        now = state.get(name)
        if not isinstance(now, DTensor):
            now = self.sharded
        self.sharded = now
        self.place.put(now)
        local, kept, cut = now._local_tensor, self.kept, self.cut
        same = local.dtype == kept.dtype and local.device == kept.device
        if same and (local.is_meta or local.data_ptr() == kept.data_ptr()):
            self.own = local
            return
        with torch.no_grad():
            part = self._keep(local.new_zeros(cut.padded_shape))
            part.copy_(local)
            spec = cut.spec.of(TensorMeta(cut.spec.shape, cut.spec.stride, local.dtype))
            self.cut = cut._replace(spec=spec, of_grads={})
            self._take_dtypes(local.dtype)
            now._hold([part])
        self.flat = self.whole = None

    @property
    def width(self) -> int:
        """Elements of a part, padding included."""
        return self.cut.width

    @property
    def computed_dtype(self) -> Any:
        """What is computed in."""
        return self.param_dtype or self.kept.dtype

    def wanted(self) -> Any:
        """What is gathered: the padded part, flat, in the dtype that is computed in."""
        return self._part if self.param_dtype is None else self._part.to(self.param_dtype)

    def laid(self, gathered: Any) -> Any:
        """The parts of all ranks, `[ranks, elements of a part]`, as the elements of the whole lie."""
        parts, dtype = self.info.size, self.computed_dtype
        if gathered.dtype != dtype:
            gathered = gathered.contiguous().view(dtype)
        if self.dim:
            pieces = gathered.view(parts, *self.cut.padded_shape).unbind(0)
            gathered = torch.cat(list(pieces), self.dim).view(parts, -1)
        return gathered

    def make_whole(self, flat: Any) -> None:
        """Makes the whole, which has this memory."""
        if self.flat is None:
            self.flat, self.whole = flat, self._whole(flat)

    def _whole(self, flat: Any) -> Any:
        cut, dim, spec = self.cut, self.dim, self.of_tp
        whole = flat.view(cut.gathered_shape)
        if cut.gathered_shape != cut.shape:
            whole = whole.narrow(dim, 0, cut.shape[dim])
        if spec is not None:
            if spec.dtype != whole.dtype:
                spec = spec.of(TensorMeta(spec.shape, spec.stride, whole.dtype))
            return DTensor._of([whole], spec, self.requires_grad)._flagged()
        return nn.Parameter(whole, requires_grad=self.requires_grad)

    def keep_grad(self) -> None:
        """Adds the whole's gradient to those that are gathered in the dtype of the reduction."""
        grad = self.whole.grad if self.whole is not None else None
        if grad is None or self.reduce_dtype == grad.dtype:
            return
        if self.accumulated is None:
            self.accumulated = grad.to(self.reduce_dtype)
        else:
            self.accumulated += grad
        self.whole.grad = None  # type: ignore[union-attr]

    def hold_grad(self) -> None:
        """Keeps the whole's gradient until the next backward pass reduces both."""
        grad = self.whole.grad if self.whole is not None else None
        if grad is None:
            return
        self.accumulated = grad if self.accumulated is None else self.accumulated + grad
        self.whole.grad = None  # type: ignore[union-attr]

    def take_grad(self) -> Any:
        """The gradient of the whole, which is forgotten; None if there is none."""
        whole, held = self.whole, self.accumulated
        grad: Any = whole.grad if whole is not None else None
        if held is not None:
            grad, self.accumulated = held if grad is None else held + grad, None
        if grad is None:
            return None
        whole.grad = None  # type: ignore[union-attr]
        if self.of_tp is not None:
            wanted = self.of_tp.unsplit
            if grad._spec.placements != wanted:
                grad = grad.redistribute(placements=wanted)
            grad = grad._local_tensor
        return grad

    def padded_grad(self, grad: Any) -> Any:
        """A gradient as the parts that ranks get, `[ranks, elements of a part]`."""
        parts, cut = self.info.size, self.cut
        if self.dim:
            return torch.stack([p.reshape(-1) for p in grad.chunk(parts, self.dim)])
        missing = cut.padded_shape[0] * parts - cut.shape[0]
        if missing:
            grad = torch.cat([grad, grad.new_zeros([missing, *grad.shape[1:]])])
        return grad.reshape(parts, -1)

    def give_grad(self, flat: Any) -> None:
        """Adds the reduced gradient of the part, flat and padded, to the parameter's."""
        cut, dim = self.cut, self.dim
        part = flat.view(cut.padded_shape)
        if cut.part_shape != cut.padded_shape:
            part = part.narrow(dim, 0, cut.part_shape[dim])
        grad = self.sharded.grad
        if grad is not None:
            grad._local_tensor.add_(part)
            return
        self.sharded.grad = DTensor._of([part], cut.of_grad(part.dtype))
