"""What a profile consists of: events, sums of events of one name, and tables of these."""

from __future__ import annotations

import json
import os
import threading
from typing import Any

__all__ = ["EventList", "FunctionEvent", "FunctionEventAvg", "Interval", "events_of"]


def _format_time(us: float) -> str:
    if us >= 1e6:
        return f"{us / 1e6:.3f}s"
    return f"{us / 1e3:.3f}ms" if us >= 1e3 else f"{us:.3f}us"


def _format_memory(count: int) -> str:
    for name, size in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if abs(count) >= size:
            return f"{count / size:.2f} {name}"
    return f"{count} B"


def _share(part: float, whole: float) -> str:
    return "NaN" if whole == 0 else f"{part * 100 / whole:.2f}%"


class Interval:
    """From when to when, in microseconds."""

    def __init__(self, start: float, end: float) -> None:
        self.start = start
        self.end = end

    def elapsed_us(self) -> float:
        """How long."""
        return self.end - self.start


class FunctionEvent:
    """A call, a node of the graph, or a part of the program that was named."""

    def __init__(self, number: int, name: str, scope: int, start: float, end: float) -> None:
        self.id = number
        self.name = self.key = self.trace_name = name
        self.overload_name = ""
        self.scope = scope
        self.time_range = Interval(start, end)
        self.thread = self.fwd_thread = 1
        self.node_id = -1
        self.sequence_nr = -1
        self.count = 1
        self.flops = 0
        self.input_shapes: Any = []
        self.input_types: Any = []
        self.cpu_children: list[FunctionEvent] = []
        self.cpu_parent: FunctionEvent | None = None
        self.self_cpu_memory_usage = 0
        self.cpu_memory_usage = 0
        self.device_memory_usage = self.self_device_memory_usage = 0
        self.device_time_total = self.self_device_time_total = 0.0
        self.device_type = "cpu"
        self.stack: list[str] = []
        self.is_async = self.is_remote = self.is_user_annotation = False
        self.is_legacy = False

    @property
    def cpu_time_total(self) -> float:
        """Microseconds from its start to its end."""
        return self.time_range.elapsed_us()

    cpu_time = cpu_time_total

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds that its parts do not account for."""
        return self.cpu_time_total - sum(child.cpu_time_total for child in self.cpu_children)

    def __repr__(self) -> str:
        return (
            f"<FunctionEvent id={self.id} name={self.name} cpu_time={_format_time(self.cpu_time)} "
            f"start_us={self.time_range.start:.3f} end_us={self.time_range.end:.3f} "
            f"cpu_children={[child.id for child in self.cpu_children]} thread={self.thread} "
            f"input_shapes={self.input_shapes} cpu_memory_usage={self.cpu_memory_usage} "
            f"seq_nr={self.sequence_nr}>"
        )


class FunctionEventAvg:
    """Events of one name together."""

    def __init__(self) -> None:
        self.key: str | None = None
        self.count = 0
        self.cpu_time_total = self.self_cpu_time_total = 0.0
        self.device_time_total = self.self_device_time_total = 0.0
        self.input_shapes: Any = None
        self.cpu_memory_usage = self.self_cpu_memory_usage = 0
        self.device_memory_usage = self.self_device_memory_usage = 0
        self.flops = 0
        self.scope: int | None = None
        self.stack: Any = None
        self.cpu_children: list[FunctionEvent] | None = None
        self.cpu_parent: FunctionEvent | None = None
        self.is_async = self.is_remote = self.is_user_annotation = False
        self.device_type: Any = None
        self.node_id: int | None = None
        self.overload_name: str | None = None

    @property
    def cpu_time(self) -> float:
        """The mean, in microseconds."""
        return self.cpu_time_total / self.count if self.count else 0.0

    @property
    def device_time(self) -> float:
        """The mean on a device."""
        return self.device_time_total / self.count if self.count else 0.0

    def add(self, other: Any) -> FunctionEventAvg:
        """Takes in an event, or such a sum."""
        if self.key is None:
            for name in (
                "key", "scope", "input_shapes", "stack", "cpu_parent", "cpu_children",
                "device_type", "node_id", "overload_name", "is_user_annotation",
            ):  # fmt: skip
                setattr(self, name, getattr(other, name))
        self.cpu_time_total += other.cpu_time_total
        self.self_cpu_time_total += other.self_cpu_time_total
        self.cpu_memory_usage += other.cpu_memory_usage
        self.self_cpu_memory_usage += other.self_cpu_memory_usage
        self.count += other.count
        self.flops += other.flops
        return self

    __iadd__ = add

    def __repr__(self) -> str:
        return (
            f"<FunctionEventAvg key={self.key} self_cpu_time={_format_time(self.self_cpu_time_total)} "
            f"cpu_time={_format_time(self.cpu_time)}  self_cuda_time=0.000us cuda_time=0.000us "
            f"input_shapes={self.input_shapes} cpu_memory_usage={self.cpu_memory_usage} "
            f"cuda_memory_usage=0>"
        )


def _shown(name: str) -> property:
    return property(lambda self: _format_time(getattr(self, name)))


for _kind in (FunctionEvent, FunctionEventAvg):
    for _name in ("cpu_time", "cpu_time_total", "self_cpu_time_total"):
        setattr(_kind, f"{_name}_str", _shown(_name))


class EventList(list[Any]):
    """Events, or sums of them."""

    def __init__(
        self, events: Any = (), profile_memory: bool = False, with_flops: bool = False
    ) -> None:
        super().__init__(events)
        self._profile_memory = profile_memory
        self._with_flops = with_flops

    def __str__(self) -> str:
        return self.table()

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds of all together."""
        return sum(event.self_cpu_time_total for event in self)

    def key_averages(
        self,
        group_by_input_shapes: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
    ) -> EventList:
        """A sum for each name, or each name and shapes."""
        sums: dict[Any, FunctionEventAvg] = {}
        for event in self:
            key = (event.key, str(event.input_shapes) if group_by_input_shapes else "")
            sums.setdefault(key, FunctionEventAvg()).add(event)
        found = EventList(sums.values(), self._profile_memory, self._with_flops)
        for entry in found:
            if not group_by_input_shapes:
                entry.input_shapes = ""
        return found

    def total_average(self) -> FunctionEventAvg:
        """The sum of all."""
        total = FunctionEventAvg()
        for event in self:
            total.add(event)
            total.key = None
        total.key = "Total"
        return total

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int = 75,
        max_name_column_width: int = 55,
        max_shapes_column_width: int = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
        time_unit: str | None = None,
    ) -> str:
        """A line an entry, the largest first if `sort_by` names what counts."""
        if not self:
            return ""
        events = list(self)
        if sort_by is not None:
            events.sort(key=lambda e: getattr(e, sort_by.replace("cuda", "device")), reverse=True)
        if top_level_events_only:
            events = [e for e in events if e.cpu_parent is None]
        return _table(
            events[:row_limit] if row_limit >= 0 else events,
            self,
            (max_name_column_width, max_shapes_column_width),
            header,
        )

    def export_chrome_trace(self, path: str) -> None:
        """Writes a file for `chrome://tracing`."""
        with open(path, "w") as file:
            json.dump(chrome_trace(self, {}), file)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Refused: stacks are not noted."""
        raise NotImplementedError("export_stacks: the profiler notes no stacks")


def _columns(
    every: EventList, events: list[Any], widths: tuple[int, int]
) -> list[tuple[str, int, Any]]:
    """Header, width and text of each column."""
    whole = every.self_cpu_time_total
    name_width, shape_width = widths
    names = max(4, *(min(len(str(e.key)), name_width) for e in events)) + 4
    columns: list[tuple[str, int, Any]] = [
        ("Name", names, lambda e: _cut(str(e.key), name_width)),
        ("Self CPU %", 12, lambda e: _share(e.self_cpu_time_total, whole)),
        ("Self CPU", 12, lambda e: _format_time(e.self_cpu_time_total)),
        ("CPU total %", 12, lambda e: _share(e.cpu_time_total, whole)),
        ("CPU total", 12, lambda e: _format_time(e.cpu_time_total)),
        ("CPU time avg", 12, lambda e: _format_time(e.cpu_time)),
    ]
    if every._profile_memory:
        columns.append(("CPU Mem", 12, lambda e: _format_memory(e.cpu_memory_usage)))
        columns.append(("Self CPU Mem", 12, lambda e: _format_memory(e.self_cpu_memory_usage)))
    columns.append(("# of Calls", 12, lambda e: str(e.count)))
    if any(e.input_shapes for e in every):
        shapes = max(12, *(min(len(str(e.input_shapes)), shape_width) for e in events)) + 4
        columns.append(("Input Shapes", shapes, lambda e: _cut(str(e.input_shapes), shape_width)))
    if every._with_flops and any(e.flops for e in every):
        top = max(e.flops for e in every)
        word, scale = "FLOPs", 1.0
        for name in ("KFLOPs", "MFLOPs", "GFLOPs", "TFLOPs"):
            if top / scale < 1000:
                break
            word, scale = name, scale * 1000
        columns.append(
            (f"Total {word}", 12, lambda e: f"{e.flops / scale:.3f}" if e.flops else "--")
        )
    return columns


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def _table(events: list[Any], every: EventList, widths: tuple[int, int], header: str | None) -> str:
    columns = _columns(every, events, widths)
    rule = "  ".join("-" * width for _, width, _ in columns) + "  "
    rows = ["  ".join(name.rjust(width) for name, width, _ in columns) + "  "]
    rows += ["  ".join(text(e).rjust(width) for _, width, text in columns) + "  " for e in events]
    lines = [] if header is None else ["=" * len(rule), header]
    lines += [rule, rows[0], rule, *rows[1:], rule]
    lines.append(f"Self CPU time total: {_format_time(every.self_cpu_time_total)}")
    return "\n".join(lines) + "\n"


_PRIVATE = ("_nn.", "_grad.", "_optim.", "_ops.")


def _name_of(row: str, how: int) -> str:
    """PyTorch's name of a call of a row; `how` is 1 in place."""
    name = row.partition("#")[0]
    for prefix in _PRIVATE:
        name = name.removeprefix(prefix)
    return f"aten::{name.replace('nn.functional.', '').replace('.', '_')}{'_' if how == 1 else ''}"


