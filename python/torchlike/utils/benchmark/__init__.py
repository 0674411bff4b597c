"""Times of statements: `Timer("f(x)", globals={"f": f, "x": x}).blocked_autorange()`."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import statistics
import textwrap
import timeit
from timeit import default_timer as timer
from typing import TYPE_CHECKING, Any

import torchlike
from torchlike import _absent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = [
    "Compare",
    "Measurement",
    "TaskSpec",
    "Timer",
    "ordered_unique",
    "select_unit",
    "set_torch_threads",
    "timer",
    "trim_sigfig",
    "unit_to_english",
]

_UNITS = (("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0))
_WORDS = {"ns": "nanosecond", "us": "microsecond", "ms": "millisecond", "s": "second"}
_LEAST_INTERVAL = 25e-9
_MOST_FIGURES = 4
_NOTE = "This could indicate system fluctuation."


def select_unit(t: float) -> tuple[str, float]:
    """The unit in which a time in seconds reads well, and its seconds."""
    chosen = _UNITS[0]
    for unit in _UNITS:
        if t >= unit[1]:
            chosen = unit
    return chosen


def unit_to_english(u: str) -> str:
    """The word for a unit."""
    return _WORDS[u]


def trim_sigfig(x: float, n: int) -> float:
    """A number with so many digits that are not 0."""
    if x == 0:
        return 0.0
    scale = 10.0 ** (math.ceil(math.log10(abs(x))) - n)
    return float(round(x / scale) * scale)


def ordered_unique(elements: Iterable[Any]) -> list[Any]:
    """Each element once, in the order in which they come first."""
    return list(dict.fromkeys(elements))


@contextlib.contextmanager
def set_torch_threads(n: int) -> Iterator[None]:
    """A block that computes with so many threads."""
    before = torchlike.get_num_threads()
    torchlike.set_num_threads(n)
    try:
        yield
    finally:
        torchlike.set_num_threads(before)


@dataclasses.dataclass(init=True, repr=False, eq=True, frozen=True)
class TaskSpec:
    """What was measured."""

    stmt: str
    setup: str
    global_setup: str = ""
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    @property
    def title(self) -> str:
        """The label, or the statement."""
        if self.label is not None:
            return self.label + (f": {self.sub_label}" if self.sub_label else "")
        return self.stmt

    @property
    def row(self) -> str:
        """What stands in front of a row of a table."""
        return self.sub_label or self.label or self.stmt

    def setup_str(self) -> str:
        """The preparations, as text; empty without any."""
        if self.setup == "pass" or not self.setup:
            return ""
        if "\n" in self.setup:
            return f"setup:\n{textwrap.indent(self.setup, '  ')}"
        return f"setup: {self.setup}"

    def summarize(self) -> str:
        """What was measured, as lines."""
        rows = [self.title, self.description or "", self.setup_str()]
        return "\n".join(row for row in rows if row)


@dataclasses.dataclass(init=True, repr=False)
class Measurement:
    """Seconds of several blocks of runs, each of `number_per_run`."""

    number_per_run: int
    raw_times: list[float]
    task_spec: TaskSpec
    metadata: dict[Any, Any] | None = None

    def __getattr__(self, name: str) -> Any:
        if name != "task_spec" and hasattr(TaskSpec, name):
            return getattr(self.task_spec, name)
        fields = {f.name for f in dataclasses.fields(TaskSpec)}
        if name in fields:
            return getattr(self.task_spec, name)
        raise AttributeError(f"'Measurement' object has no attribute '{name}'")

    @property
    def times(self) -> list[float]:
        """Seconds of one run, by block."""
        return [t / self.number_per_run for t in self.raw_times]

    @property
    def mean(self) -> float:
        """The mean, in seconds."""
        return statistics.fmean(self.times)

    @property
    def median(self) -> float:
        """The median, in seconds."""
        return statistics.median(self.times)

    def _quartiles(self) -> tuple[float, float]:
        """The first and third quartile, between the measurements next to them."""
        ordered = sorted(self.times)

        def at(share: float) -> float:
            place = share * (len(ordered) - 1)
            low = int(place)
            high = min(low + 1, len(ordered) - 1)
            return ordered[low] + (ordered[high] - ordered[low]) * (place - low)

        return at(0.25), at(0.75)

    @property
    def iqr(self) -> float:
        """The distance of the quartiles, in seconds."""
        low, high = self._quartiles()
        return high - low

    @property
    def title(self) -> str:
        """What was measured."""
        return self.task_spec.title

    @property
    def env(self) -> str | None:
        """Where it was measured."""
        return self.task_spec.env

    @property
    def as_row_name(self) -> str:
        """What stands in front of a row of a table."""
        return self.task_spec.row

    @property
    def has_warnings(self) -> bool:
        """Whether blocks differ more than they should."""
        return len(self.times) > 2 and not self.meets_confidence()

    @property
    def significant_figures(self) -> int:
        """How many digits of the median can be trusted, by how the middle half of the blocks differs."""
        ordered, count = sorted(self.times), len(self.times)
        middle = ordered[count // 4 : math.ceil(3 * count / 4)]
        interval = 1.645 * statistics.pstdev(middle) / math.sqrt(len(middle))
        figures = math.floor(math.log10(self.median / max(interval, _LEAST_INTERVAL)))
        return min(max(figures, 1), _MOST_FIGURES)

    def meets_confidence(self, threshold: float = 0.1) -> bool:
        """Whether the quartiles are close, of three blocks or more."""
        return len(self.times) > 2 and self.iqr / self.median < threshold

    def __repr__(self) -> str:
        unit, size = select_unit(self.median)
        lines = [
            f"<{type(self).__module__}.{type(self).__qualname__} object at {id(self):#x}>",
            self.task_spec.title,
        ]
        if self.task_spec.description:
            lines.append(self.task_spec.description)
        if len(self.times) > 1:
            low, high = self._quartiles()
            lines.append(f"  Median: {self.median / size:.2f} {unit}")
            if len(self.times) > 2:
                lines.append(
                    f"  IQR:    {self.iqr / size:.2f} {unit} ({low / size:.2f} to {high / size:.2f})"
                )
        else:
            lines.append(f"  {self.median / size:.2f} {unit}")
        threads = self.task_spec.num_threads
        lines.append(
            f"  {len(self.times)} measurement{'s' * (len(self.times) > 1)}, {self.number_per_run} runs "
            f"{'per measurement' if len(self.times) > 1 else ''}, {threads} thread{'s' * (threads > 1)}"
        )
        if self.has_warnings:
            lines.append(
                f"  WARNING: Interquartile range is {self.iqr / self.median:.1%} of the median measurement."
            )
            lines.append(f"           {_NOTE}")
        return "\n".join(lines)

    @staticmethod
    def merge(measurements: Iterable[Measurement]) -> list[Measurement]:
        """Measurements of the same task as one, by task."""
        found: dict[TaskSpec, list[Measurement]] = {}
        for m in measurements:
            found.setdefault(m.task_spec, []).append(m)
        return [
            Measurement(1, [t for m in group for t in m.times], task)
            for task, group in found.items()
        ]


class Timer:
    """Measures a statement of Python, on so many threads, after the GPU's work."""

    def __init__(
        self,
        stmt: str = "pass",
        setup: str = "pass",
        global_setup: str = "",
        timer: Callable[[], float] = timer,
        globals: dict[str, Any] | None = None,
        label: str | None = None,
        sub_label: str | None = None,
        description: str | None = None,
        env: str | None = None,
        num_threads: int = 1,
        language: str = "python",
    ) -> None:
        if str(language).lower() not in ("python", "py", "language.python"):
            raise NotImplementedError(
                f"torch.utils.benchmark.Timer(language={language!r}) is not supported by torchlike"
            )
        stmt, setup = (textwrap.dedent(t).strip() for t in (stmt, setup))
        self._task = TaskSpec(
            stmt, setup, global_setup, label, sub_label, description, env, num_threads
        )
        space = {**(globals or {})}
        space.setdefault("torch", torchlike)
        self._timer = timeit.Timer(stmt, setup, self._clock(timer), space)

    @staticmethod
    def _clock(timer: Callable[[], float]) -> Callable[[], float]:
        def now() -> float:
            if torchlike.cuda.is_initialized():
                torchlike.cuda.synchronize()
            return timer()

        return now

    def _run(self, number: int) -> float:
        with set_torch_threads(self._task.num_threads):
            return max(self._timer.timeit(number), 1e-9)

    def timeit(self, number: int = 1_000_000) -> Measurement:
        """One block of so many runs, after a shorter one."""
        self._run(max(number // 100, 2))
        return Measurement(number, [self._run(number)], self._task)

    def _block(self, min_run_time: float) -> int:
        """How many runs make a block of a thousandth of the time."""
        number = 1
        while (took := self._run(number)) < min_run_time / 1000 and number < 10**9:
            number *= 10 if took < min_run_time / 10_000 else 2
        return number

    def blocked_autorange(
        self, callback: Callable[[int, float], Any] | None = None, min_run_time: float = 0.2
    ) -> Measurement:
        """Blocks of runs for at least so many seconds."""
        number = self._block(min_run_time)
        times: list[float] = []
        while sum(times) < min_run_time:
            times.append(self._run(number))
            if callback is not None:
                callback(number, times[-1])
        return Measurement(number, times, self._task)

    def adaptive_autorange(
        self,
        threshold: float = 0.1,
        *,
        min_run_time: float = 0.01,
        max_run_time: float = 10.0,
        callback: Callable[[int, float], Any] | None = None,
    ) -> Measurement:
        """Blocks of runs until their quartiles are close, or the time is over."""
        number = self._block(min_run_time)
        times: list[float] = []
        while sum(times) < max_run_time:
            times.append(self._run(number))
            if callback is not None:
                callback(number, times[-1])
            found = Measurement(number, times, self._task)
            if sum(times) >= min_run_time and len(times) > 3 and found.meets_confidence(threshold):
                break
        return Measurement(number, times, self._task)

    def repeat(self, repeat: int = -1, number: int = -1) -> None:
        """Not here, as in PyTorch."""
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def autorange(self, callback: Any = None) -> None:
        """Not here, as in PyTorch."""
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def collect_callgrind(self, *_: Any, **__: Any) -> Any:
        """Not supported: no instructions are counted."""
        raise NotImplementedError(
            "torch.utils.benchmark.Timer.collect_callgrind is not supported by torchlike"
        )


class Compare:
    """A table of measurements: a block a label, a row a sub-label, a column a description."""

    def __init__(self, results: Sequence[Measurement]) -> None:
        self._results = Measurement.merge(results)

    def extend_results(self, results: Sequence[Measurement]) -> None:
        """Adds measurements."""
        self._results = Measurement.merge([*self._results, *results])

    def trim_significant_figures(self) -> None:
        """Accepted; times have one digit after the point."""

    def colorize(self, rowwise: bool = False) -> None:
        """Accepted; tables have no colours."""

    def highlight_warnings(self) -> None:
        """Accepted; tables have no marks."""

    def __str__(self) -> str:
        if not self._results:
            return ""
        unit, size = select_unit(min(m.median for m in self._results))
        blocks = []
        for label in dict.fromkeys(m.task_spec.label or m.task_spec.stmt for m in self._results):
            rows = [m for m in self._results if (m.task_spec.label or m.task_spec.stmt) == label]
            blocks.append(self._table(label, rows, size))
        return "\n\n".join(blocks) + f"\n\nTimes are in {_WORDS[unit]}s ({unit}).\n"

    @staticmethod
    def _table(label: str, rows: list[Measurement], size: float) -> str:
        columns = list(dict.fromkeys(m.task_spec.description or "" for m in rows))
        lines: list[list[str]] = [["", *columns]]
        for threads in dict.fromkeys(m.task_spec.num_threads for m in rows):
            lines.append([f"{threads} threads: "])
            for row in dict.fromkeys(m.task_spec.row for m in rows):
                here = {
                    m.task_spec.description or "": f"{m.median / size:.1f}"
                    for m in rows
                    if m.task_spec.row == row and m.task_spec.num_threads == threads
                }
                lines.append([f"      {row}", *(here.get(c, "") for c in columns)])
        widths = [
            max(len(line[i]) for line in lines if len(line) > i) for i in range(len(columns) + 1)
        ]
        total = sum(widths) + 5 * len(columns)
        text = [f"[{f' {label} ':-^{total}}]"]
        for line in lines:
            if len(line) == 1:
                text.append(line[0].ljust(total + 2, "-"))
                continue
            cells = [f"{c:^{w}}" for c, w in zip(line[1:], widths[1:], strict=True)]
            text.append("  |  ".join([line[0].ljust(widths[0]), *cells]))
        return "\n".join(text)

    def print(self) -> None:
        """Prints the table."""
        print(self)


Language = _absent.kind(__name__, "Language", "statements are Python's")
CallgrindStats = _absent.kind(__name__, "CallgrindStats", "no instructions are counted")
Fuzzer = _absent.kind(__name__, "Fuzzer", "arguments are the caller's")
