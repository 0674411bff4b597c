"""Schemas of operators as text and as data."""

from __future__ import annotations

import functools
import re
from ast import literal_eval
from typing import Any, NamedTuple

from torchlike import _C

_TYPES = frozenset(
    ("Tensor", "int", "SymInt", "float", "bool", "str", "Scalar", "ScalarType", "Device", "Layout")
    + ("MemoryFormat", "Generator", "Dimname", "Storage", "Stream", "QScheme", "Any", "complex")
    + ("number", "SymBool", "SymFloat", "t", "NoneType", "DeviceObjType")
)
# The types of objects that PyTorch makes in C++ begin with this.
SCRIPTED = "__torch__."
# How losses are reduced: a word to users, a number in schemas.
REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}

# Schemas print some defaults as the numbers of dtypes.
_DTYPES = {
    "float": "float32",
    "double": "float64",
    "long": "int64",
    "int": "int32",
    "4": "int64",
    "6": "float32",
}
_ORDER = (
    "uint8 int8 int16 int32 int64 float16 float32 float64 complex32 complex64 complex128 bool qint8 quint8 "
    "qint32 bfloat16"
)
_FORMATS = "contiguous_format preserve_format channels_last channels_last_3d"
# What schemas print in place of the names of dtypes, formats and layouts.
_NUMBERS = {
    name: number
    for names in (_ORDER, _FORMATS, "strided sparse_coo sparse_csr mkldnn")
    for number, name in enumerate(names.split())
}


class AliasInfo(NamedTuple):
    """Which memory an argument or result shares, and whether it is written."""

    names: str
    is_write: bool

    @property
    def before_set(self) -> set[str]:
        """The sets of aliases before the call."""
        return {f"alias::{n.strip()}" for n in self.names.split("|")}

    @property
    def after_set(self) -> set[str]:
        """The sets of aliases after it, which are the same."""
        return self.before_set


class Argument(NamedTuple):
    """One argument, or one result."""

    name: str
    spelled: str
    default_value: Any
    has_default: bool
    kwarg_only: bool
    alias_info: AliasInfo | None

    def has_default_value(self) -> bool:
        """True if the argument may be left out."""
        return self.has_default

    @property
    def type(self) -> TypeName:
        """The type as Python spells it, where numbers stand for sizes, dtypes, layouts and formats of memory."""
        return _annotation(self.spelled, _PLAIN)

    @property
    def real_type(self) -> TypeName:
        """The same with the names of dtypes and layouts."""
        return _annotation(self.spelled, _NAMED)

    @property
    def base(self) -> str:
        """The type without what makes it optional or a list."""
        return _kind(self.spelled)[0]

    @property
    def is_out(self) -> bool:
        """True for a tensor that the result is written to."""
        return self.kwarg_only and self.alias_info is not None and self.alias_info.is_write

    @property
    def is_list(self) -> bool:
        """True for lists."""
        return _kind(self.spelled)[1]

    @property
    def optional(self) -> bool:
        """True if None is allowed."""
        return _kind(self.spelled)[2]


class TypeName(str):
    """The name of an argument's type."""

    __slots__ = ()
    __repr__ = str.__str__

    @property
    def annotation_str(self) -> str:
        """The name."""
        return str(self)


_NAMED = {"SymInt": "int", "Scalar": "number"}
_PLAIN = {**_NAMED, "ScalarType": "int", "Layout": "int", "MemoryFormat": "int"}


def _annotation(spelled: str, words: dict[str, str]) -> TypeName:
    kind = _kind(spelled)
    name = words.get(kind.base, kind.base)
    if kind.is_list:
        name = f"List[Optional[{name}]]" if kind.gaps else f"List[{name}]"
    return TypeName(f"Optional[{name}]" if kind.optional else name)


class _Kind(NamedTuple):
    """What a type says: of what, whether a list, whether optional, of which length (0: any), with gaps."""

    base: str
    is_list: bool
    optional: bool
    fixed: int
    gaps: bool


@functools.cache
def _kind(text: str) -> _Kind:
    head, bracket, rest = text.partition("[")
    fixed = rest.partition("]")[0]
    length = int(fixed) if fixed.isdigit() else 0
    return _Kind(head.rstrip("?"), bool(bracket), text.endswith("?"), length, "?[" in text)


class FunctionSchema:
    """The name, arguments and results of an operator."""

    __slots__ = ("arguments", "name", "overload_name", "positional", "returns", "text")

    def __init__(self, name: str, overload: str, arguments: Any, returns: Any, text: str) -> None:
        self.name = name
        self.overload_name = overload
        self.arguments: list[Argument] = arguments
        self.positional = [a.name for a in arguments if not a.kwarg_only]
        self.returns: list[Argument] = returns
        self.text = text

    @property
    def is_mutable(self) -> bool:
        """True if the operator writes an argument."""
        return any(a.alias_info is not None and a.alias_info.is_write for a in self.arguments)

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FunctionSchema) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


