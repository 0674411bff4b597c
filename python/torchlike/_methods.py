"""Methods of Tensor that are easier said in Python; importing the module adds them."""

from __future__ import annotations

import itertools
import math
import warnings
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

from torchlike import _C, _linalg_utils
from torchlike._C import Tensor
from torchlike._function import overridable
from torchlike._gradients import (
    backward,
    register_hook,
    register_post_accumulate_grad_hook,
)
from torchlike._parts import (
    coalesce,
    dequantize,
    to_dense,
    to_sparse,
    to_sparse_bsc,
    to_sparse_bsr,
    to_sparse_coo,
    to_sparse_csc,
    to_sparse_csr,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_ABSENT: Any = object()


def new_tensor(
    self: Tensor,
    data: Any = _ABSENT,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    layout: Any = None,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor with `data`, of this tensor's dtype and device unless others are given."""
    if data is _ABSENT:
        raise TypeError('new_tensor() missing 1 required positional arguments: "data"')
    dtype, device = dtype or self.dtype, device or self.device
    if isinstance(data, Tensor):
        warnings.warn(
            "To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() or "
            "sourceTensor.detach().clone().requires_grad_(True), rather than tensor.new_tensor(sourceTensor).",
            stacklevel=2,
        )
        made = data.detach().to(dtype=dtype, device=device, copy=True)
        return made.requires_grad_() if requires_grad else made
    return _C.tensor(
        data, dtype=dtype, device=device, requires_grad=requires_grad, pin_memory=pin_memory
    )


def new(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """The old constructor, with this tensor's dtype and device."""
    if self.layout is _C.sparse_coo:
        from torchlike import _legacy

        return _legacy.sparse(args, self.dtype, kwargs.get("device") or self.device)
    if self.is_quantized:
        raise RuntimeError(
            "new(): expected key in DispatchKeySet(CPU, CUDA, HIP, XLA, MPS, IPU, XPU, HPU, Lazy, PrivateUse1, Meta) "
            f"but got: Quantized{self.device.type.upper()}"
        )
    return _C._legacy(args, kwargs, self.dtype, self.device)


def apply_(self: Tensor, callable: Callable[[Any], Any]) -> Tensor:
    """Replaces each element by `callable(element)`; slow, CPU only."""
    return _map(self, "apply_", callable)


def map_(self: Tensor, tensor: Tensor, callable: Callable[[Any, Any], Any]) -> Tensor:
    """Replaces each element by `callable(element, other element)`; slow, CPU only."""
    return _map(self, "map_", callable, tensor)


def map2_(self: Tensor, x: Tensor, y: Tensor, callable: Callable[[Any, Any, Any], Any]) -> Tensor:
    """As `map_`, with two other tensors; slow, CPU only."""
    return _map(self, "map2_", callable, x, y)


def _map(self: Tensor, name: str, function: Any, *others: Tensor) -> Tensor:
    names = ("other",) if len(others) == 1 else ("x", "y")
    for i, (t, called) in enumerate(zip(others, names, strict=False), 1):
        if not isinstance(t, Tensor):
            found = type(t).__name__
            raise TypeError(
                f"{name}(): argument '{called}' (position {i}) must be Tensor, not {found}"
            )
    if any(t.requires_grad for t in (self, *others)):
        raise RuntimeError(
            f"Can't call {name}() on Variable that requires grad. Use var.detach().{name}() instead."
        )
    if self.is_meta and all(t.is_meta for t in others):
        return self
    if self.device.type != "cpu":
        raise TypeError(f"{name} is only implemented on CPU tensors")
    for t in others:
        if t.dtype != self.dtype:
            raise TypeError(f"{name}: expected {self.type()} for argument but got {t.type()}")
    rows = [t.expand(self.shape).reshape(-1).tolist() for t in (self, *others)]
    values = [function(*row) for row in zip(*rows, strict=True)]
    for value in values:
        if not isinstance(value, int | float | complex | Tensor):
            raise TypeError(f"must be real number, not {type(value).__name__}")
    self.copy_(_C.tensor(values, dtype=self.dtype, device="cpu").reshape(self.shape))
    return self


def __reversed__(self: Tensor) -> Tensor:
    return self if self.ndim == 0 else self.flip(0)


def __array_wrap__(
    self: Tensor, array: Any, context: Any = None, return_scalar: bool = False
) -> Tensor:
    import numpy as np

    if array.dtype == np.bool_:
        array = array.astype("uint8")
    return _C.from_numpy(np.asarray(array))


def resize(self: Tensor, *sizes: Any) -> Tensor:
    """The elements in another shape (an old name of `reshape`).

    Raises:
        RuntimeError: if the shape has another number of elements.
    """
    warnings.warn("non-inplace resize is deprecated", stacklevel=2)
    wanted = tuple(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
    return _resized(self, wanted)


def resize_as(self: Tensor, tensor: Tensor) -> Tensor:
    """The elements in another tensor's shape (an old name of `reshape_as`).

    Raises:
        RuntimeError: if that has another number of elements.
    """
    warnings.warn("non-inplace resize_as is deprecated", stacklevel=2)
    return _resized(self, tuple(tensor.shape))


def _resized(t: Tensor, sizes: tuple[int, ...]) -> Tensor:
    numel = math.prod(sizes)
    if numel != t.numel():
        shown = ["x".join(map(str, shape)) for shape in (sizes, t.shape)]
        raise RuntimeError(
            f"requested resize to {shown[0]} ({numel} elements in total), but the given tensor has a size of "
            f"{shown[1]} ({t.numel()} elements). autograd's resize can only change the shape of a given tensor, while "
            "preserving the number of elements. "
        )
    return t.contiguous().view(sizes)


def record_stream(self: Tensor, s: Any) -> None:
    """Keeps the memory until the work of a stream is done: on GPUs it is anyway, there is one stream.

    Raises:
        NotImplementedError: on other devices, which have none.
    """
    if not self.is_cuda:
        raise NotImplementedError(f"record_stream(): there are no streams on {self.device.type}")


def storage_type(self: Tensor) -> type:
    """The class of the tensor's storage."""
    from torchlike.storage import typed_of

    return typed_of(self)._get_legacy_storage_class()


def dim_order(self: Tensor, *, ambiguity_check: Any = False) -> tuple[int, ...]:
    """The dimensions from the outermost in memory to the innermost.

    With ``ambiguity_check`` there must be one order only; of several, a list of memory formats chooses the one that the
    tensor has.

    Raises:
        AttributeError: if the tensor is sparse.
        TypeError: for another kind of ``ambiguity_check``.
        RuntimeError: if the order is ambiguous.
    """
    if self.layout != _C.strided:
        raise AttributeError(
            f"Can't get dim order on sparse type: {self.type()} "
            "Use Tensor.to_dense() to convert to a dense tensor first."
        )
    formats = ambiguity_check if isinstance(ambiguity_check, list) else []
    if not isinstance(ambiguity_check, bool | list) or not all(
        isinstance(f, _C.memory_format) for f in formats
    ):
        raise TypeError("The ambiguity_check argument must be a bool or a list of memory formats.")
    sizes, strides = self.shape, self.stride()
    if ambiguity_check is not False:
        if any(step == 0 and size > 1 for size, step in zip(sizes, strides, strict=True)):
            raise RuntimeError("The tensor does not have unique dim order.")
        several = 1 in sizes or any(a == b for a, b in itertools.pairwise(strides))
        if several and sum(self.is_contiguous(memory_format=f) for f in formats) != 1:
            raise RuntimeError(
                "The tensor does not have unique dim order, or cannot map to exact one of the given memory formats."
            )
    return tuple(sorted(range(self.ndim), key=lambda d: (-strides[d], d)))


def module_load(self: Tensor, other: Tensor, assign: bool = False) -> Tensor:
    """What `load_state_dict` puts in this tensor's place when tensors are swapped on conversion."""
    return other.detach() if assign else self.copy_(other).detach()


def _make_wrapper_subclass(
    cls: type,
    size: Any,
    *,
    strides: Any = None,
    storage_offset: Any = None,
    memory_format: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    **policies: Any,
) -> Tensor:
    """A tensor of a class with `__torch_dispatch__`: sizes, a dtype and a device, and no data."""
    if not isinstance(size, tuple | list):
        kind = type(size).__name__
        raise TypeError(
            f"_make_wrapper_subclass(): argument 'size' (position 2) must be tuple of ints, not {kind}"
        )
    where = None if device is None else _C.device(device)
    offset = storage_offset or 0
    return _C._wrapper(
        cls, list(size), strides and list(strides), offset, dtype, where, requires_grad
    )


def __repr__(self: Tensor, *, tensor_contents: str | None = None) -> str:
    """The elements as text, or other contents in their place."""
    from torchlike._tensor_str import _str

    return _str(self, tensor_contents=tensor_contents)


def is_distributed(self: Tensor) -> bool:
    """False: kept for old code."""
    return False


def _view_func(self: Tensor, new_base: Tensor) -> Tensor | None:
    """The same view of another tensor; None of one that does not lie as the base does, and for what is no view."""
    base = self._base
    if base is None or new_base.shape != base.shape or new_base.stride() != base.stride():
        return None
    return _view_func_unsafe(self, new_base)


def _view_func_unsafe(self: Tensor, new_base: Tensor, *_: Any) -> Tensor | None:
    """The same view of another tensor, however that lies; None for what is no view."""
    base = self._base
    if base is None:
        return None
    source = new_base
    if self.dtype != base.dtype:
        parts = new_base.is_complex() and self.dtype == new_base.dtype.to_real()
        source = _C._root.view_as_real(new_base) if parts else new_base.view(self.dtype)
    first = new_base.storage_offset() - base.storage_offset()
    first = self.storage_offset() + first * base.element_size() // self.element_size()
    made = source.as_strided(self.size(), self.stride(), first)
    made = made._neg_view() if self.is_neg() != made.is_neg() else made
    return made._conj() if self.is_conj() != made.is_conj() else made


def _is_zerotensor(self: Tensor) -> bool:
    """False: all tensors here have memory for their elements."""
    return False


def const_data_ptr(self: Tensor) -> int:
    """Where the first element lies, for who does not write."""
    return self.data_ptr()


def __long__(self: Tensor) -> int:
    """The only element as an integer."""
    return int(self)


def __nonzero__(self: Tensor) -> bool:
    """Whether the only element is not zero."""
    return bool(self)


def __init_subclass__(cls: Any, keeps_slots: bool = False, **kwargs: Any) -> None:
    """A class that handles its calls below (`__torch_dispatch__`) does not keep results above, unless it says so.

    Its slots become attributes, unless it `keeps_slots`: graphs hold tensors and not their objects, so what is in slots
    goes with an object, and its attributes stay.
    """
    super(Tensor, cls).__init_subclass__(**kwargs)
    below = getattr(cls, "__torch_dispatch__", None)
    own = any("__torch_function__" in vars(c) for c in cls.__mro__ if c not in Tensor.__mro__)
    if below is _C._disabled_torch_dispatch_impl:
        return
    if not own:
        cls.__torch_function__ = _C._disabled_torch_function_impl
    if not keeps_slots:
        for name in [n for n, v in vars(cls).items() if isinstance(v, MemberDescriptorType)]:
            delattr(cls, name)


def __array_namespace__(self: Tensor, *, api_version: Any = None) -> Any:
    """The functions of the array API for this tensor.

    Raises:
        ValueError: for versions of the standard that there are no functions of.
    """
    from torchlike import _array_api

    if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
        raise ValueError(f"unsupported version of the array API: {api_version!r}")
    return _array_api


def to_device(self: Tensor, device: Any, /, *, stream: Any = None) -> Tensor:
    """The tensor on another device, as the array API calls it."""
    return self.to(device)


def to_padded_tensor(self: Tensor, padding: float, output_size: Any = None) -> Tensor:
    """A plain tensor of all parts of a nested one, each filled up to the size of the largest, or to `output_size`.

    Raises:
        NotImplementedError: for what is no nested tensor.
    """
    kind = self.device.type.upper() if self.device.type != "meta" else "Meta"
    raise NotImplementedError(
        f"Could not run 'aten::to_padded_tensor' with arguments from the '{kind}' backend: it is for nested tensors"
    )


_ABSENT_BACKENDS = ("is_ipu", "is_maia", "is_mtia", "is_vulkan", "is_xla")


def _add() -> None:
    for function in (
        new_tensor,
        new,
        apply_,
        map_,
        map2_,
        __reversed__,
        __array_namespace__,
        __array_wrap__,
        to_device,
        to_padded_tensor,
        storage_type,
        dim_order,
        module_load,
        __repr__,
        is_distributed,
        _view_func,
        _view_func_unsafe,
        _is_zerotensor,
        const_data_ptr,
        __long__,
        __nonzero__,
        resize,
        resize_as,
        record_stream,
        coalesce,
        dequantize,
        to_dense,
        to_sparse,
        to_sparse_bsc,
        to_sparse_bsr,
        to_sparse_coo,
        to_sparse_csc,
        to_sparse_csr,
        backward,
        register_hook,
        register_post_accumulate_grad_hook,
    ):
        function.__qualname__ = f"Tensor.{function.__name__}"
        setattr(Tensor, function.__name__, overridable(function))
    for gone in (_linalg_utils.eig, _linalg_utils.lstsq, _linalg_utils.solve, _linalg_utils.symeig):
        setattr(Tensor, gone.__name__, gone)
    Tensor._make_wrapper_subclass = staticmethod(_make_wrapper_subclass)  # type: ignore[method-assign]
    Tensor.__init_subclass__ = classmethod(__init_subclass__)  # type: ignore[assignment, arg-type]
    Tensor._grad = property(  # type: ignore[assignment]
        lambda self: self.grad, lambda self, grad: setattr(self, "grad", grad)
    )
    Tensor._grad_fn = property(lambda self: self.grad_fn)
    for name in (*_ABSENT_BACKENDS, "volatile", "_has_symbolic_sizes_strides"):
        if not hasattr(Tensor, name):
            setattr(Tensor, name, property(lambda self: False))


_add()

# messages of the interpreter name a class by this, without its module
Tensor.__name__ = "Tensor"
