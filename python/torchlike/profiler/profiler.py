"""What a program's calls cost, step by step: a table, or a file for `chrome://tracing`."""

from __future__ import annotations

import gzip
import json
import os
import socket
import time
import warnings
from enum import Enum
from typing import TYPE_CHECKING, Any

from torchlike.autograd import profiler as _profiler
from torchlike.autograd.profiler import record_function
from torchlike.autograd.profiler_util import EventList, chrome_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = [
    "ProfilerAction",
    "ProfilerActivity",
    "profile",
    "record_function",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]


class ProfilerActivity(Enum):
    """Where calls are looked at."""

    CPU = 0
    XPU = 1
    MTIA = 2
    CUDA = 3
    HPU = 4
    PrivateUse1 = 5

    def __repr__(self) -> str:
        return f"<ProfilerActivity.{self.name}: {self.value}>"


class ProfilerAction(Enum):
    """What happens in a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3
    DEVICE_STOPPED = 4


_RECORDS = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


def supported_activities() -> set[ProfilerActivity]:
    """The host: calls on GPUs are seen as what the host does for them."""
    return {ProfilerActivity.CPU}


def kineto_available() -> bool:
    """False: the notes are the core's own."""
    return False


def schedule(
    *,
    wait: int,
    warmup: int,
    active: int,
    repeat: int = 0,
    skip_first: int = 0,
    skip_first_wait: int = 0,
) -> Callable[[int], ProfilerAction]:
    """Says of each step what happens: cycles of `wait`, `warmup` and `active` steps."""
    if min(wait, warmup, repeat, skip_first) < 0 or active <= 0:
        raise AssertionError(
            f"Invalid profiler schedule arguments. Got wait={wait} (need >= 0), warmup={warmup} "
            f"(need >= 0), active={active} (need > 0), repeat={repeat} (need >= 0), "
            f"skip_first={skip_first} (need >= 0)."
        )
    if warmup == 0:
        warnings.warn(
            "Profiler won't be using warmup, this can skew profiler results", stacklevel=2
        )
    if skip_first_wait:
        skip_first -= wait  # the first cycle begins with its warm-up
    length = wait + warmup + active

    def action(step: int) -> ProfilerAction:
        if step < 0:
            raise AssertionError(f"Step must be non-negative. Got {step}.")
        if step < skip_first:
            return ProfilerAction.NONE
        step -= skip_first
        if repeat > 0 and step // length >= repeat:
            return ProfilerAction.NONE
        at = step % length
        if at < wait:
            return ProfilerAction.NONE
        if at < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD_AND_SAVE if at == length - 1 else ProfilerAction.RECORD

    return action


def _default_schedule_fn(_: int) -> ProfilerAction:
    """Every step is recorded."""
    return ProfilerAction.RECORD


def tensorboard_trace_handler(
    dir_name: str,
    worker_name: str | None = None,
    use_gzip: bool = False,
    use_python_export: bool = False,
) -> Callable[[Any], None]:
    """Writes each trace into a folder, under a name that TensorBoard's plugin finds."""

    def write(prof: Any) -> None:
        os.makedirs(dir_name, exist_ok=True)
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        name = f"{worker}.{time.time_ns()}.pt.trace.json{'.gz' if use_gzip else ''}"
        prof.export_chrome_trace(os.path.join(dir_name, name))

    return write


def _chosen(activities: Iterable[Any] | None) -> set[ProfilerActivity]:
    chosen = supported_activities() if activities is None else set()
    for activity in activities or ():
        chosen |= set(activity) if isinstance(activity, dict) else {activity}
    known = {a for a in chosen if isinstance(a, ProfilerActivity)}
    if not known:
        raise AssertionError("No valid profiler activities found")
    for activity in known - supported_activities():
        warnings.warn(
            f"{activity.name} is not available, disabling {activity.name} profiling", stacklevel=4
        )
    if not known & supported_activities():
        raise AssertionError("No activities specified for the profiler")
    return known


