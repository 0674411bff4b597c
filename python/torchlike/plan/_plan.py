"""What a plan says."""

from __future__ import annotations

import functools
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchlike import _C

if TYPE_CHECKING:
    from collections.abc import Callable

    from torchlike.plan._allocator import Memory
    from torchlike.plan._mesh import Comm, Sharded

CLASSES: list[str] = _C._Program.classes()
PHASES = (("forward", 0), ("backward", 1), ("optimizer", 2))

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def human(n: float) -> str:
    """A number of bytes for people: `1.5 GiB`."""
    unit = 0
    while abs(n) >= 1024 and unit < len(_UNITS) - 1:
        n, unit = n / 1024, unit + 1
    return f"{n:.0f} {_UNITS[unit]}" if unit == 0 else f"{n:.2f} {_UNITS[unit]}"


def duration(seconds: float) -> str:
    """Seconds for people: `1.50 ms`."""
    unit, scale = next(
        ((u, n) for u, n in (("s", 1.0), ("ms", 1e3)) if seconds * n >= 1), ("us", 1e6)
    )
    return f"{seconds * scale:,.2f} {unit}"


ALLOCATORS = ("requested", "torchlike-cpu", "torch-cuda")


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
    line: str = ""
    """File and line of the user's code that called it, where the plan was made with `lines=True`."""


