"""The types of what operators give, by their schemas."""

from __future__ import annotations

import ast
from typing import Any

import torchlike
from torchlike.jit._parts_of_code import _kind
from torchlike.jit._scope import Run
from torchlike.jit._types import parts_of

__all__ = ["NAMES", "Named", "of_call", "part"]

_TEXTS = {
    "Tensor": "Tensor",
    "int": "int",
    "SymInt": "int",
    "float": "float",
    "bool": "bool",
    "str": "str",
    "ScalarType": "int",
    "Device": "Device",
}
_WIDER = {"int": ("float", "Scalar"), "bool": ("int", "float", "Scalar"), "float": ("Scalar",)}
_NOT_SAID = {
    **dict.fromkeys((f"max_pool{n}d_with_indices" for n in (1, 2, 3)), "Tuple[Tensor, Tensor]"),
    **dict.fromkeys((f"adaptive_max_pool{n}d" for n in (1, 2, 3)), "Tuple[Tensor, Tensor]"),
    **dict.fromkeys(("dim", "nelement"), "int"),
    **dict.fromkeys(("tolist", "item"), None),
    **dict.fromkeys(("is_grad_enabled", "is_complex", "is_conj", "is_neg", "is_signed"), "bool"),
    **dict.fromkeys(("is_coalesced", "is_pinned", "is_inference"), "bool"),
    **dict.fromkeys(("get_autocast_dtype", "element_size", "get_device", "storage_offset"), "int"),
    **dict.fromkeys(("dense_dim", "sparse_dim", "_nnz", "q_zero_point"), "int"),
    **dict.fromkeys(("coalesce", "indices", "values", "dequantize", "int_repr"), "Tensor"),
    "q_scale": "float",
}


class Named(str):
    """The type of a tuple whose parts have names, as the results of `torch.max(x, dim=0)` have."""

    fields: tuple[str, ...]

    def __new__(cls, text: str, fields: tuple[str, ...]) -> Named:
        made = super().__new__(cls, text)
        made.fields = fields
        return made


NAMES = frozenset(
    "values indices min max Q R LU P L U S Vh V D info pivots mantissa exponent sign logabsdet eigenvalues "  # noqa: SIM905
    "eigenvectors solution residuals rank hist".split()
)
"""Names that parts of results have."""


def part(of: Run, name: str) -> Run | None:
    """The part of a result that has a name, by its place: not everything that gives results names their parts."""
    if not isinstance(of.kind, Named) or name not in of.kind.fields:
        return None
    at = of.kind.fields.index(name)
    return Run(ast.Subscript(of.node, ast.Constant(at), ast.Load()), parts_of(of.kind)[at])


def _text(kind: str) -> str | None:
    """A type of a schema as TorchScript writes it."""
    base, bracket, rest = kind.partition("[")
    found = _TEXTS.get(base.rstrip("?"))
    if found is None or (bracket and rest != "]"):
        return None
    found = f"Optional[{found}]" if base.endswith("?") else found
    return f"List[{found}]" if bracket else found


def _takes(argument: Any, kind: str | None) -> bool:
    """Whether an argument of a schema takes a value of a type; None is any."""
    if kind is None:
        return True
    if kind == "NoneType":
        return bool(argument.optional)
    if kind.startswith("Optional["):
        return _takes(argument, kind[9:-1])
    base = argument.base
    if argument.is_list:
        alone = "[]" not in argument.spelled and "[" in argument.spelled
        inner = kind[5:-1] if kind.startswith("List[") else kind if alone else ""
        return _text(base) == inner or (inner == "int" and base == "float")
    return _text(base) == kind or base in _WIDER.get(kind, ()) or base not in _TEXTS


def _fits(schema: Any, args: list[Any], keywords: dict[str, Any]) -> bool:
    """Whether arguments of these types are those of a schema."""
    if any(a.is_out for a in schema.arguments):
        return False
    positional = [a for a in schema.arguments if not a.kwarg_only]
    if positional and positional[-1].is_list and len(args) >= len(positional):
        # Sizes may stand side by side: `x.view(2, 3)`.
        last = args[len(positional) - 1 :]
        if all(_kind(v) in ("int", None) for v in last):
            args = [*args[: len(positional) - 1], None]
    named = {a.name: a for a in schema.arguments[len(args) :]}
    if len(args) > len(positional) or not keywords.keys() <= named.keys():
        return False
    given = {*(a.name for a in positional[: len(args)]), *keywords}
    if any(a.name not in given and not a.has_default for a in schema.arguments):
        return False
    pairs = [*zip(positional, args, strict=False), *((named[n], v) for n, v in keywords.items())]
    return all(_takes(a, _kind(v)) for a, v in pairs)


def of_call(operator: str, args: list[Any], keywords: dict[str, Any]) -> str | None:
    """The type of a call of an operator with these values; None where it is not known."""
    if operator in _NOT_SAID:
        return _NOT_SAID[operator]
    space, _, name = operator.rpartition("::")
    packet = getattr(getattr(torchlike.ops, space or "aten"), name, None)
    for overload in packet.overloads() if packet is not None else ():
        try:
            schema = getattr(packet, overload)._schema
        except (AttributeError, RuntimeError):
            continue
        if not _fits(schema, args, keywords):
            continue
        kinds = [_text(r.spelled) for r in schema.returns]
        if not kinds or None in kinds:
            return None
        if len(kinds) == 1:
            return kinds[0]
        text = f"Tuple[{', '.join(k or '' for k in kinds)}]"
        names = tuple(r.name for r in schema.returns)
        return Named(text, names) if all(names) else text
    return None
