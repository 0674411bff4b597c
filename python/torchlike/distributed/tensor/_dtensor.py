"""Tensors on meshes: one whole, of which this process has a piece (or the pieces of all ranks, on a `local` world)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike import _C
from torchlike.distributed._ops import c10d
from torchlike.distributed.device_mesh import _mesh_resources
from torchlike.distributed.tensor import _dispatch, _gradients
from torchlike.distributed.tensor._spec import Spec, TensorMeta, replicated, whole_of
from torchlike.distributed.tensor.placement_types import (
    Placement,
    _MaskPartial,
    check_mixed,
    normalized,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torchlike.distributed.device_mesh import DeviceMesh

__all__ = ["DTensor"]


class DTensor(torch.Tensor):
    """A tensor on a mesh: it has the whole's shape, and `placements` say which piece each rank has.

    Operators run on the pieces, with collectives where a rule asks for them (`tensor/_rules/`). On a `fake` world, or
    on meta, results have the right shapes and placements, and collectives the right sizes; on a `local` one values are
    right too.
    """

    _spec: Spec
    _locals: list[Any]
    _is_param: bool

    @staticmethod
    def __new__(cls: Any, local_tensor: Any, spec: Spec, *, requires_grad: bool = False) -> DTensor:
        """The tensor of this process's piece."""
        return DTensor._of([local_tensor], spec, requires_grad)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Nothing is left to do."""

    @staticmethod
    def _of(pieces: Sequence[Any], spec: Spec | None, requires_grad: bool = False) -> DTensor:
        """The tensor of these pieces, one for each rank that this process plays."""
        made: DTensor = _C._on_mesh(DTensor, spec, list(pieces), requires_grad)
        return made

    def _flagged(self) -> Any:
        """The same tensor, as a parameter: only for one that nobody else has, which spares a detached copy."""
        self._is_param = True
        return self

    def _hold(self, pieces: Sequence[Any]) -> None:
        """Notes other pieces, here and for calls that run again without Python."""
        self._locals = list(pieces)
        _C._pieces(self, self._spec, self._spec.number, self._locals)

    @property
    def _local_tensor(self) -> Any:
        """This process's piece.

        Raises:
            RuntimeError: if it has those of several ranks.
        """
        if len(self._locals) == 1:
            return self._locals[0]
        if not self._locals:
            return torch.empty(0, dtype=self.dtype, device=self.device)
        raise RuntimeError(
            f"this process plays {len(self._locals)} ranks, and has a piece for each: ask for `_locals` or "
            "`full_tensor()`"
        )

    @property
    def data(self) -> Any:
        """The same tensor without its history."""
        return super().data

    @data.setter
    def data(self, value: Any) -> None:
        if not isinstance(value, DTensor):
            raise RuntimeError(
                "Attempted to call `variable.set_data(tensor)`, but `variable` and `tensor` have incompatible "
                "tensor type. "
            )
        torch.Tensor.data.__set__(self, value)  # type: ignore[attr-defined]
        self._spec = value._spec
        self._hold(value._locals)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs an operator on the pieces."""
        return _dispatch.dispatch(func, args, kwargs or {})

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        local = self._locals[0] if len(self._locals) == 1 else self._locals
        return (
            f"DTensor(local_tensor={local}, device_mesh={self._spec.mesh}, "
            f"placements={self._spec.placements})"
        )

    def __deepcopy__(self, memo: Any) -> DTensor:
        made = DTensor._of([p.clone() for p in self._locals], self._spec, self.requires_grad)
        memo[id(self)] = made
        return made

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _rebuilt, (
            self._locals,
            self._spec.mesh,
            self._spec.placements,
            self._spec.tensor_meta,
        )

    def __tensor_flatten__(self) -> Any:
        return ["_local_tensor"], (self._spec, self.requires_grad)

    @staticmethod
    def __tensor_unflatten__(inner: Any, context: Any, size: Any = None, stride: Any = None) -> Any:
        spec, requires_grad = context
        return DTensor._of([inner["_local_tensor"]], spec, requires_grad)

    @property
    def device_mesh(self) -> DeviceMesh:
        """The mesh."""
        return self._spec.mesh

    @property
    def placements(self) -> tuple[Placement, ...]:
        """What each dimension of the mesh has of it."""
        return self._spec.placements

    @staticmethod
    def from_local(
        local_tensor: Any,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[Placement] | None = None,
        *,
        run_check: bool = False,
        shape: Any = None,
        stride: Any = None,
        grad_placements: Sequence[Placement] | None = None,
    ) -> DTensor:
        """The whole of which every rank gives its piece. Without `shape` and `stride` all pieces are taken to be alike.
        Where this process plays several ranks, each of them gives the same piece.

        Raises:
            RuntimeError: for a tensor that lies on a mesh already, or one of `shape` and `stride` without the other.
        """
        if isinstance(local_tensor, DTensor):
            raise RuntimeError(
                f"the local_tensor argument only accepts torch.Tensor but got {type(local_tensor)} value."
            )
        mesh = _mesh_resources.chosen(device_mesh)
        given = replicated(mesh) if placements is None else tuple(placements)
        if (shape is None) != (stride is None):
            raise RuntimeError(
                f"Found shape:{shape}, stride:{stride}.",
                "Please pass both shape and stride at the same time.",
            )
        local_tensor = _there(local_tensor, mesh)
        spec = _spec_of_piece(local_tensor, mesh, given)
        if shape is not None:
            spec = spec.of(TensorMeta(tuple(shape), tuple(stride), local_tensor.dtype))
        if run_check:
            for dim, p in enumerate(spec.placements):
                if p.is_replicate() and mesh.size(dim) > 1 and not local_tensor.is_meta:
                    c10d.broadcast_([local_tensor.contiguous()], mesh.get_group(dim), 0)
        wanted = tuple(grad_placements) if grad_placements else None
        made: DTensor = _C._of_piece(local_tensor, spec, wanted)
        return made

    def to_local(self, *, grad_placements: Sequence[Placement] | None = None) -> Any:
        """This process's piece; its gradient is taken to lie as `grad_placements` say.

        Raises:
            RuntimeError: if this process has the pieces of several ranks.
        """
        wanted = tuple(grad_placements) if grad_placements else None
        return _C._to_piece(self, self._local_tensor, wanted)

    def redistribute(
        self,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[Placement] | None = None,
        *,
        async_op: bool = False,
        forward_dtype: Any = None,
        backward_dtype: Any = None,
    ) -> DTensor:
        """The same whole with other placements.

        Raises:
            RuntimeError: without placements, or if it is to become partial.
            NotImplementedError: for another mesh.
        """
        if placements is None:
            raise RuntimeError("placements is needed for redistribute!")
        spec = self._spec
        if device_mesh is not None and device_mesh != spec.mesh:
            raise NotImplementedError("Cross device mesh comm not supported yet!")
        ndim = len(spec.shape)
        chosen = tuple([normalized(p, ndim) for p in placements])
        for old, new in zip(spec.placements, chosen, strict=False):
            if new.is_partial() and old != new:
                raise RuntimeError(
                    f"Can not redistribute from {old} to {new}, redistributing to Partial is for internal use only!"
                )
        if len(chosen) != len(spec.placements):
            raise ValueError(f"{len(chosen)} placements for a mesh of {spec.mesh.ndim} dimensions")
        if forward_dtype is not None:
            spec = spec.typed(forward_dtype)
        there = spec if spec.placements == chosen else spec.placed(chosen, True)
        made: DTensor = _C._elsewhere(self, spec, there, backward_dtype or self.dtype)
        return made

    def full_tensor(self, *, grad_placements: Sequence[Placement] | None = None) -> Any:
        """The whole, as a plain tensor."""
        whole = self.redistribute(placements=replicated(self.device_mesh))
        if len(whole._locals) > 1:
            return _gradients.FirstOf.apply(whole)
        return whole.to_local(grad_placements=grad_placements)

    def __create_chunk_list__(self) -> Any:
        from torchlike.distributed.checkpoint.planner_helpers import pieces_of

        return [chunk for chunk, _ in pieces_of(self)]


