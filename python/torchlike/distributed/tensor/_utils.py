"""Which part of a tensor a process has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchlike.distributed.tensor._spec import whole_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torchlike.distributed.device_mesh import DeviceMesh
    from torchlike.distributed.tensor.placement_types import Placement


def compute_local_shape_and_global_offset(
    global_shape: Sequence[int],
    mesh: DeviceMesh,
    placements: Sequence[Placement],
    skip_offset: bool = False,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape of this rank's piece, and where its first element is in the whole; the offset along a dimension of
    which it has nothing is that dimension's size."""
    if not mesh._seats:
        return (0,), ()
    shape, offset = mesh._seats[0].local(list(global_shape), [p._code for p in placements])
    return tuple(shape), () if skip_offset else tuple(offset)


def compute_global_tensor_info(
    tensor: Any, mesh: DeviceMesh, placements: Sequence[Placement]
) -> tuple[list[int], list[int]]:
    """The shape and strides of the whole, if all pieces are as large as this one."""
    shape, strides = whole_of(tensor, mesh, placements)
    return list(shape), list(strides)
