"""Expressions of sizes as archives write them, read without executing them."""

from __future__ import annotations

import ast
from typing import Any

from torchlike import CheckpointError
from torchlike.export._expressions import Expr

_LONGEST = 4096


def parse(text: str) -> Expr | int:
    """The expression in a text like `Add(Integer(1), Mul(Integer(3), Symbol('s0', integer=True)))`.

    Raises:
        CheckpointError: if it is none.
        NotImplementedError: for functions that are not supported.
    """
    if len(text) > _LONGEST:
        raise CheckpointError("an expression of a size is too long")
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise CheckpointError(f"{text[:60]!r} is no expression of a size") from None
    found = _expression(tree)
    return found if found.terms or found.quotient else found.constant


def _expression(node: ast.expr) -> Expr:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return Expr((), node.value)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise CheckpointError("an expression of a size is none")
    name = node.func.id
    if name == "Integer":
        return Expr((), _number(node.args[0]))
    if name == "Symbol":
        symbol = node.args[0]
        if not isinstance(symbol, ast.Constant) or not str(symbol.value).isidentifier():
            raise CheckpointError("an expression names a size by no name")
        return Expr((((str(symbol.value),), 1),), 0)
    parts = [_expression(a) for a in node.args]
    if name == "Add":
        total = Expr((), 0)
        for part in parts:
            total = _add(total, part)
        return total
    if name == "Mul":
        product = Expr((), 1)
        for part in parts:
            product = _multiply(product, part)
        return product
    if name == "Pow" and len(parts) == 2 and not parts[1].terms and 0 < parts[1].constant < 5:
        power = parts[0]
        for _ in range(parts[1].constant - 1):
            power = _multiply(power, parts[0])
        return power
    if name == "FloorDiv" and len(parts) == 2:
        return _divide(*parts)
    raise NotImplementedError(f"{name} in an expression of a size is not supported")


def _number(node: ast.expr) -> int:
    sign = 1
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node, sign = node.operand, -1
    if not isinstance(node, ast.Constant) or type(node.value) is not int:
        raise CheckpointError("an expression of a size has no whole number")
    return sign * node.value


def _add(a: Expr, b: Expr) -> Expr:
    if a.quotient is not None and b.quotient is not None:
        raise NotImplementedError("sums of quotients in a size are not supported")
    terms: dict[Any, int] = {}
    for names, factor in (*a.terms, *b.terms):
        terms[names] = terms.get(names, 0) + factor
    kept = tuple((n, f) for n, f in terms.items() if f)
    return Expr(kept, a.constant + b.constant, a.quotient or b.quotient)


def _multiply(a: Expr, b: Expr) -> Expr:
    if a.quotient is not None or b.quotient is not None:
        number, other = (a, b) if b.quotient is not None else (b, a)
        if number.terms or number.quotient or other.terms or other.constant or not other.quotient:
            raise NotImplementedError("products of quotients in a size are not supported")
        name, shift, divisor, factor = other.quotient
        return Expr((), 0, (name, shift, divisor, factor * number.constant))
    terms: dict[Any, int] = {}
    left = (*a.terms, ((), a.constant))
    right = (*b.terms, ((), b.constant))
    for names, factor in left:
        for more, scale in right:
            key = tuple(sorted((*names, *more)))
            terms[key] = terms.get(key, 0) + factor * scale
    constant = terms.pop((), 0)
    return Expr(tuple((n, f) for n, f in terms.items() if f), constant)


def _divide(a: Expr, b: Expr) -> Expr:
    simple = not b.terms and b.quotient is None and b.constant > 0 and a.quotient is None
    if not simple or len(a.terms) != 1 or len(a.terms[0][0]) != 1 or a.terms[0][1] != 1:
        raise NotImplementedError("this quotient in a size is not supported")
    return Expr((), 0, (a.terms[0][0][0], a.constant, b.constant, 1))
