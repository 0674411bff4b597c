"""What happens to storages in the order of a plan's steps, and the files that other programs draw it from."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchlike.plan._allocator import Cache, Memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchlike.plan._plan import Plan

_STEP_US = 10
"""Microseconds that a step without a profile takes in a picture."""


def events(plan: Plan, device: str) -> Iterator[tuple[int, bool, int, int]]:
    """`(step, whether it is made, value, bytes)` for every storage of a device. What dies at a step goes
    before what it makes."""
    order: list[tuple[int, int, int, int]] = []
    for i in range(plan.values):
        size, _, _, on, born, died, _, _ = plan._program.value(i)
        if on != device or size == 0:
            continue
        start = 0 if born is None else born
        end = plan.steps if died is None else died
        if start < end or born is None:
            order.append((start, 1 if born is not None else -1, i, size))
            if died is not None:
                order.append((end, 0, i, size))
    for step, what, value, size in sorted(order):
        yield step, what != 0, value, size


def memory(plan: Plan, device: str, allocator: str) -> Memory:
    """The most that storages of a device need of an allocator."""
    requested = sum(plan._program.peak(device, "requested")[1])
    if allocator != "torch-cuda":
        allocated = sum(plan._program.peak(device, allocator)[1])
        return Memory(requested, allocated, allocated, 0)
    cache = Cache()
    blocks = {}
    for _, made, value, size in events(plan, device):
        if made:
            blocks[value] = cache.take(size)
        else:
            cache.give_back(blocks.pop(value))
    return Memory(requested, cache.most_allocated, cache.most_reserved, len(cache.segments))


def _frames(plan: Plan, step: int) -> list[dict[str, Any]]:
    found = plan.step(step)
    if found is None:
        return []
    frames = [
        {"filename": found.module or "(outside)", "line": 0, "name": f"{found.op} ({found.phase})"}
    ]
    if found.line:
        file, _, number = found.line.rpartition(":")
        frames.append({"filename": file, "line": int(number), "name": found.module or "(outside)"})
    return frames


def snapshot(plan: Plan, path: str | Path, device: str) -> None:
    """Writes the pickle that PyTorch's `_memory_viz` opens: a trace of every storage that comes and goes."""
    cache, blocks, trace = Cache(), {}, []
    for step, made, value, size in events(plan, device):
        before = len(cache.segments)
        common = {"stream": 0, "time_us": step * _STEP_US, "frames": _frames(plan, step)}
        if made:
            block = blocks[value] = cache.take(size)
            trace += [
                {"action": "segment_alloc", "addr": s.address, "size": s.size, **common}
                for s in cache.segments[before:]
            ]
            trace.append({"action": "alloc", "addr": block.address, "size": size, **common})
        else:
            block = blocks.pop(value)
            for action in ("free_requested", "free_completed"):
                trace.append({"action": action, "addr": block.address, "size": size, **common})
            cache.give_back(block)
    segments = [_segment(s, blocks) for s in cache.segments]
    whole = {
        "segments": segments,
        "device_traces": [trace],
        "allocator_settings": {},
        "external_annotations": [],
    }
    Path(path).write_bytes(pickle.dumps(whole, protocol=2))


def _segment(segment: Any, blocks: dict[int, Any]) -> dict[str, Any]:
    """A segment with the blocks that are in use at the end."""
    end = segment.address + segment.size
    inside = sorted(
        (b for b in blocks.values() if segment.address <= b.address < end), key=lambda b: b.address
    )
    parts, at = [], segment.address
    for b in inside:
        if b.address > at:
            parts.append(_part(at, b.address - at, "inactive"))
        parts.append(_part(b.address, b.size, "active_allocated"))
        at = b.address + b.size
    if at < end:
        parts.append(_part(at, end - at, "inactive"))
    used = sum(b.size for b in inside)
    return {
        "device": 0, "address": segment.address, "total_size": segment.size, "stream": 0, "segment_type":
        "small" if segment.small else "large", "allocated_size": used, "active_size": used, "requested_size": used,
        "blocks": parts, "segment_pool_id": (0, 0), "is_expandable": False, "frames": [],
    }  # fmt: skip


def _part(address: int, size: int, state: str) -> dict[str, Any]:
    return {"address": address, "size": size, "requested_size": size, "state": state, "frames": []}


def perfetto(plan: Plan, path: str | Path, profile: str | None) -> None:
    """Writes a trace that Perfetto and Chrome open: a slice for each step, one for each stretch of a module,
    bytes by class."""
    out: list[dict[str, Any]] = []
    now = 0.0
    times = []
    for i in range(plan.steps):
        step = plan.step(i)
        assert step is not None
        took = _STEP_US if profile is None else plan.seconds(i, profile) * 1e6
        common = {"ph": "X", "pid": 1, "ts": now, "dur": took}
        args = {"module": step.module, "flops": step.flops, "read": step.read, "wrote": step.wrote}
        out.append({"name": step.op, "cat": step.phase, "tid": 1, "args": args, **common})
        last = out[-2] if len(out) > 1 and out[-2]["tid"] == 2 else None
        if last is not None and last["name"] == (step.module or step.phase):
            out[-2], out[-1] = out[-1], {**last, "dur": now + took - last["ts"]}
        else:
            out.append({"name": step.module or step.phase, "cat": "module", "tid": 2, **common})
        times.append(now)
        now += took
    for device in plan.devices:
        timeline = plan.timeline(device)
        for i, at in enumerate(times):
            counts = {name: column[i] for name, column in timeline.items() if any(column)}
            out.append({"name": f"{device} bytes", "ph": "C", "pid": 1, "ts": at, "args": counts})
    Path(path).write_text(json.dumps({"traceEvents": out, "displayTimeUnit": "ms"}))
