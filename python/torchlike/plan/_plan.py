"""What a plan says."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from torchlike import _C

CLASSES: list[str] = _C._Program.classes()
PHASES = (("forward", 0), ("backward", 1), ("optimizer", 2))

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def human(n: float) -> str:
    """A number of bytes for people: `1.5 GiB`."""
    unit = 0
    while abs(n) >= 1024 and unit < len(_UNITS) - 1:
        n, unit = n / 1024, unit + 1
    return f"{n:.0f} {_UNITS[unit]}" if unit == 0 else f"{n:.2f} {_UNITS[unit]}"


def _allocator_of(device: str) -> str:
    return "torch-cuda" if device.startswith("cuda") else "torchlike-cpu"


@dataclass(frozen=True)
class Step:
    """A leaf that runs."""

    index: int
    op: str
    phase: str
    module: str
    flops: int
    read: int
    wrote: int


@dataclass(frozen=True)
class Live:
    """A storage that lives."""

    bytes: int
    kind: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    made_by: str
    module: str


@dataclass(frozen=True)
class Peak:
    """The moment when a device holds most."""

    bytes: int
    """As the device's allocator counts them."""
    at: Step | None
    by_class: dict[str, int]
    live: list[Live] = field(repr=False)
    """What is alive then, the largest first."""


@dataclass(frozen=True)
class Verification:
    """A plan beside a run for real."""

    predicted: int
    measured: int

    @property
    def equal(self) -> bool:
        """True if both are the same number of bytes."""
        return self.predicted == self.measured

    def __str__(self) -> str:
        said = "equal" if self.equal else f"{self.measured - self.predicted:+,} bytes"
        return f"predicted {self.predicted:,} bytes, measured {self.measured:,} bytes: {said}"


