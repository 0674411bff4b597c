"""Meshes that are made of other meshes: dimensions that become several, dimensions of several meshes, all slices."""

from __future__ import annotations

import itertools
from math import prod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchlike.distributed.device_mesh import DeviceMesh


def unflattened(
    mesh: DeviceMesh, dim: int | str, sizes: tuple[int, ...], names: tuple[str, ...]
) -> DeviceMesh:
    """The mesh in which a dimension is several.

    Raises:
        ValueError: if there is no such dimension, or its size is not the product of the new ones.
        RuntimeError: if there are not as many names as sizes.
    """
    from torchlike.distributed.device_mesh import DeviceMesh

    known = mesh.mesh_dim_names
    if isinstance(dim, int) and dim >= mesh.ndim:
        raise ValueError(f"dim {dim} specified in `_unflatten` is out of range {mesh.ndim}")
    if isinstance(dim, str) and dim not in (known or ()):
        raise ValueError(f"dim {dim} specified in `_unflatten` is not in {known}")
    if len(sizes) != len(names):
        raise RuntimeError("mesh_dim_names must have same length as mesh_sizes in _unflatten!")
    assert known is not None, "a mesh without names has no dimension to unflatten"
    at = mesh._number(dim) % mesh.ndim
    if prod(sizes) != mesh.size(at):
        raise ValueError(
            f"The product of mesh_sizes={sizes} is {prod(sizes)}, but the original dimension at dim={at} has size "
            f"{mesh.size(at)}. These must be equal for unflatten to work correctly."
        )
    shape = (*mesh.shape[:at], *sizes, *mesh.shape[at + 1 :])
    named = (*known[:at], *names, *known[at + 1 :])
    return DeviceMesh(mesh.device_type, _nested(list(mesh._flat), shape), mesh_dim_names=named)


def _nested(ranks: list[int], shape: tuple[int, ...]) -> Any:
    """Ranks in lists of this shape."""
    for size in reversed(shape[1:]):
        ranks = [ranks[i : i + size] for i in range(0, len(ranks), size)]  # type: ignore[misc]
    return ranks


def concatenated(meshes: list[DeviceMesh]) -> DeviceMesh:
    """The mesh of the dimensions of several slices of one mesh, in this order.

    Raises:
        RuntimeError: if they are slices of several meshes, or have ranks along a dimension in common.
    """
    from torchlike.distributed.device_mesh import DeviceMesh

    root = meshes[0]._get_root_mesh()
    if any(m._get_root_mesh() != root for m in meshes):
        raise RuntimeError("Cannot concatenate DeviceMeshes derived from different device meshs")
    names = tuple(n for m in meshes for n in m.mesh_dim_names or ())
    if all(n in (root.mesh_dim_names or ()) for n in names):
        dims = [root._number(n) for n in names]
        if dims == sorted(set(dims)):
            return root if len(dims) == root.ndim else root._slice(dims, names)
    axes = [axis for m in meshes for axis in _axes(m, root)]
    here = root._flat.index(root._rank) if root._rank in root._flat else 0
    start = here - sum(at * step for at, _, step in axes)
    shape = tuple(size for _, size, _ in axes)
    places = [
        start + sum(i * step for i, (_, _, step) in zip(position, axes, strict=True))
        for position in itertools.product(*map(range, shape))
    ]
    if len(set(places)) < len(places) or not all(0 <= p < len(root._flat) for p in places):
        raise RuntimeError(f"Cannot concatenate overlapping meshes: {meshes}")
    ranks = _nested([root._flat[p] for p in places], shape)
    return DeviceMesh(meshes[0].device_type, ranks, mesh_dim_names=names, _root=root)


def _axes(mesh: DeviceMesh, root: DeviceMesh) -> list[tuple[int, int, int]]:
    """For each dimension: where this process's rank is, the size, and how far neighbours are apart in the root."""
    position = mesh.get_coordinate() or (0,) * mesh.ndim
    places = [root._flat.index(r) for r in mesh._flat]
    found = []
    for dim, size in enumerate(mesh.shape):
        step = prod(mesh.shape[dim + 1 :])
        found.append((position[dim], size, places[step] - places[0] if size > 1 else 0))
    return found


def slices(mesh: DeviceMesh, dim: int, name: str) -> list[DeviceMesh]:
    """The slices of a mesh along a dimension, at all positions in the others."""
    from torchlike.distributed.device_mesh import DeviceMesh

    others = [range(1 if d == dim else n) for d, n in enumerate(mesh.shape)]
    lines = [mesh._along(dim, position) for position in itertools.product(*others)]
    return [DeviceMesh(mesh.device_type, list(line), mesh_dim_names=(name,)) for line in lines]