_HEAD = re.compile(r"\s*((?:\w+::)?\w+)(?:\.(\w+))?\s*\(")


def split(text: str) -> list[str]:
    """The parts of a list; brackets and quotes are left whole."""
    parts, depth, quote, start = [], 0, "", 0
    for i, c in enumerate(text):
        if quote:
            quote = "" if c == quote else quote
        elif c in "\"'":
            quote = c
        elif c in "([":
            depth += 1
        elif c in ")]":
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    last = text[start:].strip()
    return [*parts, last] if last else parts


_ARGUMENT = re.compile(
    r"([\w.]+)\s*(\([^)]*\)|!)?((?:\[\d*\]|\?)*)(?:\s+(\w+))?(?:\s*=\s*(.*))?$", re.S
)


def _default(text: str, type_: str) -> Any:
    named = {"None": None, "True": True, "False": False, "Mean": 1}
    if text in named:
        return named[text]
    if type_.startswith("ScalarType") or text in ("contiguous_format", "strided"):
        return getattr(_C, _DTYPES.get(text, text), text)
    try:
        return literal_eval(text)
    except (ValueError, SyntaxError):
        return float(text) if text in ("inf", "-inf", "nan") else text


def _argument(text: str, kwarg_only: bool, whole: str) -> Argument:
    found = _ARGUMENT.match(text)
    if found is None:
        raise RuntimeError(f"expected an argument but found '{text}' here:\n{text}")
    base, alias, suffix, name, default = found.groups()
    if base not in _TYPES and not base.startswith(SCRIPTED):
        shown = whole.rpartition("::")[2]
        raise RuntimeError(
            "\nunknown type specifier. Common valid schema types include Tensor, SymInt, int, float, bool, Scalar; "
            "for a full list, please see "
            "https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/README.md#func :\n"
            f"{shown}\n{' ' * shown.rindex(text)}{'~' * len(base)} <--- HERE\n"
        )
    info = None
    if alias is not None:
        # `Tensor! out` is written, and shares memory with nothing that has a name.
        inner = alias if alias == "!" else alias[1:-1]
        info = AliasInfo(inner.replace("!", "").partition("->")[0].strip(), "!" in inner)
    type_ = base + (suffix or "")
    value = None if default is None else _default(default.strip(), type_)
    if isinstance(value, int | float):
        # One number says all of a list of a known length.
        value = [value] * _kind(type_).fixed or value
    return Argument(name or "", type_, value, default is not None, kwarg_only, info)


def _check_default(argument: Argument, part: str, text: str) -> None:
    if argument.has_default and argument.default_value is None and argument.spelled.endswith("]"):
        shown = text.rpartition("::")[2]
        place = shown.index(part) + part.rindex("None")
        raise RuntimeError(
            f"expected [ but found 'None' here:\n{shown}\n{' ' * place}~~~~ <--- HERE"
        )


def parse(text: str) -> FunctionSchema:
    """The schema in a text such as `my::f(Tensor x, int n=2) -> Tensor`.

    Raises:
        RuntimeError: with what was expected, and where.
    """
    head = _HEAD.match(text)
    if head is None:
        raise RuntimeError(f"expected ident but found '(' here:\n{text}\n~ <--- HERE")
    close = closing(text, head.end() - 1)
    arrow = text[close + 1 :].strip()
    if not arrow.startswith("->"):
        raise RuntimeError(f"expected -> but found '{arrow[:1]}' here:\n{text}")
    arguments, kwarg_only = [], False
    for part in split(text[head.end() : close]):
        if part == "*":
            kwarg_only = True
        else:
            arguments.append(_argument(part, kwarg_only, text))
            _check_default(arguments[-1], part, text)
    results = arrow[2:].strip()
    if results.startswith("(") and results.endswith(")"):
        results = results[1:-1]
    returns = [_argument(part, False, text) for part in split(results)]
    text = text.strip()
    if not text.startswith("aten::"):
        text = _spelled(text, close, arguments)
    return FunctionSchema(head.group(1), head.group(2) or "", arguments, returns, text)


def _spelled(text: str, close: int, arguments: list[Argument]) -> str:
    """A schema as PyTorch prints it, whatever its spaces and defaults were written like."""
    begin = text.index("(") + 1
    known, parts = iter(arguments), []
    for part in split(text[begin:close]):
        if part == "*":
            parts.append(part)
            continue
        argument = next(known)
        declared = " ".join(part.partition("=")[0].split())
        default = f"={_shown(argument)}" if argument.has_default else ""
        parts.append(declared + default)
    results = " ".join(text[close + 1 :].partition("->")[2].split())
    if results.startswith("("):
        results = f"({', '.join(split(results[1:-1]))})"
    return f"{text[:begin].replace(' ', '')}{', '.join(parts)}) -> {results}"


