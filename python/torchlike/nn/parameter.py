"""Parameters and buffers, and their forms without a shape yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike import _C
from torchlike._C import Tensor
from torchlike._tensor import _reduce_parameter
from torchlike._tensor_str import _str

__all__ = [
    "Buffer",
    "Parameter",
    "UninitializedBuffer",
    "UninitializedParameter",
    "UninitializedTensorMixin",
    "is_lazy",
]


class _ParameterMeta(type):
    """The class of `Parameter`: tensors of other classes are parameters too if `Parameter` made them."""

    def __instancecheck__(cls, instance: Any) -> bool:
        if super().__instancecheck__(instance):
            return True
        flagged = cls is Parameter and isinstance(instance, Tensor)
        return flagged and bool(getattr(instance, "_is_param", False))


class Parameter(Tensor, metaclass=_ParameterMeta):
    """A tensor that a module registers as a parameter when it is assigned to an attribute.

    Args:
        data: the values, whose memory it shares; of a subclass of Tensor it keeps the class. None: no elements.
        requires_grad: whether it needs gradients, which only floating point and complex numbers can have.

    Raises:
        RuntimeError: if `data` cannot require gradients, or its `detach()` gives another class.
    """

    __slots__ = ()
    __torch_function__ = _C._disabled_torch_function_impl

    # The C function itself: parameters are made in great numbers.
    __new__ = _C._parameter  # type: ignore[assignment]

    if TYPE_CHECKING:

        def __init__(self, data: Any = None, requires_grad: bool = True) -> None: ...

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"Parameter containing:\n{_str(self, tensor_contents=tensor_contents)}"

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _reduce_parameter(self)


_C._set_parameter(Parameter)


class _BufferMeta(type):
    """The class of `Buffer`: tensors that `Buffer` marked are buffers, of whichever class they are."""

    def __instancecheck__(cls, instance: Any) -> bool:
        flagged = cls is Buffer and isinstance(instance, Tensor)
        if flagged and getattr(instance, "_is_buffer", False):
            return True
        return super().__instancecheck__(instance)


class Buffer(Tensor, metaclass=_BufferMeta):
    """A tensor that a module registers as a buffer when it is assigned to an attribute.

    What is made is a tensor of the class of `data` with a mark, which results of operators have not.
    """

    persistent: bool
    _is_buffer: bool
    __torch_function__ = _C._disabled_torch_function_impl

    def __new__(cls, data: Any = None, *, persistent: bool = True) -> Any:
        if data is None:
            data = torch.empty(0)
        made = data.detach().requires_grad_(data.requires_grad)
        made.persistent = persistent
        made._is_buffer = True
        return made


_NO_SHAPE = (
    "Can't access the shape of an uninitialized parameter or buffer. "
    "This error usually happens in `load_state_dict` when trying to load "
    "an uninitialized parameter into an initialized one. "
    "Call `forward` to initialize the parameters before accessing their attributes."
)


_WITHOUT_SHAPE = {
    "__hash__", "size", "copy_", "is_complex", "is_floating_point", "half", "float", "double",
    "char", "short", "int", "long", "cuda", "cpu", "to", "get_device",
    "_has_compatible_shallow_copy_type",
}  # fmt: skip
"""Methods of a tensor that has no shape yet."""


class UninitializedTensorMixin:
    """A tensor whose shape is known only when it is materialized."""

    cls_to_become: type
    data: Any
    requires_grad: bool

    @property
    def shape(self) -> Any:
        raise RuntimeError(_NO_SHAPE)

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Get a shape and memory, and become an ordinary parameter or buffer."""
        if device is None:
            device = self.data.device
        if dtype is None:
            dtype = self.data.dtype
        self.data = torch.empty(shape, device=device, dtype=dtype)
        self.__class__ = self.cls_to_become

    def share_memory_(self) -> Any:
        raise RuntimeError(
            "Can't share memory on an uninitialized parameter or buffer. "
            "Call `forward` to initialize the parameters before calling `module.share_memory()`."
        )

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"<{type(self).__name__}>"

    def __reduce_ex__(self, proto: Any) -> Any:
        return (type(self), (self.requires_grad,))

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Properties and conversions; everything else needs a shape."""
        is_property = type(func).__name__ == "method-wrapper"
        if is_property or getattr(func, "__name__", "") in _WITHOUT_SHAPE:
            return super().__torch_function__(func, types, args, kwargs)  # type: ignore[misc]
        raise ValueError(
            f"Attempted to use an uninitialized parameter in {func}. "
            "This error happens when you are using a `LazyModule` or explicitly manipulating "
            f"`torch.nn.parameter.{cls.__name__}` objects. When using LazyModules Call `forward` "
            "with a dummy batch to initialize the parameters before calling torch functions"
        )


def is_lazy(param: Any) -> bool:
    """Whether ``param`` still has no shape."""
    return isinstance(param, UninitializedTensorMixin)


class UninitializedParameter(UninitializedTensorMixin, Parameter):  # type: ignore[misc]
    """A parameter without a shape; ``materialize`` gives it one."""

    cls_to_become = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> Any:
        return Tensor._make_subclass(cls, torch.empty(0, device=device, dtype=dtype), requires_grad)

    def __init__(self, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> None:
        pass

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        done = memo.get(id(self))
        if done is None:
            data = self.data
            done = type(self)(self.requires_grad, data.device, data.dtype)
            memo[id(self)] = done
        return done


class UninitializedBuffer(UninitializedTensorMixin, Tensor):
    """A buffer without a shape; ``materialize`` gives it one."""

    cls_to_become = Tensor
    persistent: bool = True
    _is_buffer: bool = True

    def __new__(
        cls,
        requires_grad: bool = False,
        device: Any = None,
        dtype: Any = None,
        persistent: bool = True,
    ) -> Any:
        made = Tensor._make_subclass(cls, torch.empty(0, device=device, dtype=dtype), requires_grad)
        made.persistent = persistent

        return made

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass
