"""A plan's steps and storages as JSON, and what answers for a recording that was read back."""

from __future__ import annotations

from typing import Any

from torchlike import _C
from torchlike.plan._allocator import rounded

FORMAT = 2
OURS = "torchlike-cpu"
"""The allocator whose sizes are its own code's: what it counts is kept with the plan."""


def dump(program: Any) -> dict[str, Any]:
    """All steps and values of a recording."""
    steps, values = program.counts()
    return {
        "format": FORMAT,
        "devices": program.devices(),
        "steps": [program.step(i) for i in range(steps)],
        "values": [program.value(i) for i in range(values)],
        "unmeasured": program.unmeasured(),
        "sizes": program.sizes(OURS),
    }


class Saved:
    """A recording that was read back."""

    def __init__(self, data: dict[str, Any]) -> None:
        if data.get("format") != FORMAT:
            raise ValueError("not a plan that Plan.save wrote, or one of another version")
        self.data = data

    def devices(self) -> list[str]:
        """The devices of storages."""
        return list(self.data["devices"])

    def counts(self) -> tuple[int, int]:
        """How many steps and values there are."""
        return len(self.data["steps"]), len(self.data["values"])

    def unmeasured(self) -> list[str]:
        """Operators whose kernels take memory of which nothing says how much."""
        return list(self.data.get("unmeasured", ()))

    def step(self, at: int) -> Any:
        """A step by its number."""
        steps = self.data["steps"]
        return tuple(steps[at]) if 0 <= at < len(steps) else None

    def value(self, at: int) -> Any:
        """A value by its number."""
        return self.data["values"][at]

    def sizes(self, allocator: str) -> list[int]:
        """How many bytes an allocator counts for each value."""
        if allocator == OURS:
            return list(self.data["sizes"])
        asked = [value[0] for value in self.data["values"]]
        return [rounded(n) if n else 0 for n in asked] if allocator == "torch-cuda" else asked

    def timeline(self, on: str, allocator: str) -> list[list[int]]:
        """Bytes by class at each step."""
        sizes = self.sizes(allocator)
        count = max(len(self.data["steps"]), 1)
        classes = len(_C._Program.classes())
        change = [[0] * classes for _ in range(count + 1)]
        for size, value in zip(sizes, self.data["values"], strict=True):
            _, _, _, device, born, died, kind, _ = value
            start, end = born or 0, count if died is None else died
            if device == on and start < end:
                change[min(start, count)][kind] += size
                change[min(end, count)][kind] -= size
        now, rows = [0] * classes, []
        for row in change[:count]:
            now = [a + b for a, b in zip(now, row, strict=True)]
            rows.append(now)
        return rows

    def peak(self, on: str, allocator: str) -> tuple[int, list[int]]:
        """The step at which most bytes live, and how many by class."""
        best, sums = 0, [0] * len(_C._Program.classes())
        for i, row in enumerate(self.timeline(on, allocator)):
            if sum(row) > sum(sums):
                best, sums = i, row
        return best, sums

    def live(self, on: str, step: int) -> list[int]:
        """The numbers of the values that live at a step, the largest first."""
        found = [
            i
            for i, (size, _, _, device, born, died, _, _) in enumerate(self.data["values"])
            if device == on
            and size
            and (born is None or born <= step)
            and (died is None or died > step)
        ]
        return sorted(found, key=lambda i: (-self.data["values"][i][0], i))

    def flops(self) -> dict[str, list[int]]:
        """FLOPs by module and phase."""
        sums: dict[str, list[int]] = {}
        for _, phase, scope, flops, _, _ in self.data["steps"]:
            sums.setdefault(scope, [0, 0, 0])[phase] += flops
        return sums
