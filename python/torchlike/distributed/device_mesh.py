"""Meshes: the ranks of a world, or some of them, as an array whose dimensions can be named and sliced."""

from __future__ import annotations

import contextlib
import functools
import threading
from math import prod
from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike import _C
from torchlike.distributed import _groups, _layouts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torchlike.distributed._groups import ProcessGroup

__all__ = ["DeviceMesh", "init_device_mesh"]

# Devices in a host, where nothing says how many; processors count as one to a host, as PyTorch has it.
_PER_HOST = 8
_KEPT = 4096


class _Stack(threading.local):
    def __init__(self) -> None:
        self.meshes: list[DeviceMesh] = []

    def get_current_mesh(self) -> DeviceMesh:
        """The mesh of the innermost `with mesh:`.

        Raises:
            RuntimeError: outside of all.
        """
        if not self.meshes:
            raise RuntimeError("No device mesh is currently active!")
        return self.meshes[-1]

    def chosen(self, mesh: DeviceMesh | None) -> DeviceMesh:
        """A mesh that was given, or the current one.

        Raises:
            RuntimeError: if there is neither.
        """
        return self.get_current_mesh() if mesh is None else mesh


_mesh_resources = _Stack()


@contextlib.contextmanager
def _real() -> Iterator[None]:
    """Ranks are numbers that are known, whatever a fake mode makes of other tensors."""
    before = _C._pause_fake_mode(True)
    try:
        yield
    finally:
        _C._pause_fake_mode(before)


