"""Operators that PyTorch makes of others: what a dispatch mode sees instead of them."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, TypeVar

from torchlike import _C
from torchlike._ops import modes, ops
from torchlike.compiler import is_exporting

if TYPE_CHECKING:
    from collections.abc import Callable

aten: Any = ops.aten
_TABLE: dict[str, Any] = {}


F = TypeVar("F", bound="Callable[..., Any]")


def of(*names: str) -> Callable[[F], F]:
    """A decorator: the function is what the operators of these names come down to."""

    def note(function: F) -> F:
        for name in names:
            _TABLE[name] = function
        return function

    return note


@functools.cache
def _found(name: str, form: str = "") -> Any:
    """What an operator or a row comes down to, if it is not itself."""
    # These fill the table.
    from torchlike._ops import decompositions_cells as _cells  # noqa: F401
    from torchlike._ops import decompositions_images as _images  # noqa: F401
    from torchlike._ops import decompositions_index as _index  # noqa: F401
    from torchlike._ops import decompositions_linalg as _linalg  # noqa: F401
    from torchlike._ops import decompositions_losses as _losses  # noqa: F401
    from torchlike._ops import decompositions_nn as _nn  # noqa: F401
    from torchlike._ops import decompositions_signal as _signal  # noqa: F401
    from torchlike._ops import decompositions_statistics as _statistics  # noqa: F401

    base, _, overload = name.partition("#")
    return _TABLE.get(f"{base}{form}#{overload}") or _TABLE.get(base + form)


def known(row: str) -> bool:
    """Whether a row comes down to other operators."""
    return _found(row) is not None


def run(name: str, form: str, values: dict[str, Any]) -> Any:
    """The result of an operator or a row, in its form, in other operators, or NotImplemented."""
    function = _found(name, form)
    if function is None:
        return NotImplemented
    name = name.partition("#")[0] + form
    if "name" in function.__code__.co_varnames[: function.__code__.co_argcount]:
        values = {**values, "name": name}
    return function(**values)


@of("matmul")
def matmul(self: Any, other: Any) -> Any:
    """The product for the numbers of dimensions at hand."""
    a, b = self.dim(), other.dim()
    if a == b == 3 and (self.shape[0] == 1) != (other.shape[0] == 1):
        # One matrix for all examples.
        if other.shape[0] == 1:
            return matmul(self, aten.squeeze.dim(other, 0))
        return matmul(aten.squeeze.dim(self, 0), other)
    if a == 1 and b == 1:
        return aten.dot(self, other)
    if a == 2 and b == 1:
        return aten.mv(self, other)
    if a == 1 and b == 2:
        row = aten.mm(aten.unsqueeze(self, 0), other)
        # Another shape in place is for tensors that are no more than themselves.
        return aten.squeeze_(row, 0) if type(row) is _C.Tensor else aten.squeeze.dim(row, 0)
    if a == 2 and b == 2:
        return aten.mm(self, other)
    if a >= 3 and b in (1, 2) and (_in_rows(self) or (b == 2 and modes.tracked(other))):
        product = aten.mv if b == 1 else aten.mm
        sizes = [*self.shape[:-1], *other.shape[1:]]
        return aten._unsafe_view(product(as_rows(self), other), sizes)
    wanted = b >= 3 and a <= 2 and (modes.tracked(self) or (a == 1 and _in_rows(other, True)))
    if not wanted and (a == 1 or b == 1):
        return NotImplemented
    if a <= 2:
        # Whether the other way round would be one matrix; it is looked at, and not always used.
        aten.transpose.int(other, -2, -1)
    return _turned(self, other) if wanted else batched(self, other)


def _turned(matrix: Any, many: Any) -> Any:
    """The product of one matrix or vector and many, which are turned and joined."""
    turned = aten.transpose.int(many, -2, -1)
    sizes = list(turned.shape[:-1])
    if matrix.dim() == 1:
        return aten._unsafe_view(aten.mv(as_rows(turned), matrix), sizes)
    other = aten.t(matrix)
    made = aten._unsafe_view(aten.mm(as_rows(turned), other), [*sizes, matrix.shape[0]])
    back = aten.transpose.int(made, -2, -1)
    return back if back.is_contiguous() else aten.clone(back, memory_format=_C.contiguous_format)


def _in_rows(x: Any, turned: bool = False) -> bool:
    """Whether all but the last dimension go on in even steps, so that they are one; or would of turned matrices."""
    sizes, strides = list(x.shape), list(x.stride())
    if turned:
        sizes[-2:], strides[-2:] = sizes[:-3:-1], strides[:-3:-1]
    return all(strides[i] == strides[i + 1] * sizes[i + 1] for i in range(x.dim() - 2))


def as_rows(x: Any) -> Any:
    """All but the last dimension as one."""
    return reshape(x, [math.prod(x.shape[:-1]), x.shape[-1]])


def batched(a: Any, b: Any) -> Any:
    """A product of matrices, or of batches of them."""
    from torchlike import broadcast_shapes

    batch = list(broadcast_shapes(a.shape[:-2], b.shape[:-2]))
    if not batch:
        return aten.mm(a, b)
    n, m, p = a.shape[-2], a.shape[-1], b.shape[-1]
    count = math.prod(batch)
    left = reshape(aten.expand(a, [*batch, n, m]), [count, n, m])
    right = reshape(aten.expand(b, [*batch, m, p]), [count, m, p])
    return aten._unsafe_view(aten.bmm(left, right), [*batch, n, p])


def reduced(x: Any, reduction: str) -> Any:
    """The mean or sum of a loss, or all of it."""
    if reduction == "mean":
        return aten.mean(x)
    return aten.sum(x) if reduction == "sum" else x


@of("outer")
def outer(self: Any, vec2: Any) -> Any:
    """A column times a row."""
    return aten.mul(aten.view(self, [self.shape[0], 1]), vec2)


def _copied(x: Any, sizes: list[int]) -> Any:
    return aten._unsafe_view(aten.clone(x, memory_format=_C.contiguous_format), sizes)


def _viewable(x: Any, sizes: list[int]) -> bool:
    # Asked of a twin, for what handles its own calls would be shown the question.
    try:
        with modes.without():
            _C._root.empty_strided(x.shape, x.stride(), device="meta").view(sizes)
    except RuntimeError:
        return False
    return True


@of("reshape")
def reshape(self: Any, shape: Any) -> Any:
    """A view where one is possible, else a copy."""
    sizes, rest = list(shape), -math.prod(shape)
    if sizes.count(-1) == 1 and rest > 0 and self.numel() % rest == 0:
        sizes = [self.numel() // rest if s == -1 else s for s in sizes]
    if self.is_contiguous():
        return aten.view(self, list(shape))
    if _viewable(self, sizes):
        return aten.view(self, list(shape) if is_exporting() else sizes)
    return _copied(self, sizes)


@of("_as_strided_each")
def as_strided_each(self: Any, size: Any, stride: Any, storage_offset: Any, lead: int) -> Any:
    """The view of the whole batch: only gradients know of examples."""
    return aten.as_strided(self, size, stride, storage_offset)


@of("_reshape_alias")
def reshape_alias(self: Any, size: Any) -> Any:
    """A view: the operator of this name wants strides."""
    return aten.view(self, size)


@of("flatten")
def flatten(self: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    """The shape of `reshape`."""
    if self.dim() == 0:
        return reshape(self, [1])
    first, last = start_dim % self.dim(), end_dim % self.dim()
    if first >= last:
        return NotImplemented
    sizes = list(self.shape)
    joined = math.prod(sizes[first : last + 1])
    return reshape(self, [*sizes[:first], joined, *sizes[last + 1 :]])


@of("contiguous")
def contiguous(self: Any, memory_format: Any = None) -> Any:
    """A copy, if it is needed."""
    if memory_format not in (None, _C.contiguous_format) or self.is_contiguous():
        return NotImplemented
    return aten.clone(self, memory_format=_C.contiguous_format)


@of("broadcast_to")
def broadcast_to(self: Any, size: Any) -> Any:
    """`expand`."""
    return aten.expand(self, list(size))


@of("expand_as")
def expand_as(self: Any, other: Any) -> Any:
    """`expand`."""
    return aten.expand(self, list(other.shape))


@of("view_as")
def view_as(self: Any, other: Any) -> Any:
    """`view`."""
    return aten.view(self, list(other.shape))


@of("view")
def view(self: Any, size: Any = None, dtype: Any = None) -> Any:
    """Memory read as another dtype has a history of its own."""
    if dtype is None:
        return NotImplemented
    return aten.detach(aten.view.dtype(self, dtype))


@of("movedim", "moveaxis")
def movedim(self: Any, source: Any, destination: Any) -> Any:
    """`permute`; a tensor without dimensions is an alias of itself."""
    n = self.dim()
    if not n:
        return aten.alias(self)
    given = [[v] if isinstance(v, int) else list(v) for v in (source, destination)]
    places = [[d % n for d in dims] for dims in given]
    apart = all(len(set(dims)) == len(places[0]) == len(dims) for dims in places)
    if not apart or not all(-n <= d < n for dims in given for d in dims):
        return NotImplemented
    order: list[Any] = [None] * n
    for s, d in zip(*places, strict=True):
        order[d] = s
    left = iter(d for d in range(n) if d not in places[0])
    return aten.permute(self, [next(left) if d is None else d for d in order])


def _converted(self: Any, dtype: Any, device: Any, copy: bool, memory_format: Any) -> Any:
    kwargs: dict[str, Any] = {}
    if dtype is not None and (dtype != self.dtype or copy):
        kwargs["dtype"] = dtype
    if device is not None and (_C.device(device) != self.device or copy):
        kwargs["device"] = _C.device(device)
    if not kwargs and not copy:
        return NotImplemented
    if memory_format not in (None, _C.preserve_format):
        kwargs["memory_format"] = memory_format
    return aten._to_copy(self, **kwargs)


@of("to")
def to(
    self: Any,
    dtype: Any = None,
    device: Any = None,
    tensor: Any = None,
    copy: bool = False,
    memory_format: Any = None,
    **_: Any,
) -> Any:
    """A copy, if anything changes."""
    if tensor is not None:
        dtype, device = tensor.dtype, tensor.device
    return _converted(self, dtype, device, copy, memory_format)


@of("type_as")
def type_as(self: Any, other: Any) -> Any:
    """A copy of the other's dtype and device."""
    if (self.dtype, self.device) == (other.dtype, other.device):
        return NotImplemented
    return aten._to_copy(self, dtype=other.dtype, layout=_C.strided, device=other.device)


