"""Reading an archive's code: sizes and depth are looked at first, then every node is one of a list. Nothing is run."""

from __future__ import annotations

import ast
import io
import tokenize

from torchlike.jit._errors import CompilationUnitError

MAX_TEXT = 64 << 20
"""Bytes of one file of code."""
MAX_DEPTH = 200
"""Brackets within brackets, and levels of indentation."""
MAX_NODES = 5_000_000

_NODES: tuple[type[ast.AST], ...] = (
    ast.Module, ast.ClassDef, ast.FunctionDef, ast.arguments, ast.arg, ast.Return, ast.Assign, ast.AugAssign,
    ast.AnnAssign, ast.For, ast.While, ast.If, ast.Pass, ast.Break, ast.Continue, ast.Raise, ast.Assert, ast.Expr,
    ast.Import, ast.alias, ast.With, ast.withitem, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Dict, ast.List,
    ast.Tuple, ast.Compare, ast.Call, ast.keyword, ast.Constant, ast.Attribute, ast.Subscript, ast.Name, ast.Slice,
    ast.ListComp, ast.DictComp, ast.comprehension, ast.expr_context, ast.boolop, ast.operator, ast.unaryop, ast.cmpop,
)  # fmt: skip


def _refuse(name: str, why: str) -> CompilationUnitError:
    return CompilationUnitError(f"the code of '{name}' is not TorchScript: {why}")


def _measure(text: str, name: str) -> None:
    """Refuses text whose brackets are nested too deep, before a parser that recurses sees it."""
    if "\0" in text:
        raise _refuse(name, "it has a null character")
    depth = 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.OP:
                depth += (token.string in "([{") - (token.string in ")]}")
            elif token.type == tokenize.INDENT:
                depth += 1
            elif token.type == tokenize.DEDENT:
                depth -= 1
            if depth > MAX_DEPTH:
                raise _refuse(name, f"line {token.start[0]} is nested deeper than {MAX_DEPTH}")
    except (tokenize.TokenError, IndentationError, SyntaxError) as e:
        raise _refuse(name, str(e)) from None


def _check(tree: ast.AST, name: str) -> None:
    """Refuses nodes that are not in the list, and trees that are too large or too deep."""
    count = 0
    stack = [(tree, 0)]
    while stack:
        node, depth = stack.pop()
        count += 1
        line = getattr(node, "lineno", 0)
        if not isinstance(node, _NODES):
            raise _refuse(name, f"line {line} has a {type(node).__name__}")
        if depth > 4 * MAX_DEPTH or count > MAX_NODES:
            raise _refuse(name, f"line {line} is part of an expression that is too large")
        if isinstance(node, ast.Constant) and isinstance(node.value, bytes):
            raise _refuse(name, f"line {line} has bytes")
        stack.extend((child, depth + 1) for child in ast.iter_child_nodes(node))


def parse(text: str, name: str) -> ast.Module:
    """The tree of a file of code.

    Raises:
        CompilationUnitError: if it is too large, nested too deep, no Python, or has nodes that TorchScript has not.
    """
    if len(text) > MAX_TEXT:
        raise _refuse(name, f"it has {len(text)} characters")
    _measure(text, name)
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as e:
        raise _refuse(name, f"{type(e).__name__}: {e}") from None
    _check(tree, name)
    return tree
