"""Several processes that run one function."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import pickle
import signal
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "ProcessContext",
    "ProcessException",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SpawnContext",
    "spawn",
    "start_processes",
]


class ProcessException(Exception):
    """A process failed."""

    def __init__(self, msg: str, error_index: int, pid: int) -> None:
        super().__init__(msg)
        self.msg = msg
        self.error_index = error_index
        self.pid = pid

    def __reduce__(self) -> Any:
        return type(self), (self.msg, self.error_index, self.pid)


class ProcessRaisedException(ProcessException):
    """A process failed with an exception, whose traceback is the message."""

    def __init__(self, msg: str, error_index: int, error_pid: int) -> None:
        super().__init__(msg, error_index, error_pid)


class ProcessExitedException(ProcessException):
    """A process ended by a signal, or with an exit code."""

    def __init__(
        self,
        msg: str,
        error_index: int,
        error_pid: int,
        exit_code: int,
        signal_name: str | None = None,
    ) -> None:
        super().__init__(msg, error_index, error_pid)
        self.exit_code = exit_code
        self.signal_name = signal_name

    def __reduce__(self) -> Any:
        kept = (self.msg, self.error_index, self.pid, self.exit_code, self.signal_name)
        return type(self), kept


def _run(fn: Callable[..., Any], i: int, args: tuple[Any, ...], error_file: str) -> None:
    """What a process does."""
    try:
        fn(i, *args)
    except KeyboardInterrupt:
        pass  # the parent has it too
    except Exception:
        import traceback

        with open(error_file, "wb") as file:
            pickle.dump(traceback.format_exc(), file)
        sys.exit(1)


class ProcessContext:
    """Processes that were started together."""

    def __init__(self, processes: list[Any], error_files: list[str]) -> None:
        self.processes = processes
        self.error_files = error_files
        self.sentinels = {process.sentinel: i for i, process in enumerate(processes)}

    def pids(self) -> list[int]:
        """Their numbers."""
        return [int(process.pid) for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Waits for one of them to end; true if all have. The first that fails ends the others.

        Raises:
            ProcessRaisedException: with the traceback of an exception.
            ProcessExitedException: if one ended otherwise than well.
        """
        if not self.sentinels:
            return True
        ready = multiprocessing.connection.wait(list(self.sentinels), timeout=timeout)
        failed = None
        for sentinel in ready:
            i = self.sentinels.pop(sentinel)
            process = self.processes[i]
            process.join()
            if process.exitcode != 0:
                failed = i
                break
        if failed is None:
            return not self.sentinels
        self._end(grace_period)
        raise self._failure(failed)

    def _end(self, grace_period: float | None) -> None:
        """Asks those that are left to end, and then makes them."""
        if grace_period is not None:
            until = time.monotonic() + grace_period
            for process in self.processes:
                process.join(timeout=max(0.0, until - time.monotonic()))
        for process in self.processes:
            if process.is_alive():
                process.terminate()
        until = time.monotonic() + 30
        for process in self.processes:
            process.join(timeout=max(0.0, until - time.monotonic()))
            if process.is_alive():
                warnings.warn(
                    "Attempting to kill processes that did not end when asked to", stacklevel=3
                )
                process.kill()
                process.join()

    def _failure(self, i: int) -> ProcessException:
        process = self.processes[i]
        try:
            with open(self.error_files[i], "rb") as file:
                trace = pickle.load(file)
        except (OSError, EOFError):
            code = process.exitcode
            if code < 0:
                name = signal.Signals(-code).name
                text = f"process {i} terminated with signal {name}"
                return ProcessExitedException(text, i, process.pid, code, name)
            text = f"process {i} terminated with exit code {code}"
            return ProcessExitedException(text, i, process.pid, code)
        finally:
            self._forget()
        text = f"\n\n-- Process {i} terminated with the following error:\n{trace}"
        return ProcessRaisedException(text, i, process.pid)

    def _forget(self) -> None:
        for name in self.error_files:
            Path(name).unlink(missing_ok=True)


class SpawnContext(ProcessContext):
    """The same, for processes that are started afresh."""


def start_processes(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Runs ``fn(i, *args)`` in `nprocs` processes; waits for them, or gives what can."""
    import torchlike.multiprocessing  # noqa: F401  (tensors among the arguments pass as shared memory)

    context: Any = multiprocessing.get_context(start_method)
    processes = []
    files = []
    for i in range(nprocs):
        # The name of a file that does not exist unless the process fails.
        with tempfile.NamedTemporaryFile(prefix="torchlike-errorfile-") as file:
            files.append(file.name)
        process = context.Process(target=_run, args=(fn, i, args, files[-1]), daemon=daemon)
        process.start()
        processes.append(process)
    started = SpawnContext(processes, files)
    if not join:
        return started
    while not started.join():
        pass
    started._forget()
    return None


def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Runs ``fn(i, *args)`` in `nprocs` processes that start afresh.

    Raises:
        ProcessRaisedException: with the traceback of the first that raised one.
        ProcessExitedException: if one ended otherwise than well.
    """
    if start_method != "spawn":
        warnings.warn(
            f"This method only supports start_method=spawn (got: {start_method}).\n"
            "To use a different start_method use:\n\t\t"
            " torch.multiprocessing.start_processes(...)",
            FutureWarning,
            stacklevel=2,
        )
    return start_processes(fn, args, nprocs, join, daemon, start_method="spawn")