def _cast(name: str) -> Any:
    def made(self: Any, memory_format: Any = None) -> Any:
        return _converted(self, getattr(_C, name), None, False, memory_format)

    return made


for _name in (
    "half",
    "float",
    "double",
    "long",
    "int",
    "short",
    "char",
    "byte",
    "bool",
    "bfloat16",
    "cfloat",
    "cdouble",
):
    of(_name)(_cast({"char": "int8", "byte": "uint8"}.get(_name, _name)))


@of("chunk")
def chunk(self: Any, chunks: int, dim: int = 0) -> Any:
    """`split` into parts of one size."""
    n = self.shape[dim]
    size = max(-(-n // chunks), 1)
    return aten.split.Tensor(self, size, dim) if n else NotImplemented


@of("hstack", "vstack", "dstack")
def joined(tensors: Any, name: str = "") -> Any:
    """`cat`, once there are enough dimensions."""
    if name == "hstack":
        rows = all(t.dim() < 2 for t in tensors)
        return (
            aten.cat(list(tensors), 0 if rows else 1)
            if all(t.dim() for t in tensors)
            else NotImplemented
        )
    least = 2 if name == "vstack" else 3
    if any(t.dim() < least - 1 for t in tensors):
        return NotImplemented
    raised = [
        aten.unsqueeze(t, 0 if name == "vstack" else -1) if t.dim() < least else t for t in tensors
    ]
    return aten.cat(raised, 0 if name == "vstack" else 2)


@of("meshgrid")
def meshgrid(tensors: Any, indexing: Any = None) -> Any:
    """Views that are expanded."""
    if indexing == "xy":
        return NotImplemented
    sizes = [t.numel() for t in tensors]
    found = []
    for i, t in enumerate(tensors):
        shape = [1] * len(sizes)
        shape[i] = sizes[i]
        found.append(aten.expand(aten.view(t, shape), sizes))
    return found


@of("cartesian_prod")
def cartesian_prod(tensors: Any) -> Any:
    """A grid, flattened and stacked."""
    if len(tensors) < 2:
        return NotImplemented
    grids = meshgrid(tensors, indexing="ij")
    return aten.stack([reshape(g, [g.numel()]) for g in grids], 1)


@of("broadcast_tensors")
def broadcast_tensors(tensors: Any) -> Any:
    """`expand` of those that are smaller."""
    from torchlike import broadcast_shapes

    shape = list(broadcast_shapes(*[t.shape for t in tensors]))
    return [t if list(t.shape) == shape else aten.expand(t, shape) for t in tensors]


@of("where")
def where(condition: Any, self: Any = None, other: Any = None) -> Any:
    """Numbers become tensors, of the dtype of what stands beside them."""
    numbers = [v for v in (self, other) if not isinstance(v, _C.Tensor)]
    if not numbers or None in numbers:
        return NotImplemented
    dtype = _C.result_type(self, other)

    def made(v: Any) -> Any:
        if isinstance(v, _C.Tensor):
            return v
        return aten.scalar_tensor(v, dtype=dtype, layout=_C.strided, device=condition.device)

    def cast(v: Any) -> Any:
        return v if v.dtype == dtype else aten._to_copy(v, dtype=dtype)

    other, self = made(other), made(self)
    return aten.where.self(condition, cast(self), cast(other))


@of("max", "min")
def extreme(self: Any, other: Any = None, dim: Any = None, name: str = "", **_: Any) -> Any:
    """Of two tensors: `maximum`, `minimum`."""
    if other is None:
        return NotImplemented
    return (aten.maximum if name == "max" else aten.minimum)(self, other)


@of("isreal")
def isreal(self: Any) -> Any:
    """Ones, as far as numbers are real."""
    if self.is_complex():
        return NotImplemented
    return aten.ones_like(self, dtype=_C.bool, memory_format=_C.preserve_format)


@of("is_nonzero")
def is_nonzero(self: Any) -> Any:
    """A look at the value."""
    if self.numel() != 1:
        return NotImplemented
    return bool(aten._local_scalar_dense(self))


@of("conj_physical")
def conj_physical(self: Any) -> Any:
    """The operator, for numbers that have an imaginary part."""
    return aten._conj_physical(self) if self.is_complex() else NotImplemented


@of("square")
def square(self: Any) -> Any:
    """The second power."""
    return aten.pow.Tensor_Scalar(self, 2)


@of("float_power")
def float_power(self: Any, exponent: Any) -> Any:
    """A power in double precision."""
    if not isinstance(self, _C.Tensor) or isinstance(exponent, _C.Tensor) or self.is_complex():
        return NotImplemented
    return aten.pow.Tensor_Scalar(aten._to_copy(self, dtype=_C.float64), exponent)


@of("isfinite")
def isfinite(self: Any) -> Any:
    """Equal to itself, and not infinite."""
    if self.is_complex():
        real = isfinite(aten.select.int(aten.view_as_real(self), -1, 0))
        imaginary = isfinite(aten.select.int(aten.view_as_real(self), -1, 1))
        return aten.bitwise_and_.Tensor(real, imaginary)
    if not self.is_floating_point():
        return aten.ones_like(self, dtype=_C.bool, memory_format=_C.preserve_format)
    size = aten.ne.Scalar(aten.abs(self), math.inf)
    return aten.mul.Tensor(aten.eq.Tensor(self, self), size)


@of("argsort")
def argsort(self: Any, dim: int = -1, descending: bool = False, stable: Any = None) -> Any:
    """The places of `sort`."""
    if stable is None:
        return aten.sort(self, dim, descending)[1]
    return aten.sort.stable(self, stable=stable, dim=dim, descending=descending)[1]


@of("unique_consecutive")
def unique_consecutive(
    self: Any, return_inverse: bool = False, return_counts: bool = False, dim: Any = None
) -> Any:
    """Those results of the operator that are asked for."""
    made, inverse, counts = aten.unique_consecutive(self, return_inverse, return_counts, dim)
    others = [t for t, on in ((inverse, return_inverse), (counts, return_counts)) if on]
    return (made, *others) if others else made


@of("isclose")
def isclose(
    self: Any, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    """Equal, or closer than allowed and finite."""
    if self.is_complex() or self.dtype != other.dtype:
        return NotImplemented
    close = aten.eq.Tensor(self, other)
    if not self.is_floating_point():
        other = aten._to_copy(other, dtype=_C.get_default_dtype())
        if self.dtype == _C.bool:
            self = aten._to_copy(self, dtype=other.dtype)
    elif equal_nan:
        both = aten.bitwise_and.Tensor(aten.isnan(self), aten.isnan(other))
        close = aten.bitwise_or_.Tensor(close, both)
    allowed = aten.add.Scalar(aten.abs(aten.mul.Scalar(other, rtol)), atol)
    error = aten.abs(aten.sub.Tensor(self, other))
    finite = isfinite(error)
    return aten.bitwise_or_.Tensor(
        close, aten.bitwise_and_.Tensor(finite, aten.le.Tensor(error, allowed))
    )


@of("mT")
def turned(self: Any) -> Any:
    """`transpose` of the last two dimensions."""
    return aten.transpose.int(self, -2, -1)
