"""What compiling says where two types would have to be one; only of types that are known for sure."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torchlike
from torchlike.jit._accepted import schema_type
from torchlike.jit._types import parts_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_ANNOTATED: dict[Any, str] = {
    int: "int", float: "float", bool: "bool", str: "str", torchlike.Tensor: "Tensor", inspect.Parameter.empty: "Tensor",
}  # fmt: skip
_SURE = frozenset(["int", "float", "bool", "str", "Tensor"])


def differ(one: str | None, other: str | None) -> bool:
    """True for types of which neither may stand for the other."""
    return one in _SURE and other in _SURE and one != other


def of_branches(name: str, yes: str | None, no: str | None) -> str:
    """What is said of a variable that has one type after a branch's first side and another after its second."""
    if not differ(yes, no):
        return ""
    return f"Type mismatch: {name} is set to type {yes} in the true branch and type {no} in the false branch"


def of_annotation(name: str, said: str, found: str | None) -> str:
    """What is said of a variable with a type that gets a value of another."""
    if not differ(said, found) or (said == "float" and found == "int"):
        return ""
    return f"Variable '{name}' is annotated with type {said} but is being assigned to a value of type {found}"


def of_returns(before: list[str | None], found: str | None) -> str:
    """What is said of a function that returned a value of another type before."""
    other = next((k for k in before if differ(k, found)), None)
    if other is None:
        return ""
    return (
        f"Previous return statement returned a value of type {other} but this return statement returns a value "
        f"of type {found}"
    )


def of_choice(yes: str | None, no: str | None) -> str:
    """What is said of `a if test else b`."""
    if not differ(yes, no):
        return ""
    return f"if-expression's true branch has type {yes} but false branch has type {no}"


def of_keys(kinds: list[str | None]) -> str:
    """What is said of the keys of a dictionary that stands in code."""
    other = next((k for k in kinds if differ(kinds[0], k)), None)
    if other is None:
        return ""
    return (
        f"Dict keys must contain only a single type. Expected: {kinds[0]} but found {other} instead"
    )


def of_item(container: str | None, key: str | None, value: str | None) -> str:
    """What is said of a value that is stored in a container of others."""
    if not container:
        return ""
    parts = parts_of(container)
    if container.startswith("Tuple["):
        return f"{container} does not support subscripted assignment"
    wanted = {"List": ["int", *parts], "Dict": parts}.get(container.partition("[")[0], [])
    if len(wanted) != 2 or not (differ(wanted[0], key) or differ(wanted[1], value)):
        return ""
    name, of = ("el", parts[-1]) if differ(wanted[1], value) else ("idx", wanted[0])
    found = value if name == "el" else key
    return (
        "Arguments for call are not valid.\nThe following variants are available:\n\n"
        f"aten::_set_item\nCould not match type {found} to t in argument '{name}': Type variable 't' "
        f"previously matched to type {of} is matched to type {found}.\n"
    )


def of_new_item(container: str | None, method: str, value: str | None) -> str:
    """What is said of a value that a list of others is given."""
    if method not in ("append", "insert") or not container or not container.startswith("List["):
        return ""
    of = container[5:-1]
    if not differ(of, value):
        return ""
    place = "int idx, " if method == "insert" else ""
    result = "t[](a!)" if method == "append" else "()"
    return (
        f"\naten::{method}.t(t[](a!) self, {place}t(b -> *) el) -> {result}:\nCould not match type {value} to t in "
        f"argument 'el': Type variable 't' previously matched to type {of} is matched to type {value}.\n"
    )


def of_unpacking(found: int | None, wanted: int) -> str:
    """What is said of several names for a number of values."""
    if found is None or found == wanted:
        return ""
    if found < wanted:
        return f"need {wanted} values to unpack but found only {found}"
    return f"too many values to unpack: need {wanted} but found {found}"


def of_index(length: int, index: object) -> str:
    """What is said of an index of a tuple."""
    if not isinstance(index, int) or -length <= index < length:
        return ""
    return f"Tuple index out of range. Tuple is length {length} and index is {index}"


def of_new_attribute(name: str) -> str:
    """What is said of an attribute that `__init__` did not set."""
    return f"Tried to set nonexistent attribute: {name}. Did you forget to initialize it in __init__()?"


def of_attribute(kind: str | None, found: str | None) -> str:
    """What is said of an attribute that gets a value of another type."""
    if not differ(kind, found) or (kind == "float" and found == "int"):
        return ""
    return f"Wrong type for attribute assignment. Expected {kind} but got {found}"


def of_call(
    name: str,
    arguments: Mapping[str, inspect.Parameter],
    given: Mapping[str, str | None],
    result: str | None,
) -> str:
    """What is said of a call of a function of the user's with a value of another type; numbers of tensors are taken."""
    hints = {n: p.annotation for n, p in arguments.items()}
    if not all(isinstance(h, type) and h in _ANNOTATED for h in hints.values()):
        return ""
    wanted = {n: _ANNOTATED[h] for n, h in hints.items()}
    for argument, found in given.items():
        number = wanted[argument] in ("int", "float", "bool") and found in ("Tensor", "int")
        if number or not differ(wanted[argument], found):
            continue
        shown = ", ".join(f"{schema_type(k)} {n}" for n, k in wanted.items())
        return (
            f"\n{name}({shown}) -> {schema_type(result or 'Tensor')}:\nExpected a value of type "
            f"'{wanted[argument]}' for argument '{argument}' but instead found type '{found}'.\n"
        )
    return ""
