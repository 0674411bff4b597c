"""Functions compiled from their text."""

from __future__ import annotations

import ast
import itertools
import linecache
import math
import sys
import textwrap
import typing
from typing import Any

import torchlike
from torchlike.jit._errors import NotSupportedError

_number = itertools.count()
_SAID: dict[str, Any] = {
    "torch": torchlike,
    "Tensor": torchlike.Tensor,
    "math": math,
    **{
        n: getattr(typing, n)
        for n in ("Any", "Dict", "List", "NamedTuple", "Optional", "Tuple", "Union")
    },
}
"""Names that every text knows."""


class CompilationUnit:
    """Functions of one text, compiled as `jit.script` does, which can call each other.

    Args:
        lang: definitions of functions; nothing else may be in it.
    """

    def __init__(self, lang: str | None = None, _frames_up: int = 0) -> None:
        self._functions: dict[str, Any] = {}
        self._space: dict[str, Any] = {}
        if lang is not None:
            self.define(lang, _frames_up=_frames_up + 1)

    def define(self, lang: str, rcb: Any = None, _frames_up: int = 0) -> None:
        """Adds the functions of a text, whose names are those of where it is called.

        Raises:
            RuntimeError: for a name that there is already.
            NotSupportedError: for anything else than functions.
        """
        frame = sys._getframe(_frames_up + 1)
        found = functions_of(lang, frame, self._space)
        for name in found:
            if name in self._functions:
                raise RuntimeError(f"method '{name}' already defined.")
        self._space.update(found)
        for name, function in found.items():
            self._functions[name] = torchlike.jit.script(function)

    def find_function(self, name: str) -> Any:
        """The function of this name, or None."""
        return self._functions.get(name)

    def get_functions(self) -> list[Any]:
        """All functions."""
        return list(self._functions.values())

    def drop_all_functions(self) -> None:
        """Forgets all functions."""
        for name in self._functions:
            del self._space[name]
        self._functions.clear()

    def set_optimized(self, should_optimize: bool) -> None:
        """Accepted, without an effect."""

    def __getattr__(self, attr: str) -> Any:
        found = self.__dict__.get("_functions", {}).get(attr)
        if found is None:
            raise AttributeError(f"'CompilationUnit' has no attribute '{attr}'")
        return found


def functions_of(lang: str, frame: Any, known: dict[str, Any]) -> dict[str, Any]:
    """The functions that a text defines; what its names stand for is known, or found in a frame.

    Raises:
        NotSupportedError: for anything else than functions.
    """
    text = textwrap.dedent(lang)
    tree = ast.parse(text)
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef) or node.decorator_list:
            raise NotSupportedError(
                f"CompilationUnit: line {node.lineno} is no plain definition of a function"
            )
        _plain_defaults(node)
    file = f"<torchlike.CompilationUnit {next(_number)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    named = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    around = {n: s[n] for n in named for s in (frame.f_globals, frame.f_locals) if n in s}
    space = {**around, **_SAID, **known}
    # definitions alone: nothing of the text runs here
    exec(compile(tree, file, "exec"), space)
    return {n.name: space[n.name] for n in tree.body if isinstance(n, ast.FunctionDef)}


def _plain_defaults(node: ast.FunctionDef) -> None:
    """Refuses defaults and annotations that would be run."""
    arguments = node.args
    defaults = [d for d in (*arguments.defaults, *arguments.kw_defaults) if d is not None]
    if any(isinstance(n, ast.Call | ast.Lambda) for d in defaults for n in ast.walk(d)):
        raise NotSupportedError(f"CompilationUnit: a default of {node.name} is a call")
    named = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    for kind in (*(a.annotation for a in named), node.returns):
        if kind is not None and any(isinstance(n, ast.Call) for n in ast.walk(kind)):
            raise NotSupportedError(f"CompilationUnit: an annotation of {node.name} is a call")
