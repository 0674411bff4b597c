"""A pass of a loader whose batches other processes make."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import signal
import warnings
from collections import deque
from typing import Any

from torchlike._utils import ExceptionWrapper
from torchlike.utils.data._utils import pin_memory
from torchlike.utils.data._utils.channel import Channel, Closed, TooManyFiles, wait
from torchlike.utils.data._utils.worker import Ended, Plan, main
from torchlike.utils.data.dataloader import DataLoader, _BaseDataLoaderIter, _DatasetKind

__all__ = ["_MultiProcessingDataLoaderIter"]

_PATIENCE = 5.0
"""Seconds that a worker has to end by itself."""

_UNPICKLED = (
    "Got pickle error when attempting to start a worker Process. This might be because the worker "
    "Process arguments are not picklable. Python 3.14+ changed the multiprocessing start method in "
    "non-Mac POSIX platforms to 'forkserver', which requires the worker Process arguments to be "
    "picklable. You can also try multiprocessing.set_start_method('fork')."
)


class _Worker:
    """A process that makes batches, and this process's end of the way to it."""

    def __init__(self, context: Any, plan: Plan, others: list[Channel]) -> None:
        self.channel, theirs = Channel.pair()
        inherited = [*others, self.channel] if _forks(context) else []
        self.process = context.Process(target=main, args=(plan, theirs, inherited), daemon=True)
        try:
            self.process.start()
        except BaseException as error:
            self.channel.close()
            if "pickle" in str(error).lower():
                warnings.warn(_UNPICKLED, stacklevel=6)
            raise
        finally:
            theirs.close()
        self.tasks: set[int] = set()
        self.active = True
        self.gone = False

    def __getattr__(self, name: str) -> Any:
        # Who watches the workers of a pass takes them for processes.
        if name == "process":
            raise AttributeError(name)
        return getattr(self.process, name)