class profile:
    """Notes the calls of this thread while it is entered; with a schedule, in the steps that it names."""

    def __init__(
        self,
        *,
        activities: Iterable[Any] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[..., Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: Any = None,
        execution_trace_observer: Any = None,
        acc_events: bool = False,
        use_cuda: bool | None = None,
        custom_trace_id_callback: Callable[[], str] | None = None,
        post_processing_timeout_s: float | None = None,
    ) -> None:
        if use_cuda is not None:
            text = "`use_cuda` is deprecated, use `activities` argument instead"
            warnings.warn(text, FutureWarning, stacklevel=2)
        self.activities = activities
        self.schedule = schedule or (lambda step: ProfilerAction.RECORD)
        self._cycles = schedule is not None
        self.on_trace_ready = on_trace_ready
        self.record_shapes = record_shapes
        self.profile_memory = profile_memory
        self.with_stack = with_stack
        self.with_flops = with_flops
        self.with_modules = with_modules
        self.acc_events = acc_events
        self.step_num = 0
        self.current_action = self.schedule(0)
        self.profiler: Any = None
        self._finished: EventList | None = None
        self._step: record_function | None = None
        self._metadata: dict[str, Any] = {}

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begins with the first step."""
        _chosen(self.activities)
        if self.current_action in _RECORDS:
            self._begin()
        self._mark()

    def stop(self) -> None:
        """Ends with the current step."""
        self._unmark()
        if self.current_action in _RECORDS:
            self._end()
            self._tell()

    def step(self) -> None:
        """The next step begins."""
        self._unmark()
        before = self.current_action
        self.step_num += 1
        self.current_action = self.schedule(self.step_num)
        if before == ProfilerAction.RECORD_AND_SAVE:
            self._end()
            self._tell()
        elif before == ProfilerAction.RECORD and self.current_action not in _RECORDS:
            warnings.warn(
                "Incorrect schedule: RECORD followed by " + self.current_action.name, stacklevel=2
            )
            self._end()
        if self.current_action in _RECORDS and self.profiler is None:
            self._begin()
        self._mark()

    def _mark(self) -> None:
        if self._cycles and self.current_action in _RECORDS:
            self._step = record_function(f"ProfilerStep#{self.step_num}")
            self._step.__enter__()

    def _unmark(self) -> None:
        if self._step is not None:
            self._step.__exit__(None, None, None)
            self._step = None

    def _begin(self) -> None:
        self.profiler = _profiler.profile(
            record_shapes=self.record_shapes,
            profile_memory=self.profile_memory,
            with_flops=self.with_flops,
            with_stack=self.with_stack,
            with_modules=self.with_modules,
        )
        self.profiler.__enter__()

    def _end(self) -> None:
        self.profiler.__exit__(None, None, None)
        events = self.profiler.function_events
        for event in events:
            if event.name.startswith("ProfilerStep#"):
                event.key = event.name = "ProfilerStep*"
        if self.acc_events and self._finished is not None:
            events = EventList([*self._finished, *events], self.profile_memory, self.with_flops)
        self._finished = events
        self.profiler = None

    def _tell(self) -> None:
        if self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def _known(self, what: str) -> EventList:
        if self._finished is None:
            raise AssertionError(f"Profiler must be initialized before {what}")
        return self._finished

    def events(self) -> EventList:
        """All that was noted, in the order of the starts."""
        return self._known("accessing events")

    def key_averages(
        self,
        group_by_input_shape: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
    ) -> EventList:
        """A sum for each name, or for each name and shapes."""
        return self._known("getting key averages").key_averages(
            group_by_input_shape, group_by_stack_n, group_by_overload_name
        )

    def export_chrome_trace(self, path: str, use_python_export: bool = False) -> None:
        """Writes a file for `chrome://tracing`, packed if its name ends with `.gz`."""
        metadata = {
            "record_shapes": int(self.record_shapes),
            "profile_memory": int(self.profile_memory),
            "with_flops": int(self.with_flops),
            "host_name": socket.gethostname(),
            **self._metadata,
        }
        trace = chrome_trace(self._known("exporting chrome trace"), metadata)
        with gzip.open(path, "wt") if str(path).endswith(".gz") else open(path, "w") as file:
            json.dump(trace, file)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Refused: stacks are not noted."""
        self._known("exporting stacks").export_stacks(path, metric)

    def export_memory_timeline(self, path: str, device: str | None = None) -> None:
        """Refused: when memory is freed is not noted."""
        raise NotImplementedError(
            "export_memory_timeline: the profiler does not note what is freed"
        )

    def add_metadata(self, key: str, value: str) -> None:
        """Adds a text to the trace."""
        self._metadata[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """Adds a value, given as JSON, to the trace."""
        self._metadata[key] = json.loads(value)
