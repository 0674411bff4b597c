"""Batches of a data set, in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torchlike as torch
from torchlike.utils.data._collate import default_collate, default_convert
from torchlike.utils.data.dataset import IterableDataset
from torchlike.utils.data.sampler import BatchSampler, RandomSampler, SequentialSampler

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["DataLoader", "get_worker_info"]

_T = TypeVar("_T", covariant=True)


def get_worker_info() -> None:
    """Nothing: there are no worker processes."""
    return None


class _Endless:
    def __iter__(self) -> Iterator[None]:
        while True:
            yield None


class DataLoader(Generic[_T]):
    """Goes through a data set in batches."""

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Any = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Any = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        if num_workers < 0:
            raise ValueError(
                "num_workers option should be non-negative; "
                "use num_workers=0 to disable multiprocessing."
            )
        if timeout < 0:
            raise ValueError("timeout option should be non-negative")
        if num_workers == 0 and prefetch_factor is not None:
            raise ValueError(
                "prefetch_factor option could only be specified in multiprocessing."
                "let num_workers > 0 to enable multiprocessing, otherwise set "
                "prefetch_factor to None."
            )
        if persistent_workers and num_workers == 0:
            raise ValueError("persistent_workers option needs num_workers > 0")
        if num_workers > 0:
            raise NotImplementedError(
                "DataLoader: worker processes (num_workers > 0) are not supported; "
                "use num_workers=0"
            )
        self._stream = isinstance(dataset, IterableDataset)
        if self._stream:
            wanted = "DataLoader with IterableDataset: expected unspecified"
            if shuffle not in (False, None):
                raise ValueError(f"{wanted} shuffle option, but got shuffle={shuffle}")
            if sampler is not None:
                raise ValueError(f"{wanted} sampler option, but got sampler={sampler}")
            if batch_sampler is not None:
                raise ValueError(
                    f"{wanted} batch_sampler option, but got batch_sampler={batch_sampler}"
                )
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError(
                    "batch_sampler option is mutually exclusive "
                    "with batch_size, shuffle, sampler, and drop_last"
                )
            batch_size = None
            drop_last = False
        elif batch_size is None and drop_last:
            raise ValueError(
                "batch_size=None option disables auto-batching "
                "and is mutually exclusive with drop_last"
            )
        if sampler is None:
            if self._stream:
                sampler = _Endless()
            elif shuffle:
                sampler = RandomSampler(dataset, generator=generator)
            else:
                sampler = SequentialSampler(dataset)
        if batch_size is not None and batch_sampler is None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.dataset = dataset
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.num_workers = num_workers
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.generator = generator
        self.prefetch_factor = prefetch_factor
        self.persistent_workers = persistent_workers
        self.in_order = in_order
        batched = batch_sampler is not None
        self.collate_fn = collate_fn or (default_collate if batched else default_convert)

    def __iter__(self) -> Iterator[Any]:
        # The seed that workers would get is drawn whether or not there are any.
        torch.empty((), dtype=torch.int64).random_(generator=self.generator).item()
        return self._samples() if self._stream else self._batches()

    def _batches(self) -> Iterator[Any]:
        dataset, collate = self.dataset, self.collate_fn
        if self.batch_sampler is None:
            for index in self.sampler:
                yield collate(dataset[index])
            return
        fetch = getattr(dataset, "__getitems__", None)
        for indices in self.batch_sampler:
            yield collate(fetch(indices) if fetch else [dataset[i] for i in indices])

    def _samples(self) -> Iterator[Any]:
        stream, collate = iter(self.dataset), self.collate_fn
        if self.batch_sampler is None:
            for sample in stream:
                yield collate(sample)
            return
        for indices in self.batch_sampler:
            batch = [sample for _, sample in zip(indices, stream, strict=False)]
            if not batch or (self.drop_last and len(batch) < len(indices)):
                return
            yield collate(batch)

    def __len__(self) -> int:
        if not self._stream:
            return len(self.sampler if self.batch_sampler is None else self.batch_sampler)
        size = len(self.dataset)
        if self.batch_size is None:
            return size
        return size // self.batch_size if self.drop_last else -(-size // self.batch_size)
