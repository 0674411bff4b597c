"""Hooks that average gradients, as they are or in half precision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike.distributed import _groups

if TYPE_CHECKING:
    from collections.abc import Callable

    from torchlike.distributed._buckets import GradBucket
    from torchlike.futures import Future

__all__ = [
    "allreduce_hook",
    "bf16_compress_hook",
    "bf16_compress_wrapper",
    "fp16_compress_hook",
    "fp16_compress_wrapper",
]


def _averaged(group: Any, tensor: Any) -> Future:
    """The average over all ranks, in place."""
    group = _groups.group_of(group)
    tensor.div_(group.size())
    work = torch.distributed.all_reduce(tensor, group=group, async_op=True)
    made: Future = work.get_future().then(lambda _: tensor)
    return made


def allreduce_hook(process_group: Any, bucket: GradBucket) -> Any:
    """Averages a bucket."""
    return _averaged(process_group, bucket.buffer())


def _compressed(dtype: Any, group: Any, bucket: GradBucket) -> Any:
    buffer = bucket.buffer()
    return _averaged(group, buffer.to(dtype)).then(lambda f: buffer.copy_(f.value()))


def fp16_compress_hook(process_group: Any, bucket: GradBucket) -> Any:
    """Averages a bucket in float16."""
    return _compressed(torch.float16, process_group, bucket)


def bf16_compress_hook(process_group: Any, bucket: GradBucket) -> Any:
    """Averages a bucket in bfloat16."""
    return _compressed(torch.bfloat16, process_group, bucket)


def _wrapped(dtype: Any, hook: Callable[..., Any]) -> Callable[..., Any]:
    def compressing(hook_state: Any, bucket: GradBucket) -> Any:
        buffer = bucket.buffer()
        bucket.set_buffer(buffer.to(dtype))

        def back(future: Future) -> Any:
            bucket.set_buffer(buffer)
            return buffer.copy_(future.value())

        return hook(hook_state, bucket).then(back)

    return compressing


def fp16_compress_wrapper(hook: Callable[..., Any]) -> Callable[..., Any]:
    """A hook that does its work in float16."""
    return _wrapped(torch.float16, hook)


def bf16_compress_wrapper(hook: Callable[..., Any]) -> Callable[..., Any]:
    """A hook that does its work in bfloat16."""
    return _wrapped(torch.bfloat16, hook)
