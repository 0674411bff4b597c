"""How tensors and storages are sent to other processes."""

from __future__ import annotations

import os
from multiprocessing.reduction import DupFd, ForkingPickler
from typing import Any

import torchlike as torch
from torchlike import _C
from torchlike.utils.data._utils.channel import sendable

__all__ = ["init_reductions", "reduce_storage", "reduce_tensor"]


def rebuild_storage_fd(descriptor: Any, size: int) -> Any:
    """The storage behind a descriptor that was sent."""
    fd = descriptor.detach()
    try:
        return torch.UntypedStorage._new_shared_fd_cpu(fd, size)
    finally:
        os.close(fd)


def reduce_storage(storage: Any) -> Any:
    """A storage as a descriptor of its memory, which becomes shared."""
    if storage.device.type == "meta":
        return storage.__reduce__()
    if storage.device.type != "cpu":
        raise NotImplementedError(
            f"torch.multiprocessing: storages on {storage.device} cannot be sent to other processes"
        )
    fd, size = storage._share_fd_cpu_()
    return rebuild_storage_fd, (DupFd(fd), size)


def reduce_typed_storage(storage: Any) -> Any:
    """A typed storage by what is behind it."""
    return rebuild_typed_storage, (storage._untyped_storage, storage.dtype)


def rebuild_typed_storage(storage: Any, dtype: Any) -> Any:
    """A typed storage over one that was sent."""
    return torch.TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)


def rebuild_tensor(cls: Any, storage: Any, metadata: Any) -> Any:
    """A tensor on a storage that was sent."""
    offset, size, stride, requires_grad, dtype = metadata
    made = _C._from_storage(storage, dtype, size, stride, offset)
    if cls is torch.nn.Parameter:
        return cls(made, requires_grad)
    return made.requires_grad_(requires_grad)


def reduce_tensor(tensor: Any) -> Any:
    """A tensor by its storage, which becomes shared; those without elements on the host by value."""
    plain = sendable(tensor)
    if plain is None:
        return tensor.__reduce_ex__(2)
    metadata = (
        plain.storage_offset(),
        tuple(plain.size()),
        tuple(plain.stride()),
        plain.requires_grad,
        plain.dtype,
    )
    return rebuild_tensor, (type(tensor), plain.untyped_storage(), metadata)


def init_reductions() -> None:
    """Tells `multiprocessing` of all this."""
    ForkingPickler.register(torch.UntypedStorage, reduce_storage)
    ForkingPickler.register(torch.TypedStorage, reduce_typed_storage)
    ForkingPickler.register(torch.Tensor, reduce_tensor)
    ForkingPickler.register(torch.nn.Parameter, reduce_tensor)
