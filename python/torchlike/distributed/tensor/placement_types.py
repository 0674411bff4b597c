"""How a tensor lies on a mesh."""

from __future__ import annotations

from dataclasses import dataclass

from torchlike import _absent

__all__ = ["Partial", "Placement", "Replicate", "Shard"]


class Placement:
    """What one dimension of a mesh has of a tensor."""

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether each device has a part, along `dim` if it is given."""
        return isinstance(self, Shard) and (dim is None or self.dim == dim)

    def is_replicate(self) -> bool:
        """Whether each device has the whole."""
        return isinstance(self, Replicate)

    def is_partial(self, reduce_op: str | None = None) -> bool:
        """Whether each device has a part of a sum, or of another reduction."""
        return isinstance(self, Partial) and (reduce_op is None or self.reduce_op == reduce_op)


@dataclass(frozen=True)
class Shard(Placement):
    """Each device has a part along a dimension."""

    dim: int

    def __str__(self) -> str:
        return f"S({self.dim})"


@dataclass(frozen=True)
class Replicate(Placement):
    """Each device has the whole."""

    def __str__(self) -> str:
        return "R"

    def __repr__(self) -> str:
        return "Replicate()"


@dataclass(frozen=True)
class Partial(Placement):
    """Each device has a part of a reduction that is not done yet."""

    reduce_op: str = "sum"

    def __str__(self) -> str:
        return f"P({self.reduce_op})"

    def __repr__(self) -> str:
        return f"Partial({self.reduce_op})"


_StridedShard = _absent.kind(__name__, "_StridedShard", "there are no process groups")
