"""Copies of state dicts that are saved while the program goes on."""

from __future__ import annotations

import copy
import warnings
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torchlike as torch
from torchlike.distributed.tensor._dtensor import DTensor
from torchlike.utils import _pytree as pytree

__all__ = ["AsyncStager", "BlockingAsyncStager", "DefaultStager", "StagingOptions"]


@runtime_checkable
class AsyncStager(Protocol):
    """Who copies a state dict for `async_save`: what the copy has does not change with the program."""

    _synchronize_after_execute: bool = True

    @property
    def should_synchronize_after_execute(self) -> bool:
        """Whether `async_save` waits for the copy."""
        return self._synchronize_after_execute

    def stage(self, state_dict: dict[str, Any]) -> Future[dict[str, Any]] | dict[str, Any]:
        """A copy, or a future of it."""
        raise NotImplementedError(f"{type(self).__name__} must implement stage method")

    def synchronize_staging(self) -> None:
        """Waits for a copy that is being made."""

    def close(self) -> None:
        """Lets go what copies need."""


@dataclass
class StagingOptions:
    """How a `DefaultStager` copies."""

    use_pinned_memory: bool = True
    """Into memory that a GPU can write to itself."""
    use_shared_memory: bool = True
    """Into memory that other processes can be given."""
    use_async_staging: bool = True
    """On a thread of its own: `stage` gives a future."""
    use_non_blocking_copy: bool = True
    """Without waiting for each copy; needs an accelerator."""


class DefaultStager(AsyncStager):
    """Copies to the CPU.

    Args:
        config: how.

    Raises:
        AssertionError: for copies that do not block, where there is no accelerator.
    """

    def __init__(self, config: StagingOptions | None = None) -> None:
        self._config = config or StagingOptions()
        if self._config.use_pinned_memory and not torch.cuda.is_available():
            warnings.warn(
                "Ignoring pin_memory flag for checkpoint staging as pinning memory"
                "requires CUDA, but CUDA is not available. ",
                stacklevel=2,
            )
        if self._config.use_non_blocking_copy and not torch.accelerator.is_available():
            raise AssertionError(
                "Non-blocking copy requires that the current accelerator is available."
            )
        self._pool = ThreadPoolExecutor(max_workers=1) if self._config.use_async_staging else None
        self._future: Future[dict[str, Any]] | None = None

    def stage(
        self, state_dict: dict[str, Any], **kwargs: Any
    ) -> Future[dict[str, Any]] | dict[str, Any]:
        """A copy, or with `use_async_staging` a future of it."""
        if self._pool is None:
            return self._staged(state_dict)
        self._future = self._pool.submit(self._staged, state_dict)
        return self._future

    def _staged(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        pinned = self._config.use_pinned_memory and torch.cuda.is_available()
        return staged(state_dict, pinned=pinned, shared=self._config.use_shared_memory)

    def synchronize_staging(self) -> None:
        """Waits for the copy that is being made."""
        if self._future is not None:
            self._future.result()

    def close(self) -> None:
        """Waits, and ends the thread."""
        if self._pool is not None:
            self._pool.shutdown(wait=True)


class BlockingAsyncStager(AsyncStager):
    """Copies to the CPU before the program goes on.

    Args:
        cache_staged_state_dict: copies go into the tensors of the copy before, which is not to be used any more.
        type_check: whether values of other types than tensors, numbers and containers of these are refused.
    """

    _synchronize_after_execute: bool = False

    def __init__(self, cache_staged_state_dict: bool = False, type_check: bool = False) -> None:
        self.cache_staged_state_dict, self.type_check = cache_staged_state_dict, type_check
        self.state_dict_cache: dict[str, Any] | None = None

    def stage(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """A copy."""
        if self.type_check:
            _checked(state_dict)
        made = staged(state_dict, into=self.state_dict_cache)
        if self.cache_staged_state_dict:
            self.state_dict_cache = made
        return made

    def synchronize_staging(self) -> None:
        """Returns at once: the copy is made already."""
        return

    def close(self) -> None:
        """Does nothing: there is no thread to end."""
        return


def staged(
    state_dict: dict[str, Any],
    *,
    into: dict[str, Any] | None = None,
    pinned: bool = False,
    shared: bool = False,
) -> dict[str, Any]:
    """A state dict whose tensors are copies on the CPU.

    Args:
        into: a copy that was made before, whose tensors are written where they look alike.
        pinned: into memory that a GPU can write to itself.
        shared: into memory that other processes can be given.
    """
    before = dict(pytree.tree_flatten_with_path(into)[0]) if into is not None else {}

    def on_cpu(tensor: Any, old: Any) -> Any:
        tensor = tensor.detach()
        if old is not None and (old.shape, old.dtype) == (tensor.shape, tensor.dtype):
            return old.copy_(tensor)
        made = tensor.cpu()
        made = made.clone() if made.data_ptr() == tensor.data_ptr() else made
        made = made.pin_memory() if pinned else made
        return made.share_memory_() if shared else made

    def copied(path: Any, value: Any) -> Any:
        old = before.get(path)
        if isinstance(value, DTensor):
            olds = old._locals if isinstance(old, DTensor) else [None] * len(value._locals)
            pieces = [on_cpu(p, o) for p, o in zip(value._locals, olds, strict=True)]
            return DTensor._of(pieces, value._spec, value.requires_grad)
        if isinstance(value, torch.Tensor):
            return on_cpu(value, old if type(old) is torch.Tensor else None)
        return copy.deepcopy(value)

    made: dict[str, Any] = pytree.tree_map_with_path(copied, state_dict)
    return made


def _checked(value: Any) -> None:
    for leaf in pytree.tree_leaves(value):
        if not isinstance(leaf, torch.Tensor | int | float | str | bytes | type(None)):
            raise ValueError(f"Unexpected value type {type(leaf)}")
