"""Nested tensors of the strided layout: parts of any sizes in one buffer, each with strides of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torchlike as torch
from torchlike import Tensor
from torchlike._once import warn_once
from torchlike.nested import _names
from torchlike.nested._base import Nested
from torchlike.nested._internal.nested_tensor import wrapped

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "Part",
    "StridedNestedTensor",
    "from_data",
    "from_list",
    "from_tensor",
    "of_components",
    "rebuilt",
]

_NO_SHAPE = "Internal error: NestedTensorImpl doesn't support {}. Please file an issue."


class Part(NamedTuple):
    """How a part lies in the buffer."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    @property
    def numel(self) -> int:
        """How many elements it has."""
        return math.prod(self.size)


def row_major(size: Sequence[int]) -> tuple[int, ...]:
    """The strides of a contiguous tensor."""
    strides, step = [], 1
    for s in reversed(size):
        strides.append(step)
        step *= max(s, 1)
    return tuple(reversed(strides))


def dense_parts(sizes: Sequence[Sequence[int]]) -> list[Part]:
    """Parts that lie one after another, each row-major."""
    made, at = [], 0
    for size in sizes:
        made.append(Part(tuple(size), row_major(size), at))
        at += made[-1].numel
    return made


class StridedNestedTensor(Nested, keeps_slots=True):
    """A nested tensor whose parts may differ in every size; it has a number of dimensions and no shape.

    `_buffer` is a plain vector of all elements, `_parts` say how each part lies in it.
    """

    __slots__ = ("_buffer", "_ndim", "_parts")
    __module__, __qualname__ = "torchlike", "Tensor"  # users see no class of its own
    _answers: ClassVar[dict[str, Callable[..., Any]]] = {}
    _buffer: Tensor
    _parts: list[Part]
    _ndim: int

    @staticmethod
    def __new__(cls: type, buffer: Tensor, parts: list[Part], ndim: int) -> StridedNestedTensor:
        """A nested tensor of `ndim` dimensions, the first of which counts the parts."""
        warn_once(
            "The PyTorch API of nested tensors is in prototype stage and will change in the near future. We recommend "
            "specifying layout=torch.jagged when constructing a nested tensor, as this layout receives active "
            "development, has better operator coverage, and works with torch.compile."
        )
        root: Any = Tensor
        shape = (len(parts),) + (1,) * (ndim - 1)
        made: StridedNestedTensor = root._make_wrapper_subclass(
            cls, shape, dtype=buffer.dtype, device=buffer.device
        )
        made._buffer, made._parts, made._ndim = buffer, parts, ndim
        return made

    def __init__(self, *args: Any) -> None:
        super().__init__()

    @property
    def _elements(self) -> Tensor:
        return self._buffer

    @_elements.setter
    def _elements(self, value: Tensor) -> None:
        self._buffer = value

    def _like(self, elements: Tensor) -> Self:
        return type(self)(elements, self._parts, self._ndim)

    def _with(self, parts: list[Part]) -> Self:
        """A view of the same buffer."""
        ndim = len(parts[0].size) + 1 if parts else self._ndim
        return type(self)(self._buffer.view_as(self._buffer), parts, ndim)

    def _sizes(self) -> list[tuple[int, ...]]:
        return [p.size for p in self._parts]

    def _matches(self, other: Any) -> bool:
        return isinstance(other, StridedNestedTensor) and self._sizes() == other._sizes()

    layout = property(lambda self: torch.strided)
    T = property(lambda self: self.permute(*range(self.dim())))

    def size(self, dim: int | None = None) -> Any:
        """The size of a dimension in which all parts agree.

        Raises:
            RuntimeError: without a dimension, or if they do not.
        """
        if dim is None:
            raise RuntimeError(_NO_SHAPE.format("sizes"))
        dim = wrapped(self._ndim, dim)
        if dim == 0:
            return len(self._parts)
        found = {p.size[dim - 1] for p in self._parts}
        if len(found) != 1:
            raise RuntimeError(f"Given dimension {dim} is irregular and does not have a size.")
        return found.pop()

    def stride(self, dim: int | None = None) -> Any:
        """Refused: each part has its own.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError(_NO_SHAPE.format("strides"))

    def dim(self) -> int:
        """How many dimensions there are, that of the parts among them."""
        return self._ndim

    def numel(self) -> int:
        """How many elements all parts have."""
        return sum(p.numel for p in self._parts)

    def storage_offset(self) -> int:
        """Where the buffer begins in its storage."""
        return self._buffer.storage_offset()

    def __len__(self) -> int:
        raise RuntimeError(_NO_SHAPE.format("sizes"))

    def values(self) -> Tensor:
        """A view of all elements as a vector, in the order of the buffer."""
        return self._buffer.view_as(self._buffer)

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """Whether the parts lie one after another, each row-major."""
        return self._parts == dense_parts(self._sizes())

    def _converted(self, convert: Callable[[Tensor], Tensor]) -> StridedNestedTensor:
        """The same parts of a tensor that stands for the buffer and need have no elements."""
        return self._like(convert(self._buffer))

    def _views(self, buffer: Tensor) -> tuple[Tensor, ...]:
        """The parts as views of a buffer."""

        def view(p: Part) -> Tensor:
            if p.stride == row_major(p.size):
                return buffer.narrow(0, p.offset, p.numel).view(p.size)
            return buffer.as_strided(p.size, p.stride, buffer.storage_offset() + p.offset)

        return tuple(map(view, self._parts))

    def _text(self) -> str:
        buffer = self._buffer.detach()
        texts = []
        for part in self._views(buffer):
            shown = part.detach().requires_grad_(self.requires_grad)
            texts.append("  " + str(shown).replace("\n", "\n  "))
        return "[\n" + ",\n".join(texts) + "\n]"

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        history = ""
        if self.grad_fn is not None:
            history = f", grad_fn=<{type(self.grad_fn).__name__}>"
        elif self.requires_grad:
            history = ", requires_grad=True"
        return f"nested_tensor({tensor_contents or self._text()}{history})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        from torchlike._utils import _rebuild_nested_tensor

        sizes, strides, offsets = layout_tensors(self)
        return _rebuild_nested_tensor, (self._buffer.detach(), sizes, strides, offsets)

    @classmethod
    def _refused(cls, name: str, args: Any, kwargs: Any) -> Exception:
        operator = str(_names.operator(name, args, kwargs)).removeprefix("aten.")
        nested = next((a for a in args if isinstance(a, Nested)), None)
        kind = nested.device.type.upper() if nested is not None else "CPU"
        return NotImplementedError(
            f"Could not run 'aten::{operator.removesuffix('.default')}' with arguments from the 'NestedTensor{kind}' "
            "backend."
        )


StridedNestedTensor.__name__ = "Tensor"


def layout_tensors(t: StridedNestedTensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sizes and strides `[parts, dimensions]` and offsets `[parts]` of the parts."""

    def rows(values: list[Any]) -> Tensor:
        made = torch.tensor(values, dtype=torch.int64, device="cpu")
        return made.reshape(len(values), -1) if values else made

    offsets = torch.tensor([p.offset for p in t._parts], dtype=torch.int64, device="cpu")
    return rows([p.size for p in t._parts]), rows([p.stride for p in t._parts]), offsets


