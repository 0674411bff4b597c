"""The schema of a Python function, read from its annotations."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Sequence
from typing import Any, Optional, Union

from torchlike import _C
from torchlike._tags import Tag

_NUMBER = int | float | bool
_BASES: dict[Any, str] = {
    _C.Tensor: "Tensor",
    int: "SymInt",
    float: "float",
    bool: "bool",
    str: "str",
    _NUMBER: "Scalar",
    _C.dtype: "ScalarType",
    _C.device: "Device",
}
_LISTS = (typing.Sequence, typing.List, Sequence, list)  # noqa: UP006 (compared with annotations)
_RESULTS: dict[Any, str] = {
    _C.Tensor: "Tensor",
    typing.List[_C.Tensor]: "Tensor[]",  # noqa: UP006
    list[_C.Tensor]: "Tensor[]",
    int: "SymInt",
    float: "float",
    bool: "bool",
    _NUMBER: "Scalar",
}


def _valid() -> dict[Any, str]:
    found: dict[Any, str] = {}
    for base, text in _BASES.items():
        found[base] = text
        found[Optional[base]] = f"{text}?"  # noqa: UP045
        if text in ("str", "ScalarType", "Device"):
            continue
        found.update({kind[base]: f"{text}[]" for kind in _LISTS})
        if text == "Tensor":
            found.update({kind[Optional[base]]: f"{text}?[]" for kind in _LISTS})  # noqa: UP045
        elif text != "Scalar":
            found.update({Optional[kind[base]]: f"{text}[]?" for kind in _LISTS})  # noqa: UP045
    return found


def _kind(annotation: Any, valid: dict[Any, str]) -> str | None:
    if isinstance(annotation, types.UnionType):
        annotation = Union[typing.get_args(annotation)]  # noqa: UP007
    try:
        return valid.get(annotation)
    except TypeError:
        return None


def listed(tags: Any) -> list[Any]:
    """Tags that were given alone, several, or not at all."""
    if tags is None:
        return []
    return list(tags) if isinstance(tags, tuple | list) else [tags]


def infer_schema(
    prototype_function: Any,
    /,
    *,
    mutates_args: Any,
    op_name: str | None = None,
    tags: Any = (),
) -> str:
    """`(Tensor x, int n=2) -> Tensor` of a function with annotations.

    Raises:
        ValueError: if an annotation is missing, or says nothing that an operator takes, or tags say otherwise.
    """
    if isinstance(mutates_args, str) and mutates_args != "unknown":
        raise ValueError(
            "mutates_args must either be a sequence of the names of the arguments that are mutated or the string "
            "'unknown'. "
        )
    signature = inspect.signature(prototype_function)

    def fail(what: str) -> Any:
        text = str(signature).replace("torchlike.", "torch.")
        raise ValueError(f"infer_schema(func): {what} Got func with signature {text})")

    hints = _hints(prototype_function)
    valid = _valid()
    parts, star, seen = [], False, set()
    for index, (name, p) in enumerate(signature.parameters.items()):
        if p.kind not in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY):
            fail("We do not support positional-only args, varargs, or varkwargs.")
        if p.kind is p.KEYWORD_ONLY and not star:
            parts.append("*")
            star = True
        if p.annotation is p.empty:
            fail(f"Parameter {name} must have a type annotation.")
        seen.add(name)
        kind = _kind(hints.get(name, p.annotation), valid)
        if kind is None:
            known = str(valid.keys()).replace("torchlike.", "torch.")
            items = set(typing.get_args(p.annotation)) - {...}
            hint = ""
            if typing.get_origin(p.annotation) is tuple and len(items) == 1:
                (item,) = items
                hint = (
                    "We do not support Tuple inputs in schema. As a workaround, please try to use List instead. "
                    f"For example, {types.GenericAlias(list, item)}.\n\n"
                )
            fail(
                f"Parameter {name} has unsupported type {p.annotation}. {hint}The valid types are: {known}."
            )
        written = mutates_args == "unknown" or name in mutates_args
        if written and mutates_args != "unknown" and not str(kind).startswith("Tensor"):
            fail(
                f"Parameter {name} is in mutable_args but only Tensors or collections of Tensors can be mutated"
            )
        if written and str(kind).startswith("Tensor"):
            kind = str(kind).replace("Tensor", f"Tensor(a{index}!)", 1)
        parts.append(f"{kind} {name}{_default(name, p, fail)}")
    if mutates_args != "unknown":
        unknown = set(mutates_args) - seen
        if unknown:
            fail(
                f"{unknown} in mutates_args were not found in the custom op's signature. mutates_args should "
                "contain the names of all args that the custom op mutates, or just the string 'unknown' "
                "if you don't know."
            )
    if signature.return_annotation is signature.empty:
        fail("No return type annotation was provided. Please add one.")
    result = hints.get("return", signature.return_annotation)
    result = _tagged(signature, parts, mutates_args, listed(tags), result, fail)
    return f"{op_name or ''}({', '.join(parts)}) -> {result}"


def _tagged(
    signature: inspect.Signature,
    parts: list[str],
    mutates: Any,
    tags: list[Any],
    result: Any,
    fail: Any,
) -> str:
    """The result's type: with `Tag.inplace` and `Tag.out`, which of the arguments it is."""
    if Tag.inplace in tags and Tag.out in tags:
        raise AssertionError("torch.Tag.inplace and torch.Tag.out are mutually exclusive")
    if Tag.inplace in tags:
        return _in_place(signature, parts, mutates, _result(result, fail), fail)
    if Tag.out not in tags:
        return _result(result, fail)
    written = [part for part in parts if "!" in part.partition(" ")[0]]
    if any(
        "!" in part.partition(" ")[0]
        for part in parts[: parts.index("*") if "*" in parts else None]
    ):
        fail("torch.Tag.out requires mutable arguments to be keyword-only.")
    if any(not part.partition(" ")[0].endswith("!)") for part in written):
        fail("torch.Tag.out only supports mutable keyword-only Tensor arguments.")
    if not written:
        fail("torch.Tag.out requires at least one mutable keyword-only Tensor argument.")
    one = len(written) == 1 and result is _C.Tensor
    several = typing.get_origin(result) is tuple and len(written) > 1
    if not one and not (several and typing.get_args(result) == (_C.Tensor,) * len(written)):
        names = tuple(part.partition(" ")[2].partition("=")[0] for part in written)
        fail(
            "torch.Tag.out requires the return annotation to match the mutable keyword-only Tensor arguments "
            f"{names}."
        )
    kinds = ", ".join(part.partition(" ")[0] for part in written)
    return f"({kinds})" if several else kinds