def _there(local: Any, mesh: DeviceMesh) -> Any:
    """A piece on a device of the mesh's type, or on meta."""
    kind = mesh._device_type
    return local if local.device.type in (kind, "meta") else local.to(kind)


def whole_of_piece(local: Any, mesh: DeviceMesh, placements: tuple[Placement, ...]) -> Any:
    """The whole, with a history, of which every rank gives such a piece."""
    local = _there(local, mesh)
    return _C._of_piece(local, _spec_of_piece(local, mesh, placements))


_specs: dict[Any, Spec] = {}
_LIMIT = 1 << 12


def _spec_of_piece(local: Any, mesh: DeviceMesh, given: tuple[Placement, ...]) -> Spec:
    """How a whole lies all of whose pieces are like this one; layers ask for the same ones again and again."""
    key = (id(mesh), given, local.shape, local.stride(), local.dtype)
    found = _specs.get(key)
    if found is None:
        chosen = tuple(normalized(p, local.ndim) for p in given)
        check_mixed(chosen)
        shape, strides = whole_of(local, mesh, chosen)
        found = Spec(mesh, chosen, TensorMeta(shape, strides, local.dtype))
        if len(_specs) >= _LIMIT:
            _specs.clear()
        if not any(isinstance(p, _MaskPartial) for p in chosen):
            # The spec holds the mesh, so nothing else gets its number.
            _specs[key] = found
    return found


def _rebuilt(pieces: Any, mesh: Any, placements: Any, meta: Any) -> DTensor:
    return DTensor._of(pieces, Spec(mesh, placements, meta))
