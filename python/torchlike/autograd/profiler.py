"""What ran, when, and inside what: notes of all calls of a thread, made by the core."""

from __future__ import annotations

import json
import warnings
from typing import Any, ClassVar

from torchlike import _C
from torchlike.autograd._record_function import record_function as record_function
from torchlike.autograd.profiler_util import EventList, FunctionEventAvg, chrome_trace, events_of

__all__ = ["profile", "record_function"]

_noting: list[Any] = []
"""The profilers that are entered."""


class profile:
    """Notes the calls of this thread while it is entered.

    Times are those of the host. Memory is what results take that were made meanwhile, on the meta device too, where
    it is what they would take.
    """

    def __init__(
        self,
        enabled: bool = True,
        *,
        use_cuda: bool = False,
        use_device: str | None = None,
        record_shapes: bool = False,
        with_flops: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_modules: bool = False,
        use_kineto: bool = False,
        use_cpu: bool = True,
        experimental_config: Any = None,
        acc_events: bool = False,
        custom_trace_id_callback: Any = None,
        post_processing_timeout_s: float | None = None,
        activity_filters: Any = None,
    ) -> None:
        if with_stack or with_modules:
            raise NotImplementedError("profile: stacks and modules of calls are not noted")
        if use_cuda or use_device == "cuda":
            warnings.warn("CUDA is not available, disabling CUDA profiling", stacklevel=2)
        elif use_device is not None:
            warnings.warn(f"The {use_device} is not available, disabling it", stacklevel=2)
        self.enabled = enabled
        self.record_shapes = record_shapes or with_flops
        self.with_flops = with_flops
        self.profile_memory = profile_memory
        self.entered = False
        self._noting = False
        self._events: EventList | None = None

    def __enter__(self) -> profile | None:
        if not self.enabled:
            return None
        if self.entered:
            raise RuntimeError("Profiler context manager is not reentrant")
        self.entered = True
        self._noting = _C._profile_start(self.record_shapes)
        _noting.append(self)
        if not self._noting:
            warnings.warn(
                "This thread's calls are noted by another profiler already: this one sees none",
                stacklevel=2,
            )
        return self

    def __exit__(self, *exc: object) -> None:
        if self not in _noting:
            return
        _noting.remove(self)
        rows = _C._profile_stop()[0] if self._noting else []
        self._events = events_of(rows, self.record_shapes, self.profile_memory, self.with_flops)

    @property
    def function_events(self) -> EventList:
        """All that was noted."""
        if self._events is None:
            raise RuntimeError("Profiler didn't finish running")
        return self._events

    def key_averages(
        self,
        group_by_input_shape: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
    ) -> EventList:
        """A sum for each name."""
        return self.function_events.key_averages(
            group_by_input_shape, group_by_stack_n, group_by_overload_name
        )

    def table(self, *args: Any, **kwargs: Any) -> str:
        """All events as a table."""
        return self.function_events.table(*args, **kwargs)

    def total_average(self) -> FunctionEventAvg:
        """The sum of all."""
        return self.function_events.total_average()

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds of all together."""
        return self.function_events.self_cpu_time_total

    def export_chrome_trace(
        self, path: str, metadata: dict[str, Any] | None = None, use_python_export: bool = False
    ) -> None:
        """Writes a file for `chrome://tracing`.

        Args:
            metadata: noted in it, too.
            use_python_export: accepted; there is one way.
        """
        with open(path, "w") as file:
            json.dump(chrome_trace(self.function_events, metadata or {}), file)

    def __repr__(self) -> str:
        return "<unfinished torch.autograd.profile>" if self._events is None else repr(self._events)

    def __str__(self) -> str:
        return "<unfinished torch.autograd.profile>" if self._events is None else str(self._events)


class KinetoStepTracker:
    """Counts steps for those that begin and end profiles with them: the most that anyone has made."""

    _steps: ClassVar[dict[str, int]] = {}
    _current = 0

    @classmethod
    def init_step_count(cls, requester: str) -> None:
        """Begins to count for someone, from where the others are."""
        cls._steps[requester] = cls._current

    @classmethod
    def erase_step_count(cls, requester: str) -> bool:
        """Counts no more for someone; False if that was not done."""
        return cls._steps.pop(requester, None) is not None

    @classmethod
    def increment_step(cls, requester: str) -> int:
        """Counts a step for someone, and gives the most of all."""
        if requester not in cls._steps:
            cls.init_step_count(requester)
        cls._steps[requester] += 1
        cls._current = max(cls._current, cls._steps[requester])
        return cls._current

    @classmethod
    def current_step(cls) -> int:
        """The most that anyone has made."""
        return cls._current


class emit_nvtx:
    """Marks on a GPU's timeline for each call.

    Raises:
        NotImplementedError: where it is entered enabled: calls have no marks of their own here.
    """

    def __init__(self, enabled: bool = True, record_shapes: bool = False) -> None:
        self.enabled, self.record_shapes = enabled, record_shapes

    def __enter__(self) -> emit_nvtx:
        if self.enabled:
            raise NotImplementedError(
                "torch.autograd.profiler.emit_nvtx is not supported by torchlike: use torch.cuda.nvtx.range"
            )
        return self

    def __exit__(self, *exc: object) -> None:
        """Nothing is to be ended."""