def _shown(argument: Argument) -> str:
    """A default as PyTorch prints it: numbers in full, dtypes by number."""
    value, kind = argument.default_value, _kind(argument.spelled)
    if isinstance(value, list):
        same = kind.fixed and kind.base == "int" and len(set(value)) == 1
        return str(value[0]) if same else f"[{', '.join(_item(v, kind.base) for v in value)}]"
    return _item(value, kind.base)


def _item(value: Any, base: str) -> str:
    if isinstance(value, _C.dtype | _C.memory_format | _C.layout):
        return str(_NUMBERS.get(str(value).rpartition(".")[2], value))
    if base == "str" and isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) and base != "float":
        return str(value)
    if abs(value) < 1e10 and value == int(value):
        return f"{value:.0f}."
    return f"{value:.17g}"


def closing(text: str, start: int) -> int:
    """The place of the bracket that closes the one at `start`."""
    depth = 0
    for i in range(start, len(text)):
        depth += (text[i] == "(") - (text[i] == ")")
        if depth == 0:
            return i
    raise RuntimeError(f"expected ) but found 'eof' here:\n{text}")


_INTEGERS = (int,)
_CHECKS: dict[str, Any] = {
    "int": lambda v: isinstance(v, int),
    "SymInt": lambda v: isinstance(v, int),
    "float": lambda v: isinstance(v, float | int),
    "bool": lambda v: isinstance(v, bool),
    "str": lambda v: isinstance(v, str),
    "Scalar": lambda v: isinstance(v, int | float | complex),
    "ScalarType": lambda v: isinstance(v, _C.dtype),
    "Device": lambda v: isinstance(v, _C.device | str),
    "Layout": lambda v: isinstance(v, _C.layout),
    "MemoryFormat": lambda v: isinstance(v, _C.memory_format),
    "Generator": lambda v: isinstance(v, _C.Generator),
}


def _is_one(base: str, value: Any, numbers: bool) -> bool:
    if base == "Tensor":
        return isinstance(value, _C.Tensor) or (
            numbers and isinstance(value, int | float | complex)
        )
    if base.startswith(SCRIPTED):
        return hasattr(value, "_type") and value._type() == base
    check = _CHECKS.get(base)
    if check is None:
        return True
    if check(value):
        return True
    scalar = base in ("int", "SymInt", "float", "Scalar", "bool")
    return scalar and isinstance(value, _C.Tensor) and value.dim() == 0


PLAIN = {"int": int, "SymInt": int, "float": float, "bool": bool}
_MADE_OF = {
    int: ("__index__", "__int__", "__trunc__"),
    float: ("__float__", "__index__"),
    bool: ("__bool__",),
}


def plain(argument: Argument, value: Any, tensors: bool = True) -> Any:
    """A number as the kind of Python's that the schema names, and so those of a list; what cannot be made so stays."""
    kind = PLAIN.get(argument.base)
    if kind is None or type(value) is kind or value is None:
        return value
    if argument.is_list and isinstance(value, list | tuple):
        made = [_plain_one(kind, v, tensors) for v in value]
        same = all(a is b for a, b in zip(made, value, strict=True))
        return value if same else made
    return _plain_one(kind, value, tensors)


def _plain_one(kind: type, value: Any, tensors: bool) -> Any:
    is_kind = isinstance(value, kind) and not isinstance(value, bool)
    if is_kind or type(value) is kind or isinstance(value, str):
        return value
    if kind is int and isinstance(value, float):
        return value
    if isinstance(value, _C.Tensor) and not tensors:
        return value
    if not any(hasattr(type(value), name) for name in _MADE_OF[kind]):
        return value
    try:
        return kind(value)
    except (TypeError, ValueError, RuntimeError):
        return value


def filled(argument: Argument, value: Any) -> Any:
    """The value; a single one of a list whose length the schema says as often as it does."""
    length = _kind(argument.spelled).fixed
    alone = length > 1 and isinstance(value, list | tuple) and len(value) == 1
    return [*value] * length if alone else value


def fits(argument: Argument, value: Any, numbers: bool = True) -> bool:
    """True if the value can stand for the argument; `numbers` says whether a number is a tensor."""
    base, is_list, optional, fixed, gaps = _kind(argument.spelled)
    if value is None:
        return optional or base == "NoneType"
    if not is_list:
        return _is_one(base, value, numbers)
    if not isinstance(value, list | tuple):
        return fixed > 0 and _is_one(base, value, False)
    return all((gaps and v is None) or _is_one(base, v, False) for v in value)
