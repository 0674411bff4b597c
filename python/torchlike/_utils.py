"""Small questions that programs ask PyTorch's private helpers."""

from __future__ import annotations

import threading
from typing import Any

from torchlike import _C


def _element_size(dtype: Any) -> int:
    return int(dtype.itemsize)


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """The number of a device; -1 for the CPU, if that is allowed.

    Raises:
        ValueError: for other devices than CUDA ones.
    """
    if isinstance(device, int):
        return device
    if device is None and optional:
        return 0
    found = _C.device(device)
    if found.type == "cpu" and allow_cpu:
        return -1
    if found.type != "cuda":
        raise ValueError(f"Expected a cuda device, but got: {found}")
    return found.index or 0


def is_compiling() -> bool:
    """The old name of `torchlike.compiler.is_compiling`."""
    import torchlike

    return torchlike.compiler.is_compiling()


class KeyErrorMessage(str):
    """A message that `KeyError` shows as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class ExceptionWrapper:
    """An exception with its traceback as text, which can go to another process and be raised there."""

    def __init__(self, exc_info: Any = None, where: str = "in background") -> None:
        import sys
        import traceback

        if exc_info is None:
            exc_info = sys.exc_info()
        self.exc_type = exc_info[0]
        self.exc_msg = "".join(traceback.format_exception(*exc_info))
        self.where = where

    def reraise(self) -> None:
        """Raises an exception of that type, or a `RuntimeError` if none can be made of a text."""
        text = f"Caught {self.exc_type.__name__} {self.where}.\nOriginal {self.exc_msg}"
        if self.exc_type is KeyError:
            raise KeyError(KeyErrorMessage(text))
        if getattr(self.exc_type, "message", None):
            raise self.exc_type(message=text)
        try:
            error = self.exc_type(text)
        except Exception:
            raise RuntimeError(text) from None
        raise error


def cpu_count() -> int | None:
    """How many cores this process may use."""
    import os

    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _rebuild_nested_tensor(buffer: Any, sizes: Any, strides: Any, offsets: Any) -> Any:
    """A nested tensor of the strided layout as PyTorch's files keep it."""
    from torchlike.nested._strided import rebuilt

    return rebuilt(buffer, sizes, strides, offsets)


# What pickles of tensors call, by PyTorch's names and with its arguments.


def _rebuild_tensor(storage: Any, storage_offset: int, size: Any, stride: Any) -> Any:
    """A tensor of the type of a typed storage."""
    return _on(storage, storage.dtype, storage_offset, size, stride, None)


def _on(storage: Any, dtype: Any, offset: int, size: Any, stride: Any, metadata: Any) -> Any:
    untyped = getattr(storage, "_untyped_storage", storage)
    made = _C._from_storage(untyped, dtype, tuple(size), tuple(stride), offset, False)
    said = metadata or {}
    if said.get("conj"):
        made = made.conj()
    return _C._root._neg_view(made) if said.get("neg") else made


def _rebuild_tensor_v2(
    storage: Any,
    storage_offset: int,
    size: Any,
    stride: Any,
    requires_grad: bool,
    backward_hooks: Any,
    metadata: Any = None,
) -> Any:
    """The same, which may require gradients and be a conjugate; nobody pickles hooks."""
    made = _on(storage, storage.dtype, storage_offset, size, stride, metadata)
    return made.requires_grad_() if requires_grad else made


def _rebuild_tensor_v3(
    storage: Any,
    storage_offset: int,
    size: Any,
    stride: Any,
    requires_grad: bool,
    backward_hooks: Any,
    dtype: Any,
    metadata: Any = None,
) -> Any:
    """The same of any type, on a storage of any type."""
    made = _on(storage, dtype, storage_offset, size, stride, metadata)
    return made.requires_grad_() if requires_grad else made


def _rebuild_meta_tensor_no_storage(dtype: Any, size: Any, stride: Any, requires_grad: bool) -> Any:
    """A tensor on meta."""
    made = _C._root.empty_strided(size, stride, dtype=dtype, device="meta")
    return made.requires_grad_() if requires_grad else made


