"""What the dotted names of TorchScript stand for: operators, and the functions of plain values."""

from __future__ import annotations

import enum
import functools
import math
from typing import TYPE_CHECKING, Any

import torchlike
from torchlike import _ops
from torchlike.jit import _values
from torchlike.jit._errors import CompilationUnitError
from torchlike.jit._otherwise import OF_AUTOGRAD, WITHOUT_OPERATOR

if TYPE_CHECKING:
    from collections.abc import Callable

_PLAIN_TYPES = (
    int,
    float,
    str,
    bool,
    complex,
    list,
    dict,
    tuple,
    type(None),
    enum.Enum,
    torchlike.dtype,
    torchlike.device,
)

_FUNCTIONAL = frozenset(
    [
        "adaptive_avg_pool2d",
        "adaptive_avg_pool3d",
        "avg_pool2d",
        "avg_pool3d",
        "elu",
        "elu_",
        "gelu",
        "glu",
        "hardsigmoid",
        "hardswish",
        "hardtanh",
        "hardtanh_",
        "leaky_relu",
        "leaky_relu_",
        "linear",
        "mish",
        "one_hot",
        "pad",
        "relu6",
        "scaled_dot_product_attention",
        "silu",
        "softplus",
        "softshrink",
    ]
)
"""Functions of `nn.functional` that take what the operators of their names take."""

_NAMES = (
    "uint8 int8 int16 int32 int64 float16 float32 float64 complex32 complex64 complex128 bool qint8 quint8 "
    "qint32 bfloat16"
)
DTYPES = {i: getattr(torchlike, n) for i, n in enumerate(_NAMES.split()) if hasattr(torchlike, n)}
"""The dtypes by the numbers that code has for them."""
_NUMBERS = {dtype: number for number, dtype in DTYPES.items()}
FORMATS = {
    0: torchlike.contiguous_format,
    1: torchlike.preserve_format,
    2: torchlike.channels_last,
    3: torchlike.channels_last_3d,
}
"""The memory formats by the numbers that code has for them."""

ATTRIBUTES = frozenset(
    [
        "shape",
        "dtype",
        "device",
        "ndim",
        "T",
        "mT",
        "H",
        "mH",
        "is_cuda",
        "is_cpu",
        "is_meta",
        "is_mps",
        "is_xpu",
        "is_sparse",
        "is_quantized",
        "is_nested",
        "is_mkldnn",
        "is_vulkan",
        "is_ipu",
        "layout",
        "itemsize",
        "nbytes",
        "real",
        "imag",
        "grad",
        "data",
        "requires_grad",
        "is_leaf",
        "output_nr",
        "retains_grad",
        "name",
        "names",
    ]
)
"""Attributes of tensors that code may read."""


def is_operator(name: str) -> bool:
    """True for names of PyTorch's operators."""
    return name in _operators()


_REFUSED = frozenset(("from_file",))
"""Operators that reach beyond memory."""


@functools.cache
def _operators() -> frozenset[str]:
    return frozenset(_ops._aten()) - _REFUSED


@functools.cache
def losses() -> frozenset[str]:
    """Operators whose mean is the default in schemas alone: functions of Python reduce nothing."""
    return frozenset(row for row, schema, *_ in torchlike._C._op_table() if "=Mean" in schema)


