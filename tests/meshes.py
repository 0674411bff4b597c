"""Tensors on meshes, for tests that compare them with plain ones."""

from __future__ import annotations

from typing import Any

from torchlike.distributed.device_mesh import DeviceMesh
from torchlike.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

# What PyTorch refuses too: views of what is cut unevenly, means over parts of several sizes, extremes of nothing.
REFUSED = (
    "unevenly|evenly sharded|invalid for input of size|requires redistribution|without redistribution|non-zero size|"
    "numel\\(\\) == 0|empty tensor|at least one element|in-place operations|to P\\(sum\\) not supported yet"
)


def options(t: Any) -> list[Any]:
    """The placements of a tensor along one dimension of a mesh."""
    found: list[Any] = [Replicate(), *(Shard(d) for d in range(t.ndim))]
    return [*found, Partial()] if t.dtype.is_floating_point else found


def placed(t: Any, mesh: DeviceMesh, placements: Any) -> DTensor:
    """The tensor on the mesh; what is partial is cut into terms that sum up to it."""
    whole = [Replicate() if p.is_partial() else p for p in placements]
    made = distribute_tensor(t, mesh, whole)
    terms = {1: (1.0,), 2: (0.75, 0.25), 3: (0.5, 0.75, -0.25)}
    pieces = []
    for piece, rank in zip(made._locals, mesh._here, strict=True):
        at = mesh._position(rank)
        for dim, p in enumerate(placements):
            if p.is_partial():
                piece = piece * terms[mesh.size(dim)][at[dim]]
        pieces.append(piece)
    return DTensor._of(pieces, made._spec.placed(placements))