class DeviceMesh:
    """Ranks as an array.

    Works without a process group too, as the mesh of a world that is planned: this process then plays the first rank.
    """

    def __init__(
        self,
        device_type: str,
        mesh: Any,
        *,
        mesh_dim_names: Sequence[str] | None = None,
        backend_override: Any = None,
        _init_backend: bool = True,
        _rank: int | None = None,
        _root: DeviceMesh | None = None,
        _all: list[list[int]] | None = None,
    ) -> None:
        """`mesh`: the ranks, a tensor of integers or nested lists.

        Raises:
            RuntimeError: if it has more ranks than the world.
            ValueError: if the names do not fit the dimensions, a rank stands there twice, or is not in the world.
        """
        with _real():
            ranks = mesh if isinstance(mesh, torch.Tensor) else torch.tensor(mesh)
            ranks = ranks.detach().cpu().to(torch.int32).contiguous()
            self._flat = tuple(ranks.flatten().tolist())
        self._device_type, self._ranks = device_type, ranks
        self._shape = tuple(ranks.shape)
        self._names = tuple(mesh_dim_names) if mesh_dim_names else None
        if self._names is not None and len(self._names) != len(self._shape):
            raise RuntimeError(
                f"mesh_shape and mesh_dim_names should have same length! Found len(mesh_dim_names): "
                f"{len(self._names)} and len(mesh_shape):{len(self._shape)}."
            )
        if len(set(self._flat)) < len(self._flat):
            raise ValueError(
                f"ranks list must not contain duplicate entries, got {list(self._flat)}"
            )
        self._root = _root
        self._flattened: dict[str, DeviceMesh] = {}
        self._world = _groups.at_least(max(self._flat, default=0) + 1)
        size, last = self._world.size, max(self._flat, default=0)
        if len(self._flat) > size:
            raise RuntimeError(
                f"Mesh should not be bigger than default world size {size}, but found {len(self._flat)} ranks!"
            )
        if last >= size:
            raise ValueError(
                f"Rank {last} is out of range. Valid ranks are 0 to {size - 1} (world_size={size})"
            )
        self._rank = self._world.rank if _rank is None else _rank
        here = self._world.here if _rank is None else (_rank,)
        self._here = tuple(r for r in here if r in self._flat)
        self._seats = [
            _C._Mesh(list(self._shape), self._position(r), self._hosts()) for r in self._here
        ]
        self._groups: list[ProcessGroup] | None = None
        # What others found out about tensors on it.
        self._known: dict[Any, Any] = {}
        self._hash = hash((self._flat, self._shape, device_type, self._names))

    def _note(self, key: Any, value: Any) -> None:
        """Keeps what somebody found out."""
        if len(self._known) >= _KEPT:
            self._known.clear()
        self._known[key] = value

    def _hosts(self) -> int:
        return 1 if self._device_type == "cpu" else _PER_HOST

    @functools.cached_property
    def _places(self) -> list[list[int]]:
        """The positions of the ranks that this process plays."""
        return [self._position(rank) for rank in self._here]

    def _position(self, rank: int) -> list[int]:
        place, position = self._flat.index(rank), []
        for size in reversed(self._shape):
            position.append(place % size)
            place //= size
        return position[::-1]

    @property
    def device_type(self) -> str:
        """The type of its devices."""
        return self._device_type

    @property
    def mesh(self) -> torch.Tensor:
        """The ranks, int32."""
        return self._ranks

    @property
    def mesh_dim_names(self) -> tuple[str, ...] | None:
        """The names of the dimensions, if they have some."""
        return self._names

    @property
    def ndim(self) -> int:
        """How many dimensions it has."""
        return len(self._shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """How many ranks there are along each."""
        return self._shape

    def size(self, mesh_dim: int | None = None) -> int:
        """How many ranks there are, along one dimension or at all."""
        return prod(self._shape) if mesh_dim is None else self._shape[mesh_dim]

    def __len__(self) -> int:
        return self._shape[0] if self._shape else 0

    def __repr__(self) -> str:
        if self._names:
            sizes = ", ".join(f"{n}={s}" for n, s in zip(self._names, self._shape, strict=True))
            text = f"({sizes})"
        else:
            text = str(self._shape)
        return f"DeviceMesh({text}, '{self._device_type}', stride={self._strides()})"

    def _strides(self) -> tuple[int, ...]:
        """How far ranks that are neighbours along a dimension are apart."""
        found = []
        for dim, size in enumerate(self._shape):
            step = prod(self._shape[dim + 1 :])
            found.append(self._flat[step] - self._flat[0] if size > 1 else step)
        return tuple(found)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, DeviceMesh):
            return False
        mine = (self._flat, self._shape, self._device_type, self._names)
        return mine == (other._flat, other._shape, other._device_type, other._names)

    def __enter__(self) -> DeviceMesh:
        _mesh_resources.meshes.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _mesh_resources.meshes.pop()

    def __getstate__(self) -> dict[str, Any]:
        return {
            "device_type": self._device_type,
            "mesh": self._ranks.tolist(),
            "mesh_dim_names": self._names,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        device_type, mesh = state["device_type"], state["mesh"]
        self.__init__(device_type, mesh, mesh_dim_names=state["mesh_dim_names"])  # type: ignore[misc]

    def _number(self, dim: int | str) -> int:
        if isinstance(dim, int):
            return dim
        if not self._names:
            raise KeyError("No `mesh_dim_names` found.")
        if dim not in self._names:
            raise KeyError(
                f"Mesh dimension '{dim}' does not exist.",
                f"Available mesh dimensions are: mesh_dim_names={self._names}",
            )
        return self._names.index(dim)

    def get_rank(self) -> int:
        """The rank of this process in the world."""
        return self._rank

    def get_coordinate(self) -> tuple[int, ...] | None:
        """Where this process's rank is; None if it is not in the mesh."""
        return tuple(self._position(self._rank)) if self._rank in self._flat else None

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """Where this process's rank is along a dimension.

        Raises:
            RuntimeError: without a dimension, if there are several.
        """
        if mesh_dim is None:
            if self.ndim > 1:
                raise RuntimeError(
                    f"Found the DeviceMesh have {self.ndim} dimensions",
                    "Optional kwarg `mesh_dim` needs to be specified when device_mesh.ndim > 1.",
                )
            mesh_dim = 0
        position = self.get_coordinate()
        if position is None:
            raise RuntimeError(f"rank {self._rank} is not part of {self!r}")
        return position[self._number(mesh_dim)]

    def _is_current_rank_part_of_mesh(self) -> bool:
        return bool(self._here)

    def _peers(self, dim: int, rank: int) -> tuple[int, ...]:
        """The ranks along a dimension, among which one is."""
        return self._along(dim, self._position(rank))

    @_real()
    def _along(self, dim: int, position: Sequence[int]) -> tuple[int, ...]:
        """The ranks along a dimension, from a position."""
        ranks = self._ranks
        for i, p in reversed(list(enumerate(position))):
            if i != dim:
                ranks = ranks.select(i, p)
        return tuple(ranks.tolist())

    def _dim_groups(self) -> list[ProcessGroup]:
        """A group for each dimension, in which this process's rank is."""
        if self._groups is None:
            position = self.get_coordinate() or (0,) * self.ndim
            self._groups = [self._group(self._along(d, position)) for d in range(self.ndim)]
        return self._groups

    def _group(self, ranks: tuple[int, ...]) -> ProcessGroup:
        if _groups.is_initialized():
            self._world = _groups.world()
        known = (g for g in self._world.groups.values() if g.ranks == ranks)
        return next(known, None) or self._world.add(ranks, "mesh")

    def get_group(self, mesh_dim: int | str | None = None) -> ProcessGroup:
        """The group of the ranks along a dimension.

        Raises:
            RuntimeError: without a dimension, if there are several.
        """
        if mesh_dim is None:
            if self.ndim > 1:
                raise RuntimeError(
                    f"Found the DeviceMesh have {self.ndim} dimensions",
                    "Optional kwarg `mesh_dim` needs to be specified when device_mesh.ndim > 1.",
                    "If you want to get the list of all the ProcessGroups in the DeviceMesh,"
                    "please use `get_all_groups()` instead.",
                )
            mesh_dim = 0
        flat = self._get_root_mesh()._flattened
        if isinstance(mesh_dim, str) and mesh_dim in flat:
            return flat[mesh_dim].get_group()
        return self._dim_groups()[self._number(mesh_dim)]

    def get_all_groups(self) -> list[ProcessGroup]:
        """The groups along all dimensions."""
        return list(self._dim_groups())

    @property
    def _dim_group_names(self) -> list[str]:
        return [g.group_name for g in self._dim_groups()]

    def _get_root_mesh(self) -> DeviceMesh:
        return self._root or self

    def _get_root_mesh_dim(self) -> int | None:
        root = self._get_root_mesh()
        return root._number(self._names[0]) if self._names else None

    def _get_mesh_dim_by_name(self, name: str) -> int:
        return self._number(name)

    def __getitem__(self, mesh_dim_names: str | tuple[str, ...]) -> DeviceMesh:
        """The mesh of some dimensions, in which this process's rank is.

        Raises:
            RuntimeError: if the dimensions have no names.
            KeyError: for names that are none of theirs, or stand in another order.
        """
        if not self._names:
            raise RuntimeError("Cannot slice a DeviceMesh without mesh_dim_names!")
        names = (mesh_dim_names,) if isinstance(mesh_dim_names, str) else tuple(mesh_dim_names)
        if names == self._names:
            return self
        flat = self._get_root_mesh()._flattened
        if len(names) == 1 and names[0] in flat:
            return flat[names[0]]
        known = [*self._names, *flat]
        if not all(n in known for n in names):
            raise KeyError(
                f"Invalid mesh_dim_names {names} specified. Valid mesh_dim_names are {known}."
            )
        dims = [self._number(n) for n in names]
        if dims != sorted(set(dims)):
            raise KeyError(
                f"Invalid mesh_dim_names {names} specified. Mesh dim indices should be in ascending order."
            )
        return self._slice(dims, names)

    @_real()
    def _slice(self, dims: list[int], names: tuple[str, ...] | None) -> DeviceMesh:
        ranks = self._ranks
        position = self.get_coordinate() or (0,) * self.ndim
        for i in reversed(range(self.ndim)):
            if i not in dims:
                ranks = ranks.select(i, position[i])
        if len(self._here) > 1:
            return _Slices(self, dims, ranks, names)
        return DeviceMesh(
            self._device_type, ranks, mesh_dim_names=names, _root=self._get_root_mesh()
        )

    @_real()
    def _flatten(
        self, mesh_dim_name: str | None = None, backend_override: Any = None
    ) -> DeviceMesh:
        """All dimensions as one, which has a name."""
        root = self._get_root_mesh()
        name = mesh_dim_name or "_".join(self._names or ())
        if name in (root._names or ()) and self.ndim > 1:
            raise ValueError(
                f"{name} already exists for submesh of the {root}. ",
                f"The mesh_dim_names of submesh and flattened mesh are {root._names}. "
                "Please specify another valid mesh_dim_name.",
            )
        made = DeviceMesh(
            self._device_type, self._ranks.flatten(), mesh_dim_names=(name,), _root=root
        )
        known = root._flattened.setdefault(name, made)
        if known != made:
            raise ValueError(
                f"Flatten mesh with mesh_dim_name {name} has been created before, "
                "Please specify another valid mesh_dim_name."
            )
        return known

    def _unflatten(
        self,
        dim: int | str,
        mesh_sizes: tuple[int, ...],
        mesh_dim_names: tuple[str, ...],
        backend_override: Any = None,
    ) -> DeviceMesh:
        """The mesh in which a dimension is several."""
        return _layouts.unflattened(self, dim, tuple(mesh_sizes), tuple(mesh_dim_names))

    @staticmethod
    def _concatenate(device_mesh_list: list[DeviceMesh]) -> DeviceMesh:
        """The mesh of the dimensions of several meshes, which are slices of one."""
        return _layouts.concatenated(device_mesh_list)

    def _get_all_submeshes(self, mesh_dim_name: str) -> list[DeviceMesh]:
        """The slices along a dimension, at all positions in the others."""
        return _layouts.slices(self, self._number(mesh_dim_name), mesh_dim_name)

    @staticmethod
    def from_group(
        group: Any,
        device_type: str,
        mesh: Any = None,
        *,
        mesh_dim_names: Sequence[str] | None = None,
    ) -> DeviceMesh:
        """The mesh of a group, or of a group for each dimension, whose ranks `mesh` then has to say.

        Raises:
            ValueError: without `mesh`, for several groups.
        """
        if isinstance(group, list) and len(group) > 1:
            if mesh is None:
                raise ValueError("Must pass mesh if passing multiple ProcessGroups")
            return DeviceMesh(device_type, mesh, mesh_dim_names=mesh_dim_names)
        one = group[0] if isinstance(group, list) else group
        return DeviceMesh(device_type, list(one.ranks), mesh_dim_names=mesh_dim_names)


class _Slices(DeviceMesh):
    """Some dimensions of a mesh of which this process plays several ranks: all their slices at once."""

    def __init__(self, of: DeviceMesh, dims: list[int], ranks: Any, names: Any) -> None:
        super().__init__(of._device_type, ranks, mesh_dim_names=names, _root=of._get_root_mesh())
        self._here = of._here
        positions = [of._position(r) for r in of._here]
        self._of, self._dims = of, dims
        self._seats = [
            _C._Mesh(list(self._shape), [p[d] for d in dims], self._hosts()) for p in positions
        ]

    def _position(self, rank: int) -> list[int]:
        if "_dims" not in self.__dict__:
            return super()._position(rank)
        whole = self._of._position(rank)
        return [whole[d] for d in self._dims]

    def _peers(self, dim: int, rank: int) -> tuple[int, ...]:
        return self._of._peers(self._dims[dim], rank)


def init_device_mesh(
    device_type: str,
    mesh_shape: tuple[int, ...],
    *,
    mesh_dim_names: Sequence[str] | None = None,
    backend_override: Any = None,
) -> DeviceMesh:
    """A mesh of the first ranks of the world, in order.

    Raises:
        RuntimeError: if the names are not as many as the dimensions, or equal, or the world is too small.
    """
    shape = tuple(mesh_shape)
    if mesh_dim_names is not None:
        if len(set(mesh_dim_names)) != len(mesh_dim_names):
            raise RuntimeError(
                "Each mesh_dim_name must be unique. "
                f"Found repeated mesh_dim_name in mesh_dim_names {mesh_dim_names}"
            )
        if len(shape) != len(mesh_dim_names):
            raise RuntimeError(
                "mesh_shape and mesh_dim_names should have same length! "
                f"Found len(mesh_dim_names): {len(mesh_dim_names)} and len(mesh_shape):{len(shape)}."
            )
    if device_type and not device_type.isalpha():
        raise RuntimeError(
            f"Device type with index is not supported but got {device_type}. ",
            "If you maintained a 'torch.device' object, it's recommended to pass in 'device.type'.",
        )
    count = prod(shape)
    if count > 1 << 24:
        raise RuntimeError(f"a mesh of {count} ranks is larger than torchlike plans")
    with _real(), torch.device("cpu"):
        mesh = torch.arange(count, dtype=torch.int32).view(shape)
    return DeviceMesh(device_type, mesh, mesh_dim_names=mesh_dim_names)