def of_components(
    buffer: Tensor, sizes: list[list[int]], strides: list[list[int]], offsets: list[int]
) -> StridedNestedTensor:
    """A nested tensor of a vector and of how its components lie there, which has been proved."""
    lists = zip(sizes, strides, offsets, strict=True)
    parts = [Part(tuple(size), tuple(stride), offset) for size, stride, offset in lists]
    return StridedNestedTensor(buffer, parts, 1 + (len(sizes[0]) if sizes else 0))


def rebuilt(buffer: Tensor, sizes: Tensor, strides: Tensor, offsets: Tensor) -> StridedNestedTensor:
    """A nested tensor of a vector and of what `layout_tensors` gives.

    Raises:
        RuntimeError: if they do not fit one another.
    """
    made = of_components(buffer.reshape(-1), sizes.tolist(), strides.tolist(), offsets.tolist())
    for p in made._parts:
        ends = [(s - 1) * step for s, step in zip(p.size, p.stride, strict=True)]
        if p.numel and (min(ends, default=0) < 0 or p.offset + sum(ends) >= buffer.numel()):
            raise RuntimeError("a component of a nested tensor reaches outside its buffer")
    return made


def from_list(tensors: list[Tensor]) -> StridedNestedTensor:
    """A nested tensor of copies of tensors, with their history of gradients.

    Raises:
        RuntimeError: if they differ in their number of dimensions, or are nested.
    """
    for i, t in enumerate(tensors):
        if t.is_nested:
            raise RuntimeError("We do not accept nested tensors as input to nested tensors")
        if t.dim() != tensors[0].dim():
            raise RuntimeError(
                "All Tensors given to nested_tensor must have the same dimension. "
                f"Found dimension {t.dim()} for Tensor at index {i} and dimension {tensors[0].dim()} for Tensor "
                f"at index {i - 1}."
            )
    if not tensors:
        return StridedNestedTensor(torch.empty(0), [], 1)
    dtype, device = tensors[0].dtype, tensors[0].device
    buffer = torch.cat([t.reshape(-1).to(device=device, dtype=dtype) for t in tensors])
    return StridedNestedTensor(
        buffer, dense_parts([t.shape for t in tensors]), tensors[0].dim() + 1
    )


def from_data(data: Any, dtype: Any, device: Any) -> StridedNestedTensor:
    """A nested tensor of tensors or of lists of numbers.

    Raises:
        TypeError: for what is no list.
        RuntimeError: if they do not fit one another.
    """
    if not isinstance(data, list | tuple):
        raise TypeError(
            "Only lists (List[Tensor] and List[List...[Scalar]]) are accepted in nested_tensor"
        )
    tensors = [t if isinstance(t, Tensor) else torch.tensor(t, dtype=dtype) for t in data]
    made = from_list(tensors)
    return made._like(made._buffer.detach().to(dtype=dtype, device=device))


def from_tensor(t: Tensor) -> StridedNestedTensor:
    """The tensors along the first dimension, as a view where the tensor is contiguous."""
    return StridedNestedTensor(t.reshape(-1), dense_parts([t.shape[1:]] * t.shape[0]), t.dim())


def of_parts(parts: Sequence[Tensor], like: StridedNestedTensor) -> StridedNestedTensor:
    """A nested tensor of computed parts."""
    if parts:
        return from_list(list(parts))
    return StridedNestedTensor(like._buffer[:0], [], like._ndim)


# What the class answers is said where the calls are.
from torchlike.nested import _strided_calls as _strided_calls  # noqa: E402
