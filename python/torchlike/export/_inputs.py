"""What the caller of a program gives, held against what it was traced for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torchlike
from torchlike.export.graph_signature import ConstantArgument, ExportGraphSignature, InputKind
from torchlike.utils import _pytree as pytree

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchlike.export.exported_program import _Sizes
    from torchlike.fx.graph import Graph


class Mismatch(NamedTuple):
    """What an input should be, and is not."""

    leaf: int
    dim: int | None
    relation: str
    wanted: Any
    got: Any


def mismatches(
    signature: ExportGraphSignature, graph: Graph, sizes: _Sizes, leaves: list[Any]
) -> Iterator[Mismatch]:
    """What sizes and constant values of the caller's inputs are not as the program was traced for."""
    specs = [s for s in signature.input_specs if s.kind is InputKind.USER_INPUT]
    nodes = {n.name: n for n in graph.nodes if n.op == "placeholder"}
    seen: dict[str, int] = {}
    for i, (spec, leaf) in enumerate(zip(specs, leaves, strict=True)):
        if isinstance(spec.arg, ConstantArgument):
            if leaf != spec.arg.value:
                yield Mismatch(i, None, "==", spec.arg.value, leaf)
            continue
        example = nodes[spec.arg.name].meta["val"]
        varying = {p.dim: p for p in sizes.places if p.leaf == i}
        if not isinstance(leaf, torchlike.Tensor):
            yield Mismatch(i, None, "tensor", example, leaf)
            continue
        if leaf.dim() != example.dim():
            yield Mismatch(i, None, "dimensions", example, leaf)
            continue
        for dim, size in enumerate(leaf.shape):
            place = varying.get(dim)
            if place is None:
                if size != example.shape[dim]:
                    yield Mismatch(i, dim, "==", example.shape[dim], size)
                continue
            value, rest = divmod(size - place.offset, place.factor)
            variable = sizes.variables[place.variable]
            if value > variable.high:
                yield Mismatch(i, dim, "<=", variable.high * place.factor + place.offset, size)
            elif value < variable.low:
                yield Mismatch(i, dim, ">=", variable.low * place.factor + place.offset, size)
            elif rest:
                yield Mismatch(i, dim, "==", "a multiple", size)
            elif seen.setdefault(place.variable, value) != value:
                known = seen[place.variable] * place.factor + place.offset
                yield Mismatch(i, dim, "==", known, size)


def check_guards(
    signature: ExportGraphSignature, graph: Graph, sizes: _Sizes, leaves: list[Any]
) -> None:
    """Checks sizes and constant values of the caller's inputs, as the module of a program does.

    Raises:
        AssertionError: with what does not hold.
    """
    specs = [s for s in signature.input_specs if s.kind is InputKind.USER_INPUT]
    for found in mismatches(signature, graph, sizes, leaves):
        name = specs[found.leaf].arg.name
        if found.relation in ("tensor", "dimensions"):
            raise AssertionError(
                f"Guard failed: {name} is a tensor of {found.wanted.dim()} dimensions"
            )
        if found.dim is None:
            raise AssertionError(f"Guard failed: {name} == {found.wanted!r}")
        raise AssertionError(
            f"Guard failed: {name}.size()[{found.dim}] {found.relation} {found.wanted}"
        )


def check_call(
    signature: ExportGraphSignature, graph: Graph, sizes: _Sizes, leaves: list[Any], spec: Any
) -> None:
    """Checks the same as unflattened modules do, which name arguments of a call of this structure.

    Raises:
        RuntimeError: with what does not hold.
    """
    paths = [p for p, _ in pytree.tree_leaves_with_path(pytree.tree_unflatten(leaves, spec))]
    for found in mismatches(signature, graph, sizes, leaves):
        first, *rest = paths[found.leaf]
        named = f"*args{pytree.keystr(rest)}"
        if first.idx:
            named = f"{rest[0].key!r}{pytree.keystr(rest[1:])}"
        text = f"Expected input at {named}"
        if found.relation == "tensor":
            raise RuntimeError(f"{text} to be a tensor, but got {type(found.got)}")
        if found.relation == "dimensions":
            raise RuntimeError(
                f"Unexpected number of dimensions in input at {named}.shape (expected "
                f"{found.wanted.shape}, got {found.got.shape})"
            )
        text += "" if found.dim is None else f".shape[{found.dim}]"
        relation = "equal to" if found.relation == "==" else found.relation
        text += f" to be {relation} {found.wanted}, but got {found.got}"
        if relation == "equal to" and found.dim is not None:
            text += (
                ". If you meant for this dimension to be dynamic, please re-export and specify "
                "dynamic_shapes (e.g. with Dim.DYNAMIC)"
            )
        raise RuntimeError(text)
