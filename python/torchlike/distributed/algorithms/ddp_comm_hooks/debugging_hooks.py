"""A hook that leaves gradients alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchlike.futures import Future

if TYPE_CHECKING:
    from torchlike.distributed._buckets import GradBucket

__all__ = ["noop_hook"]


def noop_hook(_: Any, bucket: GradBucket) -> Future:
    """The gradients of this rank."""
    made = Future()
    made.set_result(bucket.buffer())
    return made
