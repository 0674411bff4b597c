"""What TorchScript's own functions do with numbers, strings, lists and dictionaries."""

from __future__ import annotations

import builtins
import math
import operator
import warnings
from typing import TYPE_CHECKING, Any

import torchlike
from torchlike.jit._errors import Raised

if TYPE_CHECKING:
    from collections.abc import Callable

Tensor = torchlike.Tensor
_LARGEST = 1 << 63
_MOST = 1 << 28
"""Items of a list, or characters of a string, that code may make by repeating one."""


def whole(value: Any) -> Any:
    """An integer as TorchScript has them: 64 bits, which wrap around."""
    if type(value) is int and not -_LARGEST <= value < _LARGEST:
        return (value + _LARGEST) % (2 * _LARGEST) - _LARGEST
    return value


def add(a: Any, b: Any, alpha: Any = 1) -> Any:
    """Numbers, strings and lists alike; a tuple that meets a list becomes one."""
    try:
        return whole(a + b if alpha == 1 else a + alpha * b)
    except TypeError:
        both = (a, b)
        if {list, tuple} == {k for k in (list, tuple) for of in both if isinstance(of, k)}:
            return [*a, *b]
        raise


def sub(a: Any, b: Any, alpha: Any = 1) -> Any:
    """A difference of numbers."""
    return whole(a - b if alpha == 1 else a - alpha * b)


def mul(a: Any, b: Any) -> Any:
    """A product of numbers, or a repeated list or string."""
    for items, times in ((a, b), (b, a)):
        if isinstance(items, str | list) and isinstance(times, int) and len(items) * times > _MOST:
            raise RuntimeError(f"a list or string repeated {times} times is too large")
    return whole(a * b)


def power(a: Any, b: Any) -> Any:
    """A power; of integers it is a double, as in TorchScript."""
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return a**b
    if isinstance(a, complex) or isinstance(b, complex):
        return a**b
    try:
        return math.pow(a, b)
    except OverflowError:
        return math.inf


def shift(a: Any, b: Any) -> Any:
    """An integer shifted to the left."""
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return a << b
    return whole(a << b) if 0 <= b < 64 else 0


def divide(a: Any, b: Any, *, rounding_mode: str | None = None) -> Any:
    """A quotient; of numbers that are divided by 0 it is what the hardware gives."""
    if rounding_mode == "floor":
        return floor_divide(a, b)
    try:
        quotient = a / b
    except ZeroDivisionError:
        if isinstance(a, complex) or isinstance(b, complex):
            return complex(math.nan, math.nan)
        if a == 0 or a != a:
            return math.nan
        return math.copysign(math.inf, a) * math.copysign(1.0, b)
    return int(quotient) if rounding_mode == "trunc" else quotient


