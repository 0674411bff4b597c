"""A model of PyTorch's CUDA caching allocator: what it hands out and what it holds while a plan's storages come and go.

The rules are those of `c10/cuda/CUDACachingAllocator` with its defaults: sizes are multiples of 512 bytes; up to 1
MiB comes from
segments of 2 MiB, less than 10 MiB from segments of 20 MiB, more from segments that are multiples of 2 MiB; the
smallest free block
that is large enough is taken, and split if what remains is worth it; neighbours that are free become one.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass

ROUND = 512
SMALL = 1 << 20
SMALL_SEGMENT = 2 << 20
LARGE_SEGMENT = 20 << 20
LARGE_FROM = 10 << 20
ROUND_LARGE = 2 << 20


def rounded(size: int) -> int:
    """The bytes of the block that a request is given."""
    return max(ROUND, -(-size // ROUND) * ROUND)


def segment_size(size: int) -> int:
    """The bytes that are asked of the device for a block of a size."""
    if size <= SMALL:
        return SMALL_SEGMENT
    if size < LARGE_FROM:
        return LARGE_SEGMENT
    return -(-size // ROUND_LARGE) * ROUND_LARGE


@dataclass(eq=False)
class Block:
    """A run of bytes of a segment."""

    address: int
    size: int
    small: bool
    free: bool = True
    before: Block | None = None
    after: Block | None = None


class Cache:
    """The allocator: `take` and `give_back`, and what is in use and held."""

    def __init__(self) -> None:
        self._pools: dict[bool, list[tuple[int, int, Block]]] = {True: [], False: []}
        self._next = 1 << 40
        self.segments: list[Block] = []
        self.allocated = self.reserved = 0
        self.most_allocated = self.most_reserved = 0

    def take(self, size: int) -> Block:
        """A block for a request."""
        wanted = rounded(size)
        small = wanted <= SMALL
        pool = self._pools[small]
        at = bisect_left(pool, (wanted, 0))
        block = pool.pop(at)[2] if at < len(pool) else self._segment(wanted, small)
        rest = block.size - wanted
        if rest >= ROUND if small else rest > SMALL:
            self._split(block, wanted)
        block.free = False
        self.allocated += block.size
        self.most_allocated = max(self.most_allocated, self.allocated)
        return block

    def give_back(self, block: Block) -> None:
        """Frees a block, which joins free neighbours."""
        self.allocated -= block.size
        block.free = True
        if block.before is not None and block.before.free:
            self._forget(block.before)
            block = self._join(block.before, block)
        if block.after is not None and block.after.free:
            self._forget(block.after)
            block = self._join(block, block.after)
        self._keep(block)

    def _segment(self, size: int, small: bool) -> Block:
        block = Block(self._next, segment_size(size), small)
        self._next += block.size + ROUND_LARGE
        self.reserved += block.size
        self.most_reserved = max(self.most_reserved, self.reserved)
        self.segments.append(Block(block.address, block.size, small))
        return block

    def _split(self, block: Block, size: int) -> None:
        rest = Block(block.address + size, block.size - size, block.small, True, block, block.after)
        if block.after is not None:
            block.after.before = rest
        block.after, block.size = rest, size
        self._keep(rest)

    def _join(self, first: Block, second: Block) -> Block:
        first.size += second.size
        first.after = second.after
        if second.after is not None:
            second.after.before = first
        return first

    def _keep(self, block: Block) -> None:
        insort(self._pools[block.small], (block.size, block.address, block))

    def _forget(self, block: Block) -> None:
        pool = self._pools[block.small]
        pool.pop(bisect_left(pool, (block.size, block.address)))


@dataclass(frozen=True)
class Memory:
    """What a plan needs of an allocator at most, in bytes."""

    requested: int
    """What storages ask for."""
    allocated: int
    """What the blocks that they are given hold."""
    reserved: int
    """What the allocator has taken from the device."""
    segments: int
    """How many pieces it took."""