def with_reduction(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The keywords of a call of one of the `losses` in Python, as its operator takes them."""
    packet = getattr(torchlike.ops.aten, name)
    positional = getattr(packet, packet.overloads()[0])._schema.positional
    given = "reduction" in kwargs or len(args) > positional.index("reduction")
    return kwargs if given else {**kwargs, "reduction": 0}


def _direct(name: str) -> Callable[..., Any] | None:
    """The function or method of a name, which costs less than the operator."""
    if name in losses():
        return None
    found = getattr(torchlike, name, None) if not name.startswith("__") else None
    if callable(found) and not isinstance(found, type):
        return found
    found = getattr(torchlike.Tensor, name, None)
    if callable(found):
        return found
    return getattr(torchlike.nn.functional, name) if name in _FUNCTIONAL else None


@functools.cache
def _coded(name: str) -> dict[Any, Any]:
    """Which arguments of an operator are dtypes, layouts or memory formats, which code gives as numbers."""
    found: dict[Any, Any] = {"dtype": _dtype, "layout": _layout, "memory_format": _format}
    if name == "to":
        return found | {1: _dtype, 2: _dtype, 4: _format, 5: _format}
    integers: set[int] = set()
    packet = getattr(torchlike.ops.aten, name)
    for overload in packet.overloads():
        try:
            arguments = getattr(packet, overload)._schema.arguments
        except (AttributeError, RuntimeError):
            continue
        for i, argument in enumerate(arguments):
            kind = argument.spelled
            if "ScalarType" in kind or argument.name == "dtype":
                found.setdefault(i, _dtype)
            elif argument.name == "memory_format":
                found.setdefault(i, _format)
            elif "int" in kind.lower() or "Scalar" in kind:
                integers.add(i)
    return {k: f for k, f in found.items() if k not in integers}


def _is_code(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _dtype(value: Any) -> Any:
    return DTYPES.get(value, value) if _is_code(value) else value


def _layout(value: Any) -> Any:
    return torchlike.strided if _is_code(value) else value


def _format(value: Any) -> Any:
    return FORMATS.get(value, value) if _is_code(value) else value


_CODED_NAMES = frozenset(
    [
        "to",
        "softmax",
        "log_softmax",
        "sum",
        "mean",
        "prod",
        "cumsum",
        "cumprod",
        "nansum",
        "logcumsumexp",
        "_to_copy",
        "type_as",
        "contiguous",
        "clone",
        "norm",
        "std",
        "var",
        "vander",
        "scalar_tensor",
        "special_softmax",
        "special_log_softmax",
        "_softmax_backward_data",
        "_log_softmax_backward_data",
        "linalg_norm",
        "linalg_vector_norm",
        "linalg_matrix_norm",
    ]
)


def _decoded(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """The arguments with dtypes in place of their numbers."""
    if name in _CODED_NAMES and any(_is_code(a) for a in args):
        coded = _coded(name)
        args = tuple(coded[i](a) if i in coded else a for i, a in enumerate(args))
    if kwargs:
        names = {"dtype": _dtype, "layout": _layout, "memory_format": _format}
        kwargs = {k: names[k](v) if k in names else v for k, v in kwargs.items()}
    return args, kwargs


def _operator(name: str, space: str = "aten") -> Callable[..., Any]:
    """An operator, by its function where that takes the arguments and by its schema otherwise."""
    direct = _direct(name) if space == "aten" else None

    def call(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = _decoded(name, args, kwargs)
        if name == "to":
            return _to(*args, **kwargs)
        if direct is not None:
            try:
                return direct(*args, **kwargs)
            except TypeError as e:
                try:
                    return getattr(torchlike.ops.aten, name)(*args, **kwargs)
                except (AttributeError, TypeError, NotImplementedError):
                    raise e from None
        return getattr(getattr(torchlike.ops, space), name)(*args, **kwargs)

    call.__name__ = name
    return call


def _decoding(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is given dtypes as numbers."""

    def call(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = _decoded("", args, kwargs)
        return function(*args, **kwargs)

    return call


def _to(x: Any, *args: Any, **kwargs: Any) -> Any:
    """`Tensor.to` with trailing absent arguments, as archives write it."""
    given = list(args)
    names = ["non_blocking", "copy", "memory_format"]
    at = next((i for i, a in enumerate(given) if isinstance(a, bool)), len(given))
    for name, value in zip(names, given[at:], strict=False):
        kwargs.setdefault(name, value)
    kept = [a for a in given[:at] if a is not None]
    if kwargs.get("memory_format", 0) is None:
        del kwargs["memory_format"]
    return x.to(*kept, **{k: v for k, v in kwargs.items() if v is not None})


def _unknown(name: str) -> Callable[..., Any]:
    """What a name that is no operator here stands for: code may mention it where it never runs."""

    def call(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"Unknown builtin op: aten::{name}")

    return call


@functools.cache
def of_torch(name: str) -> Callable[..., Any]:
    """What `torch.name` is in code; of a name that is no operator, a function that says so.

    Raises:
        CompilationUnitError: for names that only Python has.
    """
    always = _values.ALWAYS.get(name)
    if always is not None:
        return always
    if name in WITHOUT_OPERATOR:
        return _decoding(WITHOUT_OPERATOR[name])
    plain = _values.PLAIN.get(name)
    if not is_operator(name):
        if plain is None and name.startswith("__"):
            raise CompilationUnitError(f"Unknown builtin op: aten::{name}")
        return _unknown(name) if plain is None else plain
    full = _operator(name)
    if plain is None:
        return full
    whole = _values.whole

    def either(*args: Any, **kwargs: Any) -> Any:
        for a in args[:2]:
            if not isinstance(a, _PLAIN_TYPES):
                if args and isinstance(args[0], list | dict):
                    break
                return full(*args, **kwargs)
        return whole(plain(*args, **kwargs))

    either.__name__ = name
    return either


def data_of(x: Any, name: str) -> Any:
    """An attribute of a tensor as code has it: dtypes are numbers there, shapes are lists."""
    value = getattr(x, name)
    if isinstance(value, torchlike.dtype):
        return _NUMBERS[value]
    if isinstance(value, torchlike.layout):
        return 0
    return list(value) if isinstance(value, torchlike.Size) else value


def _data_of(name: str, x: Any) -> Any:
    return data_of(x, name)


def _listed(value: Any, *_: Any) -> Any:
    return value.tolist()


def _least(*values: Any) -> Any:
    return min(*values)


_PRIM: dict[str, Callable[..., Any]] = {
    "RaiseException": _values.raise_exception,
    "NumToTensor": torchlike.tensor,
    "unchecked_unwrap_optional": _values._unwrap,
    "min": _least,
    "max": lambda *values: max(*values),
    "abs": lambda x: abs(x),
    "rangelist": lambda n: list(range(n)),
    "tolist": _listed,
    "Print": print,
    "type": lambda device: device.type,
    "index": lambda device: device.index,
    "id": id,
    "unchecked_cast": lambda x: x,
}


def of_prim(name: str) -> Callable[..., Any]:
    """What `ops.prim.name` is in code."""
    if name in _PRIM:
        return _PRIM[name]
    if name in ATTRIBUTES:
        return functools.partial(_data_of, name)
    raise CompilationUnitError(f"Unknown builtin op: prim::{name}")


CONSTANTS: dict[str, Any] = {
    "inf": math.inf, "nan": math.nan, "infj": complex(0, math.inf), "nanj": complex(0, math.nan),
    "True": True, "False": False, "None": None, "math.pi": math.pi, "math.inf": math.inf, "math.nan": math.nan,
    "math.e": math.e, "math.tau": math.tau,
}  # fmt: skip

_MATH = frozenset(
    [
        "acos",
        "acosh",
        "asin",
        "asinh",
        "atan",
        "atan2",
        "atanh",
        "ceil",
        "copysign",
        "cos",
        "cosh",
        "degrees",
        "erf",
        "erfc",
        "exp",
        "expm1",
        "fabs",
        "factorial",
        "floor",
        "fmod",
        "frexp",
        "gamma",
        "gcd",
        "isfinite",
        "isinf",
        "isnan",
        "ldexp",
        "lgamma",
        "log",
        "log10",
        "log1p",
        "log2",
        "modf",
        "pow",
        "radians",
        "remainder",
        "sin",
        "sinh",
        "sqrt",
        "tan",
        "tanh",
        "trunc",
    ]
)


def _custom(space: str, name: str) -> Callable[..., Any]:
    """An operator that the program has registered itself.

    Raises:
        CompilationUnitError: if it has not.
    """
    if not space.startswith("_") and not name.startswith("__"):
        found = getattr(getattr(torchlike.ops, space, None), name, None)
        if isinstance(found, _ops.OpOverloadPacket):
            return _operator(name, space)
    raise CompilationUnitError(f"Unknown builtin op: {space}::{name}")


def value_of(path: tuple[str, ...]) -> Any:
    """What a dotted name that begins with `torch`, `ops` or `math` stands for.

    Raises:
        CompilationUnitError: for every name that TorchScript has not.
    """
    dotted = ".".join(path)
    if dotted in CONSTANTS:
        return CONSTANTS[dotted]
    if path[0] == "math" and len(path) == 2 and path[1] in _MATH:
        return getattr(math, path[1])
    if path[0] == "ops" and len(path) == 3:
        if path[1] == "aten":
            return of_torch(path[2])
        if path[1] == "prim":
            return of_prim(path[2])
        return _custom(path[1], path[2])
    if path[0] == "torch" and len(path) == 2:
        return of_torch(path[1])
    if len(path) == 3 and path[1] == "autograd" and path[2] in OF_AUTOGRAD:
        return OF_AUTOGRAD[path[2]]
    joined = "_".join(path[1:])
    if len(path) == 3 and path[1] in ("linalg", "fft", "special") and is_operator(joined):
        return of_torch(joined)
    raise CompilationUnitError(f"'{dotted}' is nothing that TorchScript knows")


def method_of(x: Any, name: str) -> Callable[..., Any]:
    """A method of a tensor, which takes dtypes as numbers."""
    found = getattr(x, name, None) if name != "to" else None
    if found is None:
        return functools.partial(of_torch(name), x)

    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs or name in _CODED_NAMES:
            given, kwargs = _decoded(name, (x, *args), kwargs)
            args = given[1:]
        return found(*args, **kwargs)

    return call
