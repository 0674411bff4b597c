"""What compiled code sees while it is compiled: values that are known, and those that are known when it runs."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import typing
from typing import Any

import torchlike
from torchlike.jit._errors import NotSupportedError


@dataclasses.dataclass
class Known:
    """A value that compiling knows: a constant, a function, a class, a module of Python."""

    value: Any


@dataclasses.dataclass
class Run:
    """A value of the run: what computes it, and its type where that is known."""

    node: ast.expr
    kind: str | None = None


@dataclasses.dataclass
class Part:
    """A module: where the code finds it, and itself."""

    node: ast.expr
    module: Any


def getter_of(name: str) -> str:
    """The method that the getter of a property is in code."""
    return f"__{name}_getter"


def setter_of(name: str) -> str:
    """The method that the setter of a property is in code."""
    return f"__{name}_setter"


def property_of(name: str) -> str | None:
    """The property whose getter a method of code is, if it is one."""
    attribute = name[2:].removesuffix("_getter")
    return attribute if name == getter_of(attribute) else None


def scripted_methods(module: Any) -> Any:
    """The methods by name of a module that is TorchScript already; none for others."""
    spec = module.__dict__.get("_spec")
    return {} if spec is None else spec.methods


@dataclasses.dataclass
class Method:
    """A method of a module."""

    part: Part
    name: str
    function: Any


@dataclasses.dataclass
class Of:
    """A method of a value of the run."""

    node: ast.expr
    name: str
    kind: str | None


@dataclasses.dataclass
class Super:
    """What `super()` gives: the methods of the classes that one derives from."""

    below: Any


@dataclasses.dataclass
class Several:
    """Values side by side, some of which are modules."""

    items: list[Any]


@dataclasses.dataclass
class Neither:
    """A name that stands for one thing on one side of a branch and for another, or nothing, on the other."""

    said: str = ""


class Source:
    """The text of a function of Python: its tree, and what its names stand for."""

    def __init__(self, function: Any) -> None:
        self.function = inspect.unwrap(function)
        try:
            lines, self.first = inspect.getsourcelines(self.function)
            self.file = inspect.getsourcefile(self.function) or "?"
        except (OSError, TypeError) as e:
            raise NotSupportedError(
                f"Can't get source for {function!r}. TorchScript requires source access in order to "
                f"carry out compilation: {e}"
            ) from None
        self.lines = lines
        tree = _tree(_dedented(lines)).body[0]
        if not isinstance(tree, ast.FunctionDef):
            raise NotSupportedError(
                "Expected a single top-level function", f"{self.file}:{self.first}"
            )
        _say_types(tree)
        self.tree = tree
        code = self.function.__code__
        cells = self.function.__closure__ or ()
        self.names = {
            n: c.cell_contents for n, c in zip(code.co_freevars, cells, strict=True) if _is_full(c)
        }

    def place(self, node: ast.AST) -> str:
        """File, line and text of a node."""
        number = getattr(node, "lineno", 1)
        text = self.lines[number - 1].rstrip() if number <= len(self.lines) else ""
        column = getattr(node, "col_offset", 0)
        width = len(text) - len(text.lstrip())
        return f'  File "{self.file}", line {self.first + number - 1}\n{text}\n{" " * max(column, width)}~ <--- HERE'

    def lookup(self, name: str) -> Any:
        """What a name stands for outside of the function.

        Raises:
            KeyError: if it stands for nothing.
        """
        import builtins

        if name in self.names:
            return self.names[name]
        for scope in (self.function.__globals__, vars(builtins)):
            if name in scope:
                return scope[name]
        return _SAID[name]


# Names that comments on types may use without an import.
_SAID: dict[str, Any] = {
    n: getattr(typing, n) for n in ("Any", "Dict", "List", "Optional", "Tuple", "Union")
} | {"Tensor": torchlike.Tensor}


def _dedented(lines: list[str]) -> str:
    """A function's text without the indent of its first line; comments and texts may stand further left."""
    width = len(lines[0]) - len(lines[0].lstrip())
    # An empty line is shorter than the indent, and counts as a line all the same.
    return "".join(line if line[:width].strip() else line[width:] or "\n" for line in lines)


def _tree(text: str) -> ast.Module:
    """The tree of a text, with the comments that say types."""
    try:
        return ast.parse(text, type_comments=True)
    except SyntaxError:  # a comment that begins like one of those
        return ast.parse(text)


def _say_types(tree: ast.FunctionDef) -> None:
    """Makes annotations of the comments that say types: of the whole function, or of each argument."""
    args = [*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs]
    for argument in args:
        if argument.type_comment and argument.annotation is None:
            argument.annotation = ast.parse(argument.type_comment, mode="eval").body
    if not tree.type_comment:
        return
    given = tree.type_comment.split("->") + ["..."]
    said = ast.parse("->".join(given[:2]), mode="func_type")
    whole = len(said.argtypes) == 1 and ast.unparse(said.argtypes[0]) == "..."
    if said.argtypes and not whole:
        for argument, kind in zip(args[-len(said.argtypes) :], said.argtypes, strict=False):
            argument.annotation = argument.annotation or kind
    if len(given) > 2:
        tree.returns = tree.returns or said.returns


def _is_full(cell: Any) -> bool:
    """False for the variable of a function around that has no value yet."""
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True