def _forks(context: Any) -> bool:
    return bool(context.get_start_method() == "fork")


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    """Tasks are numbered and dealt out in turn; answers are given in the order of the numbers."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        super().__init__(loader)
        self._in_order = loader.in_order
        self._workers: list[_Worker] = []
        self._failed = False
        self._prefetch_factor: int = loader.prefetch_factor or 0
        if self._prefetch_factor <= 0:
            raise AssertionError(
                "prefetch_factor must be greater than 0 for MultiProcessingDataLoaderIter"
            )
        context = loader.multiprocessing_context or multiprocessing.get_context()
        for i in range(self._num_workers):
            plan = Plan(
                stream=self._dataset_kind == _DatasetKind.Iterable,
                dataset=self._dataset,
                auto_collation=self._auto_collation,
                collate_fn=self._collate_fn,
                drop_last=self._drop_last,
                base_seed=self._base_seed,
                init_fn=loader.worker_init_fn,
                id=i,
                num_workers=self._num_workers,
            )
            others = [worker.channel for worker in self._workers]
            self._workers.append(_Worker(context, plan, others))
        self._numbers = itertools.count()
        self._begin()

    def _begin(self) -> None:
        """Deals the first tasks of a pass."""
        self._turn = 0
        self._order: deque[int] = deque()
        self._by_task: dict[int, _Worker] = {}
        self._arrived: dict[int, Any] = {}
        for worker in self._workers:
            worker.tasks.clear()
            worker.active = True
        for _ in range(self._prefetch_factor * self._num_workers):
            self._deal()

    def _reset(self, loader: DataLoader[Any], first_iter: bool = False) -> None:
        super()._reset(loader, first_iter)
        if self._failed:
            raise RuntimeError("DataLoader: its persistent workers ended after an error")
        for worker in self._workers:
            worker.channel.post((-1, None))
        self._begin()

    def _deal(self) -> None:
        """One more task for the next worker that takes tasks, if there is one and an index is left."""
        limit = self._prefetch_factor
        for step in range(self._num_workers):
            worker = self._workers[(self._turn + step) % self._num_workers]
            if worker.active and (self._in_order or len(worker.tasks) < limit):
                break
        else:
            return
        try:
            index = self._next_index()
        except StopIteration:
            return
        self._turn = (self._turn + step + 1) % self._num_workers
        number = next(self._numbers)
        self._order.append(number)
        self._by_task[number] = worker
        worker.tasks.add(number)
        worker.channel.post((number, index))

    def _next_data(self) -> Any:
        while True:
            number = self._settled()
            if number is None:
                if not self._order:
                    if not self._persistent_workers:
                        self._shutdown_workers()
                    raise StopIteration
                self._await()
                continue
            data = self._arrived.pop(number)
            self._order.remove(number)
            if isinstance(data, Ended):
                continue
            self._deal()
            if isinstance(data, ExceptionWrapper):
                data.reraise()
            return pin_memory.pin_memory(data) if self._pin_memory else data

    def _settled(self) -> int | None:
        """The task whose answer is next, if it is there; those of workers whose stream ended have none."""
        while self._order and self._order[0] not in self._arrived:
            if self._by_task[self._order[0]].active:
                break
            self._by_task.pop(self._order.popleft(), None)
        if self._order and self._order[0] in self._arrived:
            return self._order[0]
        if not self._in_order:
            return next(iter(self._arrived), None)
        return None

    def _await(self) -> None:
        """Takes what arrives next.

        Raises:
            RuntimeError: if nothing does in time, or a worker that owes an answer is gone.
        """
        open_ones = [worker for worker in self._workers if not worker.gone]
        found = wait(
            [worker.channel for worker in open_ones],
            [worker.process.sentinel for worker in open_ones],
            self._timeout or None,
        )
        if found is None:
            raise RuntimeError(f"DataLoader timed out after {self._timeout} seconds")
        ready, ended = found
        for worker in open_ones:
            if worker.channel in ready:
                self._receive(worker)
            elif worker.process.sentinel in ended:
                worker.gone = True
            if worker.gone and worker.active:
                self._lost(worker)

    def _receive(self, worker: _Worker) -> None:
        try:
            number, data = worker.channel.receive()
        except Closed:
            worker.gone = True
            return
        except TooManyFiles:
            self._shutdown_workers()
            raise
        if number not in worker.tasks:
            return  # an answer of a pass that was given up
        worker.tasks.discard(number)
        self._by_task.pop(number, None)
        self._arrived[number] = data
        if isinstance(data, Ended):
            worker.active = False
            self._arrived.pop(number)
            self._by_task[number] = worker
            self._deal()

    def _lost(self, worker: _Worker) -> None:
        worker.process.join(_PATIENCE)
        pid, code = worker.process.pid, worker.process.exitcode
        self._shutdown_workers()
        self._order.clear()
        self._arrived.clear()
        text = f"DataLoader worker (pid(s) {pid}) exited unexpectedly"
        raise RuntimeError(text) from RuntimeError(_why(pid, code))

    def _shutdown_workers(self) -> None:
        """Ends all workers, and waits until they are gone."""
        self._failed = True
        for worker in self._workers:
            worker.channel.hang_up()
        for worker in self._workers:
            worker.gone = True
            worker.active = False
            worker.process.join(_PATIENCE)
            if worker.process.is_alive():
                worker.process.terminate()
                worker.process.join(_PATIENCE)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        self._workers = []

    def __del__(self) -> None:
        # A child by fork has no children of its own to wait for, and an interpreter that ends has lost names.
        with contextlib.suppress(AssertionError, AttributeError, OSError, TypeError):
            self._shutdown_workers()


def _why(pid: int | None, code: int | None) -> str:
    """How a process ended."""
    if code is not None and code < 0:
        name = signal.strsignal(-code)
        text = f"DataLoader worker (pid {pid}) is killed by signal: {name}. "
        if -code == signal.SIGBUS:
            text += (
                "It is possible that dataloader's workers are out of shared memory. "
                "Please try to raise your shared memory limit."
            )
        return text
    return (
        f"DataLoader worker (pid {pid}) exited unexpectedly with exit code {code}. "
        "Details are lost due to multiprocessing. Rerunning with num_workers=0 may give better "
        "error trace."
    )
