"""Sizes while a run is watched: numbers that know how code asks for them."""

from __future__ import annotations

import ast
from typing import Any

__all__ = ["Shape", "Size"]


_ARITHMETIC = {
    "add": ast.Add, "sub": ast.Sub, "mul": ast.Mult, "floordiv": ast.FloorDiv, "mod": ast.Mod,
}  # fmt: skip


class Size(int):
    """A size that code asks for when it runs: a number now, and how it is had."""

    node: ast.expr

    @classmethod
    def of(cls, value: int, node: ast.expr) -> Size:
        """A number with the code that computes it."""
        made = cls(value)
        made.node = node
        return made

    def __neg__(self) -> Any:
        return Size.of(-int(self), ast.UnaryOp(ast.USub(), self.node))

    def __truediv__(self, other: Any) -> Any:
        return int(self) / other

    def __reduce__(self) -> Any:
        return int, (int(self),)


def _number(value: Any) -> ast.expr:
    return value.node if isinstance(value, Size) else ast.Constant(int(value))


def _operation(name: str, kind: type[ast.operator]) -> None:
    plain, reverse = getattr(int, f"__{name}__"), getattr(int, f"__r{name}__")

    def forward(self: Size, other: Any) -> Any:
        if not isinstance(other, int) or isinstance(other, bool):
            return plain(int(self), other)
        return Size.of(plain(int(self), int(other)), ast.BinOp(self.node, kind(), _number(other)))

    def backward(self: Size, other: Any) -> Any:
        if not isinstance(other, int) or isinstance(other, bool):
            return reverse(int(self), other)
        return Size.of(reverse(int(self), int(other)), ast.BinOp(_number(other), kind(), self.node))

    setattr(Size, f"__{name}__", forward)
    setattr(Size, f"__r{name}__", backward)


for _name, _kind in _ARITHMETIC.items():
    _operation(_name, _kind)


class Shape(tuple[int, ...]):
    """A shape whose numbers are sizes of the run."""

    def numel(self) -> int:
        """The number of elements."""
        count: int = 1
        for n in self:
            count = n * count
        return count

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        return Shape(found) if isinstance(key, slice) else found