def _shape(given: Any) -> Any:
    if given is None:
        return []
    return [list(g[0]) for g in given] if isinstance(given, list) else list(given[0])


def _type(given: Any) -> str:
    if given is None:
        return ""
    return "TensorList" if isinstance(given, list) else str(given[1]).rpartition(".")[2]


def events_of(rows: Any, shapes: bool, memory: bool, flops: bool, shift: float = 0.0) -> EventList:
    """The notes of the core as events, each with its parent and its parts."""
    events: list[FunctionEvent] = []
    path: list[FunctionEvent] = []
    for number, row in enumerate(rows, 1):
        kind, name, how, start, end, depth, given, operations, nbytes, sequence = row
        if kind == 0:
            name, scope = _name_of(name, how), 0
        elif kind == 1:
            scope = 0 if how else 1
            name = f"autograd::engine::evaluate_function: {name}" if how else name
        else:
            scope = 7
        event = FunctionEvent(number, name, scope, shift + start / 1e3, shift + end / 1e3)
        event.is_user_annotation = kind == 2
        if shapes:
            event.input_shapes = [_shape(g) for g in given]
            event.input_types = [_type(g) for g in given]
        if flops:
            event.flops = operations
        if memory:
            event.self_cpu_memory_usage = nbytes
        if sequence is not None:
            event.sequence_nr = sequence
        del path[depth:]
        if path:
            event.cpu_parent = path[-1]
            path[-1].cpu_children.append(event)
        path.append(event)
        events.append(event)
    for event in reversed(events):
        # A call that came down to others made and did what these did.
        if any(child.scope == 0 for child in event.cpu_children):
            event.flops = event.self_cpu_memory_usage = 0
        below = sum(child.cpu_memory_usage for child in event.cpu_children)
        event.cpu_memory_usage = event.self_cpu_memory_usage + below
    return EventList(events, memory, flops)


