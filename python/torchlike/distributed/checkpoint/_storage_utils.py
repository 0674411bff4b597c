"""What saving and loading share: where to, and with whom."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from torchlike import distributed as dist
from torchlike.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter

if TYPE_CHECKING:
    import os


def single(no_dist: bool, intent: str) -> bool:
    """Whether this process is alone, with a warning where nobody said so."""
    if no_dist or dist.is_initialized():
        return no_dist
    warnings.warn(
        f"torch.distributed is disabled, unavailable or uninitialized, assuming the intent is to {intent} in a single "
        "process.",
        stacklevel=3,
    )
    return True


def storage_of(storage: Any, checkpoint_id: str | os.PathLike[str] | None, reads: bool) -> Any:
    """The reader or writer that was given, or one of a folder.

    Raises:
        RuntimeError: if there is no folder either, or it is none.
    """
    if storage is not None:
        if checkpoint_id is not None:
            storage.reset(checkpoint_id)
        return storage
    if not checkpoint_id:
        raise RuntimeError(
            "`checkpoint_id` must be specified if storage_reader/storage_writer is None."
        )
    kind: Any = FileSystemReader if reads else FileSystemWriter
    if not kind.validate_checkpoint_id(checkpoint_id):
        raise RuntimeError(
            "Cannot detect which StorageReader or StorageWriter to use. Please specify the "
            "storage_reader/storage_writer."
        )
    return kind(checkpoint_id)
