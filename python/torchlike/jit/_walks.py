"""What compiling unrolls: the parts and tensors of a module, and pairs that become dictionaries."""

from __future__ import annotations

import ast
from typing import Any

from torchlike.jit import _types
from torchlike.jit._parts_of_code import _member, call
from torchlike.jit._scope import Known, Part, Run, Several

__all__ = ["WALKS", "dictionary", "walked"]

WALKS = frozenset(
    f"{named}{what}"
    for named in ("", "named_")
    for what in ("children", "modules", "parameters", "buffers")
)


def walked(compiler: Any, part: Part, method: str, node: ast.AST) -> Several:
    """What a method of a module that walks it yields."""
    what = method.removeprefix("named_")
    found = []
    for path, value in getattr(part.module, f"named_{what}")():
        owner, (*above, last) = part, path.split(".")
        for name in above:
            owner = Part(_member(owner.node, name), owner.module._modules[name])
        if what in ("children", "modules"):
            item = Part(_member(owner.node, last), value) if path else part
        else:
            item = compiler.of_part(owner, last, node)
        found.append(Several([Known(path), item]) if method != what else item)
    return Several(found)


def dictionary(compiler: Any, node: ast.Call) -> Run:
    """A call of `dict`: of nothing, of a dictionary, of pairs, or of keywords."""
    given = compiler.arguments(node)
    if len(given) > 1:
        raise compiler.fail(node, f"dict expected at most 1 argument, got {len(given)}")
    pairs: list[Any] = []
    if given:
        rows = compiler.unrolled(given[0], node)
        if rows is None:
            return _copied(compiler, given[0], node)
        pairs = [compiler._spread(row) for row in rows]
        if any(pair is None or len(pair) != 2 for pair in pairs):
            raise compiler.fail(node, "dict() of what are no pairs")
    keys = [compiler.node(key, node) for key, _ in pairs]
    values = [compiler.node(value, node) for _, value in pairs]
    keys += [ast.Constant(k.arg) for k in node.keywords]
    values += [compiler.run(k.value) for k in node.keywords]
    return Run(ast.Dict(keys, values), None if keys else "Dict[str, Tensor]")


def _copied(compiler: Any, given: Any, node: ast.Call) -> Run:
    """`dict` of a dictionary or a list of pairs that only a run has."""
    if node.keywords:
        raise compiler.fail(node, "dict() of a value of the run, with keywords")
    source, kind = compiler.node(given, node), getattr(given, "kind", None)
    if isinstance(source, ast.List) and any(
        isinstance(e, ast.Tuple) and len(e.elts) != 2 for e in source.elts
    ):
        raise compiler.fail(node, "dict() of what are no pairs")
    if isinstance(source, ast.Call) and isinstance(source.func, ast.Name):
        # `zip` and `enumerate` of lists of a run are walked by loops alone.
        raise compiler.fail(node, f"dict() of {source.func.id}()")
    if kind and kind.startswith("List[Tuple["):
        kind = f"Dict[{', '.join(_types.parts_of(_types.parts_of(kind)[0]))}]"
    elif kind and not kind.startswith("Dict["):
        raise compiler.fail(node, f"'{kind}' object is not iterable")
    return Run(call("torch.dict", [source]), kind)
