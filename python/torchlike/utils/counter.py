"""Counting what a computation comes down to: kernels and views, their floating-point operations and bytes."""

from __future__ import annotations

from typing import NamedTuple

from .. import _C


class Count(NamedTuple):
    """What was counted of one operator."""

    calls: int
    """How often it ran."""
    flops: int
    """Floating-point operations, multiplications and additions each counted, where the operator's row states them."""
    bytes: int
    """Bytes of the storages of its results; views make none."""


class Counter:
    """Counts the leaves of all calls on this thread while it is entered: kernels and views, not what is made of them.

    Works on every device. Counters nest; an outer one also counts what an inner one saw.

    >>> with Counter() as c:
    ...     torchlike.nn.functional.linear(x, w)
    >>> c["linear"].flops
    """

    def __init__(self) -> None:
        self.counts: dict[str, Count] = {}
        """What was counted, by the operator's name in the table."""

    def __enter__(self) -> Counter:
        _C._count(True)
        return self

    def __exit__(self, *exc: object) -> None:
        self.counts = {name: Count(*numbers) for name, *numbers in _C._count(False)}

    def __getitem__(self, name: str) -> Count:
        """The counts of an operator; zeros if it was not called."""
        return self.counts.get(name, Count(0, 0, 0))

    @property
    def total(self) -> Count:
        """All operators together."""
        return (
            Count(*map(sum, zip(*self.counts.values(), strict=True)))
            if self.counts
            else Count(0, 0, 0)
        )

    def __str__(self) -> str:
        """A table, most bytes first."""
        rows = sorted(self.counts.items(), key=lambda item: (-item[1].bytes, item[0]))
        lines = [f"{'operator':<32}{'calls':>10}{'flops':>16}{'bytes':>16}"]
        lines += [f"{name:<32}{c.calls:>10,}{c.flops:>16,}{c.bytes:>16,}" for name, c in rows]
        return "\n".join(lines)
