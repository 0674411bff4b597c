"""Batches of a data set, by index or from a stream."""

from __future__ import annotations

from itertools import islice
from typing import Any

__all__ = ["_IterableDatasetFetcher", "_MapDatasetFetcher"]


def fetcher(
    stream: bool, dataset: Any, auto_collation: bool, collate_fn: Any, drop_last: bool
) -> _Fetcher:
    """A new pass over a data set, or over a stream."""
    kind = _IterableDatasetFetcher if stream else _MapDatasetFetcher
    return kind(dataset, auto_collation, collate_fn, drop_last)


class _Fetcher:
    def __init__(
        self, dataset: Any, auto_collation: bool, collate_fn: Any, drop_last: bool
    ) -> None:
        self.dataset = dataset
        self.auto_collation = auto_collation
        self.collate_fn = collate_fn
        self.drop_last = drop_last

    def fetch(self, possibly_batched_index: Any) -> Any:
        """What a loader gives for an index, or a list of them."""
        raise NotImplementedError


class _MapDatasetFetcher(_Fetcher):
    def fetch(self, possibly_batched_index: Any) -> Any:
        """The collated samples of these indices, or of this one."""
        if not self.auto_collation:
            data = self.dataset[possibly_batched_index]
        elif getattr(self.dataset, "__getitems__", None):
            data = self.dataset.__getitems__(possibly_batched_index)
        else:
            data = [self.dataset[index] for index in possibly_batched_index]
        return self.collate_fn(data)


class _IterableDatasetFetcher(_Fetcher):
    def __init__(
        self, dataset: Any, auto_collation: bool, collate_fn: Any, drop_last: bool
    ) -> None:
        super().__init__(dataset, auto_collation, collate_fn, drop_last)
        self.dataset_iter = iter(dataset)
        self.ended = False

    def fetch(self, possibly_batched_index: Any) -> Any:
        """As many samples of the stream as there are indices, or one.

        Raises:
            StopIteration: at the end.
        """
        if self.ended:
            raise StopIteration
        if not self.auto_collation:
            return self.collate_fn(next(self.dataset_iter))
        data = list(islice(self.dataset_iter, len(possibly_batched_index)))
        self.ended = len(data) < len(possibly_batched_index)
        if not data or (self.drop_last and len(data) < len(possibly_batched_index)):
            raise StopIteration
        return self.collate_fn(data)