class Plan:
    """What a step of a model needs: `print(plan)` is the report, `plan.peak` and `plan.flops` are its numbers."""

    def __init__(self, program: Any, question: dict[str, Any]) -> None:
        self._program = program
        self._question = question
        self.steps, self.values = program.counts()
        self.devices: list[str] = program.devices()
        self.peak: dict[str, Peak] = {d: self._peak(d) for d in self.devices}

    # Numbers.

    def _peak(self, device: str) -> Peak:
        at, sums = self._program.peak(device, _allocator_of(device))
        live = [self._live(i) for i in self._program.live(device, at)]
        by_class = {name: n for name, n in zip(CLASSES, sums, strict=True) if n}
        return Peak(sum(sums), self.step(at), by_class, live)

    def _live(self, i: int) -> Live:
        size, dtype, shape, _, born, _, kind, name = self._program.value(i)
        made = self.step(born) if born is not None else None
        return Live(
            size, CLASSES[kind], name or "", dtype, tuple(shape), made.op if made else "", made.module if made else ""
        )  # fmt: skip

    def step(self, i: int) -> Step | None:
        """A step by its number."""
        found = self._program.step(i)
        if found is None:
            return None
        op, phase, module, flops, read, wrote = found
        return Step(i, op, PHASES[phase][0], module, flops, read, wrote)

    def live_at(self, i: int, device: str | None = None) -> list[Live]:
        """What is alive on a device while a step runs, the largest first."""
        return [self._live(v) for v in self._program.live(device or self.devices[0], i)]

    def timeline(self, device: str | None = None) -> dict[str, list[int]]:
        """Bytes alive at each step, by class."""
        device = device or self.devices[0]
        rows = self._program.timeline(device, _allocator_of(device))
        columns = zip(*rows, strict=True) if rows else [[] for _ in CLASSES]
        return {name: list(c) for name, c in zip(CLASSES, columns, strict=True)}

    @property
    def flops(self) -> int:
        """Floating point operations of the whole step, products and convolutions."""
        return sum(map(sum, self._program.flops().values()))

    def flops_by_module(self) -> dict[str, dict[str, int]]:
        """FLOPs by module and phase."""
        found = self._program.flops().items()
        return {
            module or "(outside)": {p: n for (p, _), n in zip(PHASES, counts, strict=True) if n}
            for module, counts in found
            if any(counts)
        }

    def by_module(self, device: str | None = None) -> dict[str, int]:
        """Bytes alive at the peak by the module that made them; what was there before by its own module."""
        sums: dict[str, int] = {}
        for v in self.peak[device or self.devices[0]].live:
            module = v.module or v.name.rpartition(".")[0] or "(outside)"
            sums[module] = sums.get(module, 0) + v.bytes
        return dict(sorted(sums.items(), key=lambda item: -item[1]))

    # Other plans.

    def what_if(self, *, batch: int | None = None, **changes: Any) -> Plan:
        """The plan of the same step with something else: another size of the first dimension of all inputs,
        `optimizer=`, `device=`, `step=`."""
        from torchlike.plan._make import make
        from torchlike.utils import _pytree as pytree

        asked = {**self._question, **changes}
        if batch is not None:
            asked["inputs"] = pytree.tree_map(lambda x: _resized(x, batch), asked["inputs"])
            asked["kwargs"] = pytree.tree_map(lambda x: _resized(x, batch), asked["kwargs"] or {})
        return make(asked.pop("model"), asked.pop("inputs"), **asked)

    def diff(self, other: Plan) -> str:
        """What another plan needs more, or less, by class."""
        lines = []
        for d in [*self.devices, *(d for d in other.devices if d not in self.devices)]:
            a, b = (p.peak[d].by_class if d in p.peak else {} for p in (self, other))
            lines.append(f"{d}: {human(sum(a.values()))} -> {human(sum(b.values()))}")
            more = {name: b.get(name, 0) - a.get(name, 0) for name in CLASSES}
            lines += [f"  {name:<18}{n:+,} bytes" for name, n in more.items() if n]
        lines.append(f"FLOPs: {self.flops:,} -> {other.flops:,}")
        return "\n".join(lines)

    def verify(self) -> Verification:
        """Runs the step for real on this machine's CPU, on zeros, and compares the bytes that the allocator counted."""
        from torchlike.plan._verify import verify

        return verify(self._question, self.peak)

    # Texts.

    def __str__(self) -> str:
        lines = [f"{self.steps:,} steps, {self.flops:,} FLOPs"]
        for device, peak in self.peak.items():
            lines += ["", f"{device}: peak {human(peak.bytes)} ({peak.bytes:,} bytes)"]
            if peak.at is not None:
                where = f" in {peak.at.module}" if peak.at.module else ""
                lines.append(f"  at step {peak.at.index:,}: {peak.at.op} ({peak.at.phase}{where})")
            lines += [f"  {name:<18}{human(n):>12}" for name, n in peak.by_class.items()]
            lines.append("  largest:")
            for v in peak.live[:8]:
                what = v.name or f"{v.made_by} {v.module}".strip()
                lines.append(
                    f"    {human(v.bytes):>12}  {v.dtype}{list(v.shape)}  {v.kind}: {what}"
                )
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from torchlike.plan._picture import svg

        return f"<pre>{escape(str(self))}</pre>" + "".join(svg(self, d) for d in self.devices)

    def as_dict(self) -> dict[str, Any]:
        """The plan in values that JSON has."""
        return {
            "steps": self.steps,
            "flops": self.flops,
            "flops_by_module": self.flops_by_module(),
            "peak": {d: asdict(p) for d, p in self.peak.items()},
            "timeline": {d: self.timeline(d) for d in self.devices},
        }

    def save(self, path: str | Path) -> None:
        """Writes the plan as JSON."""
        Path(path).write_text(json.dumps(self.as_dict(), indent=1))

    def svg(self, path: str | Path, device: str | None = None) -> None:
        """Writes a picture of the memory of a device over the step."""
        from torchlike.plan._picture import svg

        Path(path).write_text(svg(self, device or self.devices[0]))

    def html(self, path: str | Path) -> None:
        """Writes the report and its pictures as one page, which needs no network."""
        from torchlike.plan._picture import page

        Path(path).write_text(page(self))


def _resized(x: Any, batch: int) -> Any:
    if not isinstance(x, _C.Tensor) or x.ndim == 0:
        return x
    return _C._root.empty((batch, *x.shape[1:]), dtype=x.dtype, device="meta")
