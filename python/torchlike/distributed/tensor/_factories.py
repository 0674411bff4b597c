"""Factories of tensors on meshes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike.distributed.device_mesh import _mesh_resources
from torchlike.distributed.tensor import _moves
from torchlike.distributed.tensor._dtensor import DTensor
from torchlike.distributed.tensor._spec import Spec, TensorMeta, contiguous
from torchlike.distributed.tensor.placement_types import Placement, Replicate, normalized

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torchlike.distributed.device_mesh import DeviceMesh

__all__ = ["empty", "full", "ones", "rand", "randn", "zeros"]


def _sizes(size: Any) -> tuple[int, ...]:
    if len(size) == 1 and not isinstance(size[0], int):
        return tuple(size[0])
    return tuple(size)


def _made(
    size: tuple[int, ...],
    fill: Callable[..., Any],
    dtype: Any,
    requires_grad: bool,
    device_mesh: DeviceMesh | None,
    placements: Sequence[Placement] | None,
    drawn: bool = False,
) -> DTensor:
    mesh = _mesh_resources.chosen(device_mesh)
    chosen = tuple(placements or [Replicate()] * mesh.ndim)
    if len(chosen) != mesh.ndim:
        raise AssertionError("mesh dimension does not match the length of placements")
    chosen = tuple(normalized(p, len(size)) for p in chosen)
    meta = TensorMeta(size, contiguous(size), dtype or torch.get_default_dtype())
    spec = Spec(mesh, chosen, meta)
    options = {"dtype": dtype, "device": mesh.device_type}
    if drawn and mesh.device_type != "meta":
        whole = fill(size, **options)
        pieces = [_moves.own_part(whole, spec, seat) for seat in range(len(mesh._seats))]
    else:
        pieces = [fill(shape, **options) for shape in spec.locals()]
    if pieces:
        spec = spec.of(TensorMeta(size, contiguous(size), pieces[0].dtype))
    return DTensor._of(pieces, spec, requires_grad)


def _factory(name: str, says: str, fill: Callable[..., Any], drawn: bool = False) -> Any:
    """A factory of wholes of some sizes; `drawn`: of numbers that one device would draw."""

    def factory(
        *size: Any,
        dtype: Any = None,
        layout: Any = torch.strided,
        requires_grad: bool = False,
        device_mesh: DeviceMesh | None = None,
        placements: Sequence[Placement] | None = None,
    ) -> DTensor:
        return _made(_sizes(size), fill, dtype, requires_grad, device_mesh, placements, drawn)

    factory.__name__ = factory.__qualname__ = name
    factory.__doc__ = says
    return factory


ones = _factory("ones", "A whole of ones.", torch.ones)
zeros = _factory("zeros", "A whole of zeros.", torch.zeros)
empty = _factory("empty", "A whole of which nobody has written the elements.", torch.empty)
rand = _factory(
    "rand",
    "A whole of uniform numbers between 0 and 1: those that one device would draw.",
    torch.rand,
    drawn=True,
)
randn = _factory(
    "randn",
    "A whole of normal numbers: those that one device would draw.",
    torch.randn,
    drawn=True,
)


def full(
    size: Any,
    fill_value: Any,
    *,
    dtype: Any = None,
    layout: Any = torch.strided,
    requires_grad: bool = False,
    device_mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
) -> DTensor:
    """A whole of one value."""

    def fill(shape: Any, **options: Any) -> Any:
        return torch.full(shape, fill_value, **options)

    sizes = _sizes((size,) if not isinstance(size, int) else size)
    return _made(sizes, fill, dtype, requires_grad, device_mesh, placements)
