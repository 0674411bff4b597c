"""What runs in a worker process."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from typing import Any

import torchlike as torch
from torchlike._utils import ExceptionWrapper
from torchlike.utils.data._utils import fetch
from torchlike.utils.data._utils.channel import Channel, Closed

__all__ = ["WorkerInfo", "get_worker_info"]

_PARENT_EVERY = 5.0
"""Seconds after which a worker that waits looks whether its parent lives."""


@dataclass(frozen=True)
class _Facts:
    """What a worker process is told of itself."""

    id: int
    num_workers: int
    seed: int
    dataset: Any
    rng: Any = None
    worker_method: str | None = "multiprocessing"


class WorkerInfo(_Facts):
    """Who a worker process is."""

    def __setattr__(self, name: str, value: Any) -> None:
        raise RuntimeError("Cannot assign attributes to WorkerInfo objects")


_worker_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """Who the current worker process is; nothing in the main process."""
    return _worker_info


@dataclass(frozen=True)
class Ended:
    """A worker's stream has no more samples."""

    worker_id: int


@dataclass(frozen=True)
class Plan:
    """What a worker is told once."""

    stream: bool
    dataset: Any
    auto_collation: bool
    collate_fn: Any
    drop_last: bool
    base_seed: int
    init_fn: Any
    id: int
    num_workers: int

    def fetcher(self) -> Any:
        """A new pass over the data set."""
        return fetch.fetcher(
            self.stream, self.dataset, self.auto_collation, self.collate_fn, self.drop_last
        )


def _generate_state(base_seed: int, worker_id: int) -> list[int]:
    """The four words that seed NumPy in a worker."""
    import numpy as np

    words = [worker_id, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]
    return [int(n) for n in np.random.SeedSequence(words).generate_state(4)]


def _seed(plan: Plan) -> None:
    seed = plan.base_seed + plan.id
    random.seed(seed)
    torch.manual_seed(seed)
    try:
        import numpy as np
    except ImportError:
        return
    np.random.seed(_generate_state(plan.base_seed, plan.id))


def _caught(plan: Plan) -> ExceptionWrapper:
    return ExceptionWrapper(where=f"in DataLoader worker process {plan.id}")


def main(plan: Plan, channel: Channel, others: list[Channel]) -> None:
    """Answers tasks until there are none; ``others`` are ends of the parent's that a fork copied."""
    import signal

    global _worker_info
    for other in others:
        other.close()
    # Ctrl-C goes to the whole group of processes; the parent ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    _seed(plan)
    _worker_info = WorkerInfo(plan.id, plan.num_workers, plan.base_seed + plan.id, plan.dataset)
    fetcher = failed = None
    try:
        if plan.init_fn is not None:
            plan.init_fn(plan.id)
        fetcher = plan.fetcher()
    except Exception:
        failed = _caught(plan)
    parent = os.getppid()
    try:
        while True:
            task = channel.receive(_PARENT_EVERY)
            if task is None:
                if os.getppid() != parent:
                    return
                continue
            number, index = task
            answer: Any = failed
            if number < 0:
                try:
                    fetcher, failed = plan.fetcher(), None
                except Exception:
                    failed = _caught(plan)
                continue
            if failed is None:
                answer = _answer(plan, fetcher, index)
            try:
                channel.send((number, answer))
            except Closed:
                return
            except Exception:
                channel.send((number, _caught(plan)))
            del task, index, answer
    except Closed:
        return


def _answer(plan: Plan, fetcher: Any, index: Any) -> Any:
    try:
        return fetcher.fetch(index)
    except StopIteration:
        if plan.stream:
            return Ended(plan.id)
        return _caught(plan)
    except Exception:
        return _caught(plan)
