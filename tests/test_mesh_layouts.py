"""Meshes made of meshes: dimensions that become several, dimensions of several slices, all slices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import torchlike.distributed as dist
from torchlike.distributed.device_mesh import DeviceMesh, init_device_mesh


@pytest.fixture(autouse=True)
def world() -> Iterator[None]:
    dist.init_process_group("fake", rank=5, world_size=8)
    yield
    dist.destroy_process_group()


def cube() -> Any:
    line = init_device_mesh("cpu", (8,), mesh_dim_names=("w",))
    return line._unflatten("w", (2, 2, 2), ("a", "b", "c"))


def test_a_dimension_becomes_several() -> None:
    mesh = cube()
    assert mesh.shape == (2, 2, 2) and mesh.mesh_dim_names == ("a", "b", "c")
    assert mesh.get_coordinate() == (1, 0, 1)
    assert mesh["b", "c"].mesh.tolist() == [[4, 5], [6, 7]]
    assert mesh["a"]._unflatten(0, (1, 2), ("p", "q")).mesh.tolist() == [[1, 5]]
    assert mesh["c"].get_group().ranks == (4, 5)


def test_slices_come_together_in_any_order() -> None:
    mesh = cube()
    joined = DeviceMesh._concatenate
    assert joined([mesh["a"], mesh["c"]]).mesh.tolist() == [[0, 1], [4, 5]]
    turned = joined([mesh["c"], mesh["a"]])
    assert turned.mesh.tolist() == [[0, 4], [1, 5]] and turned.mesh_dim_names == ("c", "a")
    flat = mesh["a", "b"]._flatten("ab")
    assert joined([flat, mesh["c"]]).mesh.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    with pytest.raises(RuntimeError, match="Cannot concatenate overlapping meshes"):
        joined([mesh["a"], mesh["a"]])
    other = init_device_mesh("cpu", (2, 4), mesh_dim_names=("x", "y"))
    with pytest.raises(RuntimeError, match="derived from different device meshs"):
        joined([mesh["a"], other["x"]])


def test_all_slices_along_a_dimension() -> None:
    found = cube()._get_all_submeshes("b")
    assert [m.mesh.tolist() for m in found] == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert all(m.mesh_dim_names == ("b",) for m in found)


def test_what_makes_no_mesh() -> None:
    line = init_device_mesh("cpu", (8,), mesh_dim_names=("w",))
    with pytest.raises(ValueError, match=r"mesh_sizes=\(2, 3\) is 6, but the original .* size 8"):
        line._unflatten(0, (2, 3), ("u", "v"))
    with pytest.raises(ValueError, match="dim 1 specified in `_unflatten` is out of range 1"):
        line._unflatten(1, (2, 4), ("u", "v"))
    with pytest.raises(RuntimeError, match="must have same length as mesh_sizes"):
        line._unflatten(0, (2, 4), ("u",))
    with pytest.raises(ValueError, match=r"duplicate entries, got \[0, 0\]"):
        DeviceMesh("cpu", [0, 0])
    with pytest.raises(ValueError, match="Rank 9 is out of range\\. Valid ranks are 0 to 7"):
        DeviceMesh("cpu", [0, 9])
