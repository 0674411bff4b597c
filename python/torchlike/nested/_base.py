"""What tensors of parts that differ in size share: one plain tensor holds all elements, and with them the gradients."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import torchlike as torch
from torchlike import Tensor
from torchlike.nested import _names

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Nested"]


class Nested(Tensor):
    """A tensor of parts that differ in size, whose elements lie in one plain tensor.

    A call is answered by functions of that plain tensor, so that gradients, modes and plans see those and need to know
    nothing of parts: what wants a gradient, has one or had a history, has it there. Subclasses say how parts lie, and
    which calls they answer (`_answers`, and the methods they have themselves).
    """

    _answers: ClassVar[dict[str, Callable[..., Any]]]

    @property
    def _elements(self) -> Tensor:
        """The plain tensor."""
        raise NotImplementedError

    @_elements.setter
    def _elements(self, value: Tensor) -> None:
        raise NotImplementedError

    def _like(self, elements: Tensor) -> Self:
        """A tensor of the same parts with other elements."""
        raise NotImplementedError

    def _matches(self, other: Any) -> bool:
        """Whether another tensor has the same parts."""
        raise NotImplementedError

    @classmethod
    def _each(cls, func: Callable[..., Any], name: str, args: Any, kwargs: Any) -> Any:
        """The result of a function of single elements."""
        raise NotImplementedError

    @classmethod
    def _refused(cls, name: str, args: Any, kwargs: Any) -> Exception:
        """The error of a call that is not answered."""
        raise NotImplementedError

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Answers by the class of the first nested tensor among the arguments."""
        kwargs = kwargs or {}
        return _answer(func, first(args, kwargs), args, kwargs)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """As `__torch_function__`, where that is switched off."""
        kwargs = kwargs or {}
        return _answer(func, first(args, kwargs), args, kwargs)

    is_nested = property(lambda self: True)
    ndim = property(lambda self: self.dim())
    shape = property(lambda self: self.size())
    is_leaf = property(lambda self: self._elements.is_leaf)
    retains_grad = property(lambda self: self._elements.retains_grad)
    grad_fn = property(lambda self: self._elements.grad_fn)
    nbytes = property(lambda self: self.numel() * self._elements.itemsize)
    mT = property(lambda self: self.transpose(-2, -1))
    real = property(lambda self: self._like(self._elements.real))
    imag = property(lambda self: self._like(self._elements.imag))
    _version = property(lambda self: self._elements._version)
    _base = property(lambda self: self._elements._base)

    @property
    def requires_grad(self) -> bool:
        """Whether gradients of it are computed."""
        return bool(self._elements.requires_grad)

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self._elements.requires_grad = value

    @property
    def grad(self) -> Any:
        """The gradient, of the same parts, or None."""
        found = self._elements.grad
        return None if found is None else self._like(found)

    @grad.setter
    def grad(self, value: Any) -> None:
        if value is not None and not self._matches(value):
            sizes = [list(t.shape) for t in (value, self)]
            raise RuntimeError(
                "attempting to assign a gradient of size '{}' to a tensor of size '{}'. "
                "Please ensure that the gradient and the tensor are the same size".format(*sizes)
            )
        self._elements.grad = None if value is None else value._elements

    @grad.deleter
    def grad(self) -> None:
        self._elements.grad = None

    @property
    def data(self) -> Any:
        """The same elements without a history."""
        return self._like(self._elements.detach())

    @data.setter
    def data(self, value: Any) -> None:
        if not self._matches(value):
            raise RuntimeError("set_data: a nested tensor of the same parts is expected")
        self._elements.data = value._elements

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Says whether gradients of it are computed."""
        self._elements.requires_grad_(requires_grad)
        return self

    def detach(self) -> Self:
        """The same elements without a history."""
        return self._like(self._elements.detach())

    def detach_(self) -> Self:
        """Forgets its history."""
        self._elements.detach_()
        return self

    def retain_grad(self) -> None:
        """Keeps the gradient although it is no leaf."""
        self._elements.retain_grad()

    def register_hook(self, hook: Callable[[Any], Any]) -> Any:
        """Calls a function with the gradient, of the same parts, once it is known; what it returns is used."""

        def of_parts(grad: Tensor) -> Any:
            made = hook(self._like(grad))
            return made if made is None else made._elements

        return self._elements.register_hook(of_parts)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Any], Any]) -> Any:
        """Calls a function with this tensor once its gradient is complete."""
        return self._elements.register_post_accumulate_grad_hook(lambda _: hook(self))

    def backward(
        self,
        gradient: Any = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Any = None,
    ) -> None:
        """Gradients of what it was computed from; `gradient` has the same parts."""
        torch.autograd.backward(self, gradient, retain_graph, create_graph, inputs=inputs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        if not self.is_leaf:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment"
            )
        made = memo[id(self)] = self.detach().clone().requires_grad_(self.requires_grad)
        if self.grad is not None:
            made.grad = self.grad.clone()
        return made

    def __iter__(self) -> Any:
        return iter(self.unbind())

    def __hash__(self) -> int:
        return id(self)

    def _plain_parts(self) -> list[Tensor]:
        return [self._elements]

    def nelement(self) -> int:
        """How many elements there are."""
        count: int = self.numel()
        return count

    def item(self) -> Any:
        """The value of a tensor of one element."""
        if self.numel() != 1:
            raise RuntimeError(
                f"a Tensor with {self.numel()} elements cannot be converted to Scalar"
            )
        return self._elements.reshape(-1).item()

    def __bool__(self) -> bool:
        if self.numel() != 1:
            raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
        return bool(self.item())

    def _number(self) -> Any:
        if self.numel() != 1:
            raise ValueError("only one element tensors can be converted to Python scalars")
        return self.item()

    def __float__(self) -> float:
        return float(self._number())

    def __int__(self) -> int:
        return int(self._number())

    @property
    def H(self) -> Any:  # type: ignore[override]
        """The transpose of a matrix, conjugated."""
        if self.dim() != 2:
            raise RuntimeError(
                f"tensor.H is only supported on matrices (2-D tensors). Got {self.dim()}-D tensor. "
                "For batches of matrices, consider using tensor.mH"
            )
        return self.transpose(0, 1).conj()

    def to_padded_tensor(self, padding: float, output_size: Any = None) -> Tensor:
        """A plain tensor of all parts, each filled up to the size of the largest, or to `output_size`."""
        made: Tensor = self._answers["to_padded_tensor"](self, padding, output_size)
        return made

    def _nested_tensor_size(self) -> Tensor:
        """The sizes of the parts `[parts, dimensions]`."""
        made: Tensor = self._layout_answer("_nested_tensor_size")
        return made

    def _nested_tensor_strides(self) -> Tensor:
        """The strides of the parts `[parts, dimensions]`."""
        made: Tensor = self._layout_answer("_nested_tensor_strides")
        return made

    def _nested_tensor_storage_offsets(self) -> Tensor:
        """Where the parts begin in their storage `[parts]`."""
        made: Tensor = self._layout_answer("_nested_tensor_storage_offsets")
        return made

    def _layout_answer(self, name: str) -> Any:
        handler = self._answers.get(name)
        if handler is None:
            raise self._refused(name, (self,), {})
        return handler(self)

    def _is_view(self) -> bool:
        return bool(self._elements._is_view())


# Functions of Python that run now: one that only passes its call on is not answered.
class _Composing(threading.local):
    def __init__(self) -> None:
        self.names: list[str] = []


_composing = _Composing()


def first(args: Any, kwargs: Any) -> Any:
    """The first nested tensor among arguments and the items of lists."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, Nested):
            return value
        if isinstance(value, list | tuple):
            found = first(value, {})
            if found is not None:
                return found
    return None


