"""Pipes of data: datasets, which loaders read as they read others."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, ClassVar

from torchlike.utils.data.dataset import Dataset, IterableDataset

if TYPE_CHECKING:
    from collections.abc import Callable


class IterDataPipe(IterableDataset[Any]):
    """A pipe that is gone through; pipes that are registered by name are its methods."""

    functions: ClassVar[dict[str, Any]] = {}

    def __getattr__(self, name: str) -> Any:
        if name not in IterDataPipe.functions:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return functools.partial(IterDataPipe.functions[name], self)


class MapDataPipe(Dataset[Any]):
    """A pipe that is indexed."""


def functional_datapipe(name: str, enable_df_api_tracing: bool = False) -> Callable[[Any], Any]:
    """Makes a class of pipes a method of all pipes: `pipe.name(...)` is `Class(pipe, ...)`.

    Raises:
        Exception: if there is one of this name.
    """

    def named(cls: Any) -> Any:
        if IterDataPipe.functions.setdefault(name, cls) is not cls:
            raise Exception(f"Unable to add DataPipe function name {name} as it is already taken")
        return cls

    return named


class _IterDataPipeSerializationWrapper(IterDataPipe):
    """A pipe that is sent to workers: as it is."""


class _MapDataPipeSerializationWrapper(MapDataPipe):
    """A pipe that is sent to workers: as it is."""