def _in_place(
    signature: inspect.Signature, parts: list[str], mutates: Any, result: str, fail: Any
) -> str:
    """The result's type of an operator that returns its first argument, which it writes."""
    first = next(iter(signature.parameters.values()), None)
    if first is None or first.kind is not first.POSITIONAL_OR_KEYWORD:
        fail("torch.Tag.inplace requires a positional Tensor argument.")
    kind = parts[0].partition(" ")[0]
    if re.sub(r"\(.*?\)", "", kind) != "Tensor":
        fail("torch.Tag.inplace requires the first positional argument to be a Tensor.")
    if isinstance(mutates, str) or set(mutates) != {getattr(first, "name", "")}:
        shown = mutates if isinstance(mutates, str) else tuple(mutates)
        fail(
            "torch.Tag.inplace requires mutates_args to contain exactly the first positional argument, got "
            f"{shown}."
        )
    if result != "Tensor":
        fail("torch.Tag.inplace requires the return annotation to be torch.Tensor.")
    return kind


def _hints(function: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except Exception:  # annotations that cannot be evaluated are reported as they are
        return {}


def _default(name: str, p: inspect.Parameter, fail: Any) -> str:
    value = p.default
    if value is p.empty:
        return ""
    if value is None or isinstance(value, bool | int | float):
        return f"={value}"
    if isinstance(value, str):
        return f'="{value}"'
    if isinstance(value, _C.dtype):
        return f"={str(value).rpartition('.')[2]}"
    if isinstance(value, _C.device):
        return f'="{value}"'
    fail(
        f"Parameter {name} has an unsupported default value type {type(value)}. "
        "Please file an issue on GitHub so we can prioritize this."
    )
    return ""


def _result(annotation: Any, fail: Any) -> str:
    if annotation is None or annotation is type(None):
        return "()"
    found = _kind(annotation, _RESULTS)
    if found is not None:
        return found
    if typing.get_origin(annotation) is tuple:
        items = [_kind(a, _RESULTS) for a in typing.get_args(annotation)]
        if all(items):
            text = ", ".join(str(i) for i in items)
            return f"({text})"
    known = str(_RESULTS).replace("torchlike.", "torch.")
    fail(f"Return has unsupported type {annotation}. The valid types are: {known}.")
    return ""
