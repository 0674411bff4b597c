"""Pipes of data: datasets, which loaders read as they read others."""

from typing import Any

from torchlike.utils.data.dataset import Dataset, IterableDataset


class IterDataPipe(IterableDataset[Any]):
    """A pipe that is gone through."""


class MapDataPipe(Dataset[Any]):
    """A pipe that is indexed."""
