"""How tensors and storages are sent to other processes."""

from __future__ import annotations

import multiprocessing.util
import os
import threading
from multiprocessing.reduction import DupFd, ForkingPickler
from typing import Any

import torchlike as torch
from torchlike import _C, _absent
from torchlike.utils.data._utils.channel import sendable

__all__ = ["init_reductions", "reduce_storage", "reduce_tensor"]


class StorageWeakRef:
    """A storage by the place of its memory, which it does not keep."""

    __slots__ = ("cdata",)

    def __init__(self, storage: Any) -> None:
        self.cdata = storage._cdata

    def expired(self) -> bool:
        """Not supported: the core does not tell whether memory is still in use."""
        raise NotImplementedError(
            "torch.multiprocessing.reductions.StorageWeakRef.expired is not supported by torchlike"
        )

    def __hash__(self) -> int:
        return int(self.cdata)

    def __eq__(self, other: object) -> bool:
        if id(self) == id(other):
            return True
        return isinstance(other, StorageWeakRef) and self.cdata == other.cdata


def fd_id(fd: int) -> tuple[int, int]:
    """What two descriptors of one file have in common: its device and its number there."""
    found = os.fstat(fd)
    return found.st_ino, found.st_dev


def rebuild_storage_empty(cls: Any) -> Any:
    """A storage of no bytes."""
    return cls()


def rebuild_storage_fd(cls: Any, df: Any, size: int) -> Any:
    """The storage behind a descriptor that was sent."""
    fd = df.detach()
    try:
        return cls._new_shared_fd_cpu(fd, size)
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
    if storage.size() == 0:
        return rebuild_storage_empty, (type(storage),)
    fd, size = storage._share_fd_cpu_()
    return rebuild_storage_fd, (type(storage), DupFd(fd), size)


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


def reduce_typed_storage_child(storage: Any) -> Any:
    """A storage of a type's own class by what is behind it."""
    return rebuild_typed_storage_child, (storage._untyped_storage, type(storage))


def rebuild_typed_storage_child(storage: Any, storage_type: Any) -> Any:
    """A storage of a type's own class over one that was sent."""
    return storage_type(wrap_storage=storage, _internal=True)


_COMPRESSED = {
    torch.sparse_csr: ("crow_indices", "col_indices"),
    torch.sparse_csc: ("ccol_indices", "row_indices"),
    torch.sparse_bsr: ("crow_indices", "col_indices"),
    torch.sparse_bsc: ("ccol_indices", "row_indices"),
}


def reduce_sparse_tensor(sparse: Any) -> Any:
    """A sparse tensor by its indices and values, whose memory becomes shared."""
    sparse = sparse.detach()
    if sparse.layout is torch.sparse_coo:
        parts = (*reduce_tensor(sparse._indices()), *reduce_tensor(sparse._values()))
        return rebuild_sparse_coo_tensor, (*parts, sparse.shape, sparse.is_coalesced())
    if sparse.layout not in _COMPRESSED:
        raise NotImplementedError(f"torch.multiprocessing: tensors of layout {sparse.layout}")
    compressed, plain = (getattr(sparse, name)() for name in _COMPRESSED[sparse.layout])
    parts = (*reduce_tensor(compressed), *reduce_tensor(plain), *reduce_tensor(sparse.values()))
    return rebuild_sparse_compressed_tensor, (*parts, sparse.shape, sparse.layout)


def rebuild_sparse_coo_tensor(
    rebuild_indices_func: Any,
    rebuild_indices_args: Any,
    rebuild_values_func: Any,
    rebuild_values_args: Any,
    shape: Any,
    is_coalesced: bool,
) -> Any:
    """A sparse tensor of indices and values that were sent."""
    indices = rebuild_indices_func(*rebuild_indices_args)
    values = rebuild_values_func(*rebuild_values_args)
    return torch.sparse_coo_tensor(
        indices, values, shape, is_coalesced=is_coalesced, check_invariants=False
    )


def rebuild_sparse_compressed_tensor(
    rebuild_compressed_indices_func: Any,
    rebuild_compressed_indices_args: Any,
    rebuild_plain_indices_func: Any,
    rebuild_plain_indices_args: Any,
    rebuild_values_func: Any,
    rebuild_values_args: Any,
    shape: Any,
    layout: Any,
) -> Any:
    """A compressed sparse tensor of indices and values that were sent."""
    return torch.sparse_compressed_tensor(
        rebuild_compressed_indices_func(*rebuild_compressed_indices_args),
        rebuild_plain_indices_func(*rebuild_plain_indices_args),
        rebuild_values_func(*rebuild_values_args),
        shape,
        layout=layout,
        check_invariants=False,
    )


class SharedCache(dict[Any, StorageWeakRef]):
    """Storages by what they were sent as."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        multiprocessing.util.register_after_fork(self, SharedCache._after_fork)

    def _after_fork(self) -> None:
        self.lock = threading.Lock()


# each process opens what it is sent anew, so nothing is in it
shared_cache = SharedCache()


def reduce_tensor(tensor: Any) -> Any:
    """A tensor by its storage, which becomes shared; those without elements on the host by value."""
    plain = sendable(tensor)
    sparse = tensor.layout is torch.sparse_coo or tensor.layout in _COMPRESSED
    if sparse and tensor.device.type == "cpu":
        return reduce_sparse_tensor(tensor)
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


globals().update(
    _absent.names(
        __name__,
        "processes share memory of the host alone, by descriptors",
        "rebuild_cuda_tensor rebuild_event reduce_event rebuild_storage_filename storage_from_cache "
        "rebuild_meta_tensor rebuild_nested_tensor reduce_nested_tensor",
    )
)


def init_reductions() -> None:
    """Tells `multiprocessing` of all this."""
    ForkingPickler.register(torch.UntypedStorage, reduce_storage)
    ForkingPickler.register(torch.TypedStorage, reduce_typed_storage)
    ForkingPickler.register(torch.Tensor, reduce_tensor)
    ForkingPickler.register(torch.nn.Parameter, reduce_tensor)