def chrome_trace(events: EventList, metadata: dict[str, Any]) -> dict[str, Any]:
    """What `chrome://tracing` and Perfetto show."""
    pid, tid = os.getpid(), threading.get_native_id()
    rows: list[dict[str, Any]] = [
        {"ph": "M", "name": kind, "ts": 0, "pid": pid, "tid": where, "args": {"name": name}}
        for kind, where, name in (
            ("process_name", 0, "python"),
            ("thread_name", tid, f"thread {tid} (python)"),
        )
    ]
    forward: dict[int, FunctionEvent] = {}
    for event in events:
        about: dict[str, Any] = {"External id": event.id, "Record function id": 0}
        if event.input_shapes:
            about |= {"Input Dims": event.input_shapes, "Input type": event.input_types}
        if event.sequence_nr >= 0:
            about["Sequence number"] = event.sequence_nr
        if event.cpu_memory_usage:
            about["Bytes"] = event.cpu_memory_usage
        start = event.time_range.start
        rows.append(
            {
                "ph": "X",
                "cat": "user_annotation" if event.is_user_annotation else "cpu_op",
                "name": event.name,
                "pid": pid,
                "tid": tid,
                "ts": start,
                "dur": event.cpu_time_total,
                "args": about,
            }
        )
        if event.sequence_nr < 0:
            continue
        arrow = {"id": event.sequence_nr, "pid": pid, "tid": tid, "ts": start, "cat": "fwdbwd"}
        if event.scope == 0 and event.key.startswith("aten::"):
            forward[event.sequence_nr] = event
        elif event.scope == 1 and event.sequence_nr in forward:
            before = forward[event.sequence_nr].time_range.start
            rows.append({"ph": "s", "name": "fwdbwd", **arrow, "ts": before})
            rows.append({"ph": "f", "name": "fwdbwd", "bp": "e", **arrow})
    return {"schemaVersion": 1, "displayTimeUnit": "ms", **metadata, "traceEvents": rows}