def _answer(func: Any, nested: Any, args: Any, kwargs: Any) -> Any:
    name: str = func.__name__
    if name in ("__get__", "__set__", "__delete__"):
        return _attribute(func, name, args)
    cls = type(nested)
    name = _names.plain(name)
    if name in _names.GRADIENTS and func.__qualname__ == name:
        return _gradients(func, args, kwargs)
    handler = cls._answers.get(name) or _own(cls, name)
    if handler is not None:
        if "self" in kwargs:
            kwargs = {"input" if k == "self" else k: v for k, v in kwargs.items()}
        return handler(*args, **kwargs)
    if name in _names.OF_ONE_TENSOR:
        return func(args[0]._elements, *args[1:], **kwargs)
    if name in _names.EACH:
        return cls._each(func, name, args, kwargs)
    if name.endswith("_") and name[:-1] in _names.EACH:
        target = args[0]
        cls._each(func, name, args, kwargs)
        return target
    composed = getattr(func, "__wrapped__", None)
    if composed is None or name in _composing.names:
        raise cls._refused(name, args, kwargs)
    _composing.names.append(name)
    try:
        return composed(*args, **kwargs)
    finally:
        _composing.names.pop()


def _own(cls: type[Nested], name: str) -> Any:
    """The method of this name that a class of nested tensors has of its own."""
    for c in cls.__mro__:
        if c is Tensor:
            return None
        if name in vars(c):
            return getattr(c, name)
    return None


def _attribute(func: Any, name: str, args: Any) -> Any:
    """An attribute of `Tensor`, by the class's own if it has one."""
    t, *value = args
    wanted = func.__self__.__name__
    if isinstance(_own(type(t), wanted), property):
        return setattr(t, wanted, *value) if value else getattr(t, wanted)
    if name == "__get__":
        return getattr(t._elements, wanted)
    with torch._C.DisableTorchFunctionSubclass():
        return func(*args)


def _bare(value: Any) -> Any:
    """The plain tensors of nested ones, also in lists."""
    if isinstance(value, Nested):
        return value._elements
    return type(value)(map(_bare, value)) if type(value) in (list, tuple) else value


def _gradients(func: Any, args: Any, kwargs: Any) -> Any:
    """Functions of the tape: gradients of the plain tensors, given back with parts."""
    made = func(*map(_bare, args), **{k: _bare(v) for k, v in kwargs.items()})
    if made is None:
        return None
    inputs = kwargs["inputs"] if "inputs" in kwargs else args[1]
    inputs = inputs if isinstance(inputs, list | tuple) else [inputs]
    return tuple(
        t._like(g) if isinstance(t, Nested) and g is not None else g
        for t, g in zip(inputs, made, strict=True)
    )