def floor_divide(a: Any, b: Any) -> Any:
    """A quotient that is rounded down."""
    try:
        return whole(a // b)
    except ZeroDivisionError:
        if isinstance(a, float) or isinstance(b, float):
            return divide(a, b)
        raise ZeroDivisionError("division by 0") from None


def remainder(a: Any, b: Any) -> Any:
    """What is left of a division, with the sign of the divisor; of a text, the text with values in it."""
    if isinstance(a, str):
        return _percent(a, *(b if isinstance(b, tuple) else (b,)))
    try:
        return a % b
    except ZeroDivisionError:
        if isinstance(a, float) or isinstance(b, float):
            return math.nan
        raise


def _slice(items: Any, start: Any = None, end: Any = None, step: int = 1) -> Any:
    return items[slice(start, end, step)]


def _length(start: int, stop: int, step: int) -> int:
    return len(range(start, stop, step))


def format(text: str, *values: Any) -> str:
    """Puts values where a text has braces."""
    parts = text.split("{}")
    if len(values) < len(parts) - 1:
        raise RuntimeError(f"Too few arguments for format string: {text}")
    out = [parts[0]]
    for i, part in enumerate(parts[1:]):
        out.append(text_of(values[i]))
        out.append(part)
    return "".join(out)


def text_of(value: Any) -> str:
    """A value as `str` shows it."""
    return str(value)


def _extended(items: list[Any], more: list[Any], alpha: Any = 1) -> list[Any]:
    """`items += more` of lists."""
    items += more
    return items


def _repeated(items: list[Any], times: int) -> list[Any]:
    """`items *= times` of lists."""
    items[:] = mul(items, times)
    return items


def _set(items: Any, key: Any, value: Any) -> Any:
    items[key] = value
    return items


def _sort(items: list[Any], reverse: bool = False) -> None:
    items.sort(reverse=reverse)


def _append(items: list[Any], item: Any) -> list[Any]:
    items.append(item)
    return items


def _values(of: Any) -> Any:
    """The values of a dictionary, as a list, or of a sparse tensor."""
    return of.values() if isinstance(of, Tensor) else list(of.values())


def _get(d: dict[Any, Any], key: Any, default: Any = None) -> Any:
    return d.get(key, default)


_TAGS: dict[type, str] = {
    str: "String", bool: "Bool", int: "Int", float: "Double", complex: "ComplexDouble", type(None): "None",
    list: "GenericList", dict: "GenericDict", tuple: "Tuple",
}  # fmt: skip


def _percent(text: str, *values: Any) -> str:
    """Puts values where a text has `%s`, `%d` and the like."""
    out, rest = [], list(reversed(values))
    parts = iter(text.split("%"))
    out.append(next(parts))
    for part in parts:
        if not part:
            following = next(parts, None)
            if following is None:
                raise RuntimeError("Incomplete format specifier")
            out.append("%" + following)
            continue
        if not rest:
            raise RuntimeError("Too few arguments for format string")
        out.append(_formatted(part[0], rest.pop()) + part[1:])
    if rest:
        raise RuntimeError("Too many arguments for format string")
    return "".join(out)


def _formatted(key: str, value: Any) -> str:
    """A value as a letter of a format says."""
    if key == "s":
        return text_of(value)
    tag = "Tensor" if isinstance(value, Tensor) else _TAGS.get(type(value), "Object")
    if key == "c":
        if type(value) is not int and not (isinstance(value, str) and len(value) == 1):
            raise RuntimeError(f"%c requires an int or char for formatting, but got {tag}")
        return value if isinstance(value, str) else chr(value & 255)
    if key not in "dieEfF":
        raise RuntimeError(f"The specifier %{key} is not supported in TorchScript format strings")
    if tag not in ("Int", "Double"):
        raise RuntimeError(f"%{key} requires a number for formatting, but got {tag}")
    return f"%{key}" % value


def _index(items: Any, value: Any, *bounds: int) -> int:
    """Where a list, or a text, has a value."""
    try:
        return int(items.index(value, *bounds))
    except ValueError:
        if isinstance(items, list):
            raise ValueError(f"'{value}' is not in list") from None
        raise


def _first_item(d: dict[Any, Any]) -> tuple[Any, Any]:
    """Takes the oldest pair out of a dictionary."""
    if not d:
        raise RuntimeError("popitem(): dictionary is empty")
    key = next(iter(d))
    return key, d.pop(key)


def raise_exception(text: Any, name: Any = None) -> Any:
    """Raises an exception of the code, whose class has a name of Python's."""
    raise Raised(str(name or ""), str(text))


def _unwrap(value: Any) -> Any:
    if value is None:
        raise RuntimeError("Unwrapping null optional")
    return value


def _number(value: Any) -> Any:
    """A number of a 0-dimensional tensor."""
    return value.item() if isinstance(value, Tensor) else value


def _string(name: str) -> Callable[..., Any]:
    """A method of `str`, `list` or `dict` as a function."""

    def call(value: Any, *args: Any) -> Any:
        if not isinstance(value, str | list | dict):
            raise TypeError(f"torch.{name}: not for a {type(value).__name__}")
        return getattr(value, name)(*args)

    return call


def _of_float(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, *rest: function(x, *rest)


METHODS = {
    "str": frozenset(
        [
            "capitalize",
            "casefold",
            "center",
            "count",
            "endswith",
            "expandtabs",
            "find",
            "format",
            "index",
            "isalnum",
            "isalpha",
            "isdecimal",
            "isdigit",
            "isidentifier",
            "islower",
            "isnumeric",
            "isprintable",
            "isspace",
            "istitle",
            "isupper",
            "join",
            "ljust",
            "lower",
            "lstrip",
            "partition",
            "replace",
            "rfind",
            "rindex",
            "rjust",
            "rpartition",
            "rsplit",
            "rstrip",
            "split",
            "splitlines",
            "startswith",
            "strip",
            "swapcase",
            "title",
            "upper",
            "zfill",
        ]
    ),
    "list": frozenset(
        [
            "append",
            "clear",
            "copy",
            "count",
            "extend",
            "index",
            "insert",
            "pop",
            "remove",
            "reverse",
            "sort",
        ]
    ),
    "dict": frozenset(
        [
            "clear",
            "copy",
            "get",
            "items",
            "keys",
            "pop",
            "popitem",
            "setdefault",
            "update",
            "values",
        ]
    ),
    "tuple": frozenset(("count", "index")),
}
"""The methods of plain values that code may call."""

PLAIN: dict[str, Callable[..., Any]] = {
    "add_": _extended, "mul_": _repeated,
    "add": add, "sub": sub, "mul": mul, "div": divide, "floordiv": floor_divide,
    "floor_divide": floor_divide, "remainder": remainder, "fmod": math.fmod, "pow": power, "neg": operator.neg,
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "__and__": operator.and_, "__or__": operator.or_, "__xor__": operator.xor, "__lshift__": shift,
    "__rshift__": operator.rshift, "bitwise_not": operator.invert, "abs": builtins.abs, "max": builtins.max,
    "min": builtins.min, "sum": builtins.sum, "all": builtins.all, "any": builtins.any, "round": builtins.round,
    "ceil": math.ceil, "floor": math.floor, "sqrt": math.sqrt, "exp": math.exp, "log": math.log, "log2": math.log2,
    "log10": math.log10, "log1p": math.log1p, "sin": math.sin, "cos": math.cos, "tan": math.tan, "tanh": math.tanh,
    "sinh": math.sinh, "cosh": math.cosh, "asin": math.asin, "acos": math.acos, "atan": math.atan,
    "atan2": math.atan2, "erf": math.erf, "isinf": math.isinf, "isnan": math.isnan, "isfinite": math.isfinite,
    "copysign": math.copysign, "degrees": math.degrees, "radians": math.radians, "factorial": math.factorial,
    "gcd": math.gcd, "gamma": math.gamma, "lgamma": math.lgamma, "fabs": math.fabs, "expm1": math.expm1,
    "len": len, "append": _append, "extend": list.extend, "insert": list.insert, "pop": _string("pop"),
    "clear": _string("clear"), "remove": list.remove, "reverse": list.reverse, "sort": _sort, "sorted": sorted,
    "copy": _string("copy"), "list": list, "count": _string("count"), "index": _index, "slice": _slice,
    "select": operator.getitem, "keys": lambda d: list(d.keys()), "values": lambda d: _values(d),
    "items": lambda d: list(d.items()), "get": _get, "setdefault": _string("setdefault"), "popitem": _first_item,
    "update": dict.update, "dict": dict, "Delete": operator.delitem, "isspace": str.isspace,
}  # fmt: skip
"""Functions of TorchScript whose names tensors have too: these are for arguments without any tensor."""
PLAIN |= {
    name: _string(name)
    for name in METHODS["str"]
    if name not in PLAIN and name not in ("index", "format")
}

ALWAYS: dict[str, Callable[..., Any]] = {
    "__is__": operator.is_, "__isnot__": operator.is_not, "__not__": operator.not_,
    "__contains__": operator.contains, "__getitem__": operator.getitem, "_set_item": _set,
    "__range_length": _length, "__derive_index": lambda i, start, step: start + i * step, "format": format,
    "str": text_of, "Bool": lambda x: bool(_number(x)), "Int": lambda x: whole(int(_number(x))),
    "Float": lambda x: float(_number(x)), "Complex": lambda x, y=0: complex(_number(x), y),
    "IntImplicit": lambda x: int(_number(x)), "FloatImplicit": lambda x: float(_number(x)),
    "ScalarImplicit": _number, "ComplexImplicit": lambda x: complex(_number(x)), "ord": ord, "chr": chr, "hex": hex,
    "oct": oct, "bin": bin, "percentFormat": _percent, "hash": hash,
    "warn": lambda text, level=2: warnings.warn(text, stacklevel=2), "size": lambda x, *d: _size(x, *d),
    "dim": lambda x: x.dim(), "numel": lambda x: x.numel(), "device": torchlike.device, "_unwrap_optional": _unwrap,
    "is_scripting": lambda: True, "len": len, "wait": lambda future: future.wait(),
}  # fmt: skip
"""Functions that are for values of every kind."""


def _size(x: Any, *dim: int) -> Any:
    return x.size(*dim) if dim else list(x.shape)