@dataclass(frozen=True)
class Live:
    """A storage that lives."""

    bytes: int
    """As the device's allocator counts them."""
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
    _live: Callable[[], list[Live]] = field(repr=False, compare=False)

    @functools.cached_property
    def live(self) -> list[Live]:
        """What is alive then, the largest first."""
        return self._live()

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain data."""
        at = None if self.at is None else asdict(self.at)
        live = [asdict(v) for v in self.live]
        return {"bytes": self.bytes, "at": at, "by_class": self.by_class, "live": live}


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

    def __init__(
        self, program: Any, question: dict[str, Any], spread: dict[str, Any] | None = None
    ) -> None:
        self._program = program
        self._question = question
        self.mesh: dict[str, int] = spread["mesh"] if spread else {}
        self.comms: list[Comm] = spread["comms"] if spread else []
        self.sharding: list[Sharded] = spread["sharding"] if spread else []
        self.steps, self.values = program.counts()
        self.devices: list[str] = program.devices()
        self.peak: dict[str, Peak] = {d: self._peak(d) for d in self.devices}

    # Numbers.

    def _allocator(self, device: str) -> str:
        return self._question.get("allocator") or _allocator_of(device)

    def memory(self, device: str | None = None, allocator: str | None = None) -> Memory:
        """What storages of a device ask for at most, what an allocator gives them for it, and what it holds.

        Args:
            device: one of `devices`; the first by default.
            allocator: "torchlike-cpu" (ours), or "torch-cuda" (PyTorch's caching allocator, block by block).

        Raises:
            ValueError: for another allocator.
        """
        from torchlike.plan._events import memory

        device = device or self.devices[0]
        allocator = allocator or self._allocator(device)
        if allocator not in ALLOCATORS:
            raise ValueError(
                f"no model of the allocator {allocator!r}: one of {', '.join(ALLOCATORS)}"
            )
        return memory(self, device, allocator)

    def seconds(self, i: int, profile: str) -> float:
        """The time of a step by the roofline of a profile: its operations or its bytes, whichever takes longer."""
        from torchlike.plan._profile import profile as find

        _, _, _, flops, read, wrote = self._program.step(i)
        return find(profile).seconds(flops, read + wrote, self._dtype)

    def time(self, profile: str = "h100") -> float:
        """Seconds that all steps take one after the other, by the roofline of a profile: a name of
        `torchlike/plan/profiles`, or the
        path of a JSON file. It is an estimate, and not checked by `verify`."""
        return sum(self.seconds(i, profile) for i in range(self.steps))

    @functools.cached_property
    def _dtype(self) -> str:
        """The type that most bytes of parameters have."""
        sums: dict[str, int] = {}
        for i in range(self.values):
            size, dtype, _, _, _, _, kind, _ = self._program.value(i)
            if CLASSES[kind] == "parameters":
                sums[dtype] = sums.get(dtype, 0) + size
        return max(sums, key=lambda d: sums[d]).rpartition(".")[2] if sums else "float32"

    def _peak(self, device: str) -> Peak:
        at, sums = self._program.peak(device, self._allocator(device))
        by_class = {name: n for name, n in zip(CLASSES, sums, strict=True) if n}
        return Peak(sum(sums), self.step(at), by_class, lambda: self.live_at(at, device))

    @functools.cached_property
    def _sizes(self) -> list[int]:
        """The bytes of each value, as the allocator of its device counts them."""
        kinds = {d: self._allocator(d) for d in self.devices}
        counted = {kind: self._program.sizes(kind) for kind in set(kinds.values())}
        return [counted[kinds[self._program.value(i)[3]]][i] for i in range(self.values)]

    def _live(self, i: int) -> Live:
        _, dtype, shape, _, born, _, kind, name = self._program.value(i)
        made = self.step(born) if born is not None else None
        return Live(
            self._sizes[i], CLASSES[kind], name or "", dtype, tuple(shape),
            made.op if made else "", made.module if made else "",
        )  # fmt: skip

    def step(self, i: int) -> Step | None:
        """A step by its number."""
        found = self._program.step(i)
        if found is None:
            return None
        op, phase, scope, flops, read, wrote = found
        module, _, line = scope.partition("\0")
        return Step(i, op, PHASES[phase][0], module, flops, read, wrote, line)

    def live_at(self, i: int, device: str | None = None) -> list[Live]:
        """What is alive on a device while a step runs, the largest first."""
        return [self._live(v) for v in self._program.live(device or self.devices[0], i)]

    def timeline(self, device: str | None = None) -> dict[str, list[int]]:
        """Bytes alive at each step, by class."""
        device = device or self.devices[0]
        rows = self._program.timeline(device, self._allocator(device))
        columns = zip(*rows, strict=True) if rows else [[] for _ in CLASSES]
        return {name: list(c) for name, c in zip(CLASSES, columns, strict=True)}

    @property
    def flops(self) -> int:
        """Floating point operations of the whole step, products and convolutions."""
        return sum(map(sum, self._program.flops().values()))

    def flops_by_module(self) -> dict[str, dict[str, int]]:
        """FLOPs by module and phase."""
        sums: dict[str, list[int]] = {}
        for scope, counts in self._program.flops().items():
            mine = sums.setdefault(scope.partition("\0")[0], [0] * len(PHASES))
            mine[:] = [a + b for a, b in zip(mine, counts, strict=True)]
        return {
            module or "(outside)": {p: n for (p, _), n in zip(PHASES, counts, strict=True) if n}
            for module, counts in sums.items()
            if any(counts)
        }

    def by_module(self, device: str | None = None) -> dict[str, int]:
        """Bytes alive at the peak by the module that made them; what was there before by its own module."""
        sums: dict[str, int] = {}
        for v in self.peak[device or self.devices[0]].live:
            module = v.module or v.name.rpartition(".")[0] or "(outside)"
            sums[module] = sums.get(module, 0) + v.bytes
        return dict(sorted(sums.items(), key=lambda item: -item[1]))

    def by_line(self, device: str | None = None) -> dict[str, int]:
        """Bytes alive at the peak by the file and line of the user's code that made them.

        The step is run once more to see the lines, unless the plan was made with `lines=True`.
        """
        plan = self._with_lines
        sums: dict[str, int] = {}
        for i in plan._program.live(device or plan.devices[0], plan._program.peak(
            device or plan.devices[0], plan._allocator(device or plan.devices[0])
        )[0]):  # fmt: skip
            _, _, _, _, born, _, kind, _ = plan._program.value(i)
            step = plan.step(born) if born is not None else None
            line = (step.line if step else "") or f"({CLASSES[kind]})"
            sums[line] = sums.get(line, 0) + plan._sizes[i]
        return dict(sorted(sums.items(), key=lambda item: -item[1]))

    @functools.cached_property
    def _with_lines(self) -> Plan:
        if self._question.get("lines"):
            return self
        if "model" not in self._question:
            raise RuntimeError(
                "a plan that was read back has no lines unless it was made with lines=True"
            )
        return self.what_if(lines=True)

    @property
    def unmeasured(self) -> list[str]:
        """Operators that ran whose kernels take memory besides their results of which nothing says how much."""
        return list(self._program.unmeasured())

    def traffic(self) -> dict[tuple[str, str], tuple[int, int, int]]:
        """By kind of collective and dimension of the mesh: how many, the bytes that a rank gives, those on a ring."""
        from torchlike.plan._mesh import traffic

        return traffic(self.comms)

    # Other plans.

    def what_if(self, *, batch: int | None = None, **changes: Any) -> Plan:
        """The plan of the same step with something else: another size of the first dimension of all inputs,
        `optimizer=`, `device=`, `step=`."""
        from torchlike.plan._make import make
        from torchlike.utils import _pytree as pytree

        if "model" not in self._question:
            raise RuntimeError("a plan that was read back has no model to be planned anew")
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

        if "model" not in self._question:
            raise RuntimeError("a plan that was read back has no model to be run")
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
        if self.unmeasured:
            lines += [
                "",
                f"not counted: what {', '.join(self.unmeasured)} take besides their results",
            ]
        if self.mesh:
            shape = " x ".join(f"{name} {n}" for name, n in self.mesh.items())
            lines += ["", f"one rank of {shape}: {len(self.comms):,} collectives"]
            lines += [
                f"  {kind:<16}{dim:<8}{count:>8,} times {human(sent):>12} given, {human(wire):>12} on a ring"
                for (kind, dim), (count, sent, wire) in self.traffic().items()
            ]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from html import escape

        from torchlike.plan._picture import svg

        return f"<pre>{escape(str(self))}</pre>" + "".join(svg(self, d) for d in self.devices)

    def as_dict(self) -> dict[str, Any]:
        """The plan in values that JSON has."""
        from torchlike.plan._saved import dump

        return {
            "program": dump(self._program),
            "question": {
                k: str(v)
                for k, v in self._question.items()
                if k in ("step", "device", "allocator", "lines") and v
            },
            "steps": self.steps,
            "flops": self.flops,
            "flops_by_module": self.flops_by_module(),
            "peak": {d: p.as_dict() for d, p in self.peak.items()},
            "timeline": {d: self.timeline(d) for d in self.devices},
            "mesh": self.mesh,
            "comms": [c._asdict() for c in self.comms],
            "sharding": [s._asdict() for s in self.sharding],
        }

    def save(self, path: str | Path) -> None:
        """Writes the plan as JSON."""
        import json

        Path(path).write_text(json.dumps(self.as_dict(), indent=1))

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """A plan that `save` wrote: with all its numbers and pictures, and without what needs the model.

        Raises:
            ValueError: if the file is none.
        """
        import json

        from torchlike.plan._mesh import Comm, Sharded
        from torchlike.plan._saved import Saved

        data = json.loads(Path(path).read_text())
        if not isinstance(data, dict) or not isinstance(data.get("program"), dict):
            raise ValueError("not a plan that Plan.save wrote")
        spread = {
            "mesh": data.get("mesh", {}),
            "comms": [Comm(**c) for c in data.get("comms", ())],
            "sharding": [
                Sharded(**{**s, "shape": tuple(s["shape"]), "parts": tuple(s["parts"])})
                for s in data.get("sharding", ())
            ],
        }
        return cls(Saved(data["program"]), data.get("question", {}), spread)

    def snapshot(self, path: str | Path, device: str | None = None) -> None:
        """Writes PyTorch's memory snapshot of the step: `python -m torch.cuda._memory_viz trace_plot PATH -o
        plot.html`."""
        from torchlike.plan._events import snapshot

        snapshot(self, path, device or self.devices[0])

    def perfetto(self, path: str | Path, profile: str | None = None) -> None:
        """Writes a trace that Perfetto and Chrome open; steps are as long as a profile says, or all alike."""
        from torchlike.plan._events import perfetto

        perfetto(self, path, profile)

    def svg(self, path: str | Path, device: str | None = None) -> None:
        """Writes a picture of the memory of a device over the step."""
        from torchlike.plan._picture import svg

        Path(path).write_text(svg(self, device or self.devices[0]))

    def sharding_svg(self, path: str | Path) -> None:
        """Writes a picture of which rank has which part of which parameter."""
        from torchlike.plan._mesh_picture import sharding

        Path(path).write_text(sharding(self))

    def traffic_svg(self, path: str | Path) -> None:
        """Writes a picture of the bytes that ranks send to each other in a step."""
        from torchlike.plan._mesh_picture import traffic

        Path(path).write_text(traffic(self))

    def html(self, path: str | Path) -> None:
        """Writes the report and its pictures as one page, which needs no network."""
        from torchlike.plan._picture import page

        Path(path).write_text(page(self))


def _resized(x: Any, batch: int) -> Any:
    if not isinstance(x, _C.Tensor) or x.ndim == 0:
        return x
    return _C._root.empty((batch, *x.shape[1:]), dtype=x.dtype, device="meta")