class _Restoring(threading.local):
    """Where this thread brings what it loads."""

    location: Any = None


restoring = _Restoring()


def _restored(device: Any) -> Any:
    """The device that what was saved of one is brought to.

    Raises:
        RuntimeError: if a function says where storages go, as it is asked for storages alone.
    """
    where = restoring.location
    if where is None or isinstance(where, _C.device | str):
        return device if where is None else where
    if isinstance(where, dict):
        return where.get(str(device), where.get(device, device))
    raise RuntimeError(
        "Callable map_location not supported with _rebuild_wrapper_subclass or _rebuild_device_tensor_from_numpy"
    )


def _rebuild_wrapper_subclass(
    cls: Any,
    dtype: Any,
    size: Any,
    stride: Any,
    storage_offset: int,
    layout: Any,
    device: Any,
    requires_grad: bool,
) -> Any:
    """A tensor of a class that handles its calls, without its attributes."""
    return _C.Tensor._make_wrapper_subclass(
        cls,
        size,
        strides=stride,
        dtype=dtype,
        storage_offset=storage_offset,
        layout=layout,
        device=_restored(device),
        requires_grad=requires_grad,
    )


def _rebuild_sparse_tensor(layout: Any, data: Any) -> Any:
    """A sparse tensor of its parts.

    Raises:
        NotImplementedError: for layouts that are not sparse.
    """
    import torchlike as torch

    if layout == torch.sparse_coo:
        indices, values, size, *coalesced = data
        known = coalesced[0] if coalesced else None
        return torch.sparse_coo_tensor(indices, values, size, is_coalesced=known)
    if layout not in (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc):
        raise NotImplementedError(f"rebuilding sparse tensor for layout {layout}")
    return torch.sparse_compressed_tensor(*data, layout=layout)


def _rebuild_qtensor(
    storage: Any,
    storage_offset: int,
    size: Any,
    stride: Any,
    quantizer_params: Any,
    requires_grad: bool,
    backward_hooks: Any,
) -> Any:
    """A quantized tensor."""
    root: Any = _C._root
    _, *given = quantizer_params
    kinds = {_C.qint8: _C.int8, _C.quint8: _C.uint8, _C.qint32: _C.int32}
    integers = _on(storage, kinds[storage.dtype], storage_offset, size, stride, None)
    if len(given) == 2:  # a scale and a zero point for the whole
        return root._make_per_tensor_quantized_tensor(integers, *given)
    return root._make_per_channel_quantized_tensor(integers, *given)


def _rebuild_parameter(data: Any, requires_grad: bool, backward_hooks: Any) -> Any:
    """A parameter."""
    from torchlike.nn.parameter import Parameter

    return Parameter(data, requires_grad)


def _rebuild_parameter_with_state(
    data: Any, requires_grad: bool, backward_hooks: Any, state: Any
) -> Any:
    """A parameter with attributes."""
    made = _rebuild_parameter(data, requires_grad, backward_hooks)
    attributes = state[0] if isinstance(state, tuple) else state
    made.__dict__.update(attributes or {})
    return made


def _flatten_dense_tensors(tensors: Any) -> Any:
    """The elements of several tensors, one after the other."""
    import torchlike as torch

    return torch.cat([t.contiguous().view(-1) for t in tensors])


def _unflatten_dense_tensors(flat: Any, tensors: Any) -> tuple[Any, ...]:
    """Views of elements that lie one after the other, with the shapes of tensors."""
    parts = flat.split([t.numel() for t in tensors])
    return tuple(part.view(t.shape) for part, t in zip(parts, tensors, strict=True))


def _get_available_device_type() -> str | None:
    """The type of an accelerator, if there is one."""
    import torchlike as torch

    return "cuda" if torch.cuda.is_available() else None


def _get_device_module(device_type: str) -> Any:
    """The module of a type of device.

    Raises:
        RuntimeError: if there is none.
    """
    import torchlike as torch

    found = getattr(torch, device_type, None)
    if found is None:
        raise RuntimeError(
            f"Device '{device_type}' does not have a corresponding module registered as 'torch.{device_type}'."
        )
    return found
