"""Modules and functions that are TorchScript already, as parts of what is compiled now."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from torchlike.jit._closures import path_of
from torchlike.jit._forward_hooks import hook_of
from torchlike.jit._function import Function
from torchlike.jit._grammar import parse
from torchlike.jit._parts_of_code import name as dotted
from torchlike.jit._program import ModuleBuilder
from torchlike.jit._scope import Run
from torchlike.jit._unit import Class

if TYPE_CHECKING:
    from torchlike.jit._program import Program
    from torchlike.jit._unit import Unit


class Adoption(ast.NodeTransformer):
    """The code of another unit as part of a program, under names that are free there."""

    def __init__(self, program: Program, unit: Unit) -> None:
        self.program, self.unit = program, unit
        self._names: dict[str, str] = {}
        self._constants: dict[tuple[str, ...], int] = {}

    def name(self, old: str) -> str:
        """The name that a class or function of the other unit has in the program, which gets its code.

        Raises:
            CompilationUnitError: if the other unit has nothing of the name.
        """
        known = self._names.get(old)
        if known is not None:
            return known
        found = self.unit.find(old) or self.unit.get_class(old)
        new = self._names[old] = self.program.fresh(old)
        prefix, _, last = new.rpartition(".")
        tree: Any = self.visit(parse(found.text, old).body[0])
        tree.name = "_"
        alike = self.program.adopted.setdefault((old, ast.unparse(tree)), new)
        if alike != new:
            self._names[old] = alike
            return alike
        tree.name = last
        self.program.unit.define(prefix, ast.unparse(tree) + "\n")
        if isinstance(found, Class):
            self.program.unit.get_class(new).made = found.made
        return new

    def result(self, function: Function) -> str | None:
        """The type of a function's result."""
        kind = function.tree.returns
        return None if kind is None else ast.unparse(self.visit(kind))

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """A dotted name, of the program."""
        path = path_of(node)
        if path and path[0] == "CONSTANTS" and len(path) == 2:
            return dotted(f"CONSTANTS.c{self._constant(path)}")
        if path and path[0] == "__torch__":
            for end in range(len(path), 1, -1):
                old = ".".join(path[:end])
                if self.unit.find(old) is not None:
                    return dotted(".".join([self.name(old), *path[end:]]))
        return self.generic_visit(node)

    def _constant(self, path: tuple[str, ...]) -> int:
        known = self._constants.get(path)
        if known is None:
            constants = self.program.unit.constants
            known = self._constants[path] = len(constants)
            constants.append(self.unit.value(path))
        return known


class AdoptedBuilder(ModuleBuilder):
    """What compiles a module that is TorchScript: its code is taken as it is."""

    def __init__(self, program: Program, module: Any) -> None:
        super().__init__(program, module)
        self._adoption = program.adoption(module._unit)
        self.spec = program.unit.get_class(self._adoption.name(module._spec.name))
        held = {"training", *module._parameters, *module._buffers, *module._modules}
        self.attributes = {n: k for n, k in self.spec.attributes.items() if n not in held}
        self._name, self._hooked = self.spec.name, True
        self.pre_hooks = [hook_of(self.spec, n) for n in self.spec.pre_hooks]
        self.hooks = [hook_of(self.spec, n) for n in self.spec.hooks]

    def compiled(self, method: str, caller: Any, node: ast.AST) -> str | None:
        """The type of a method's result."""
        found = self.module._spec.methods.get(method)
        if found is None:
            raise caller.fail(
                node, f"Module '{self.module.original_name}' has no method '{method}'"
            )
        return self._adoption.result(found)

    def tree_of(self, method: str) -> ast.FunctionDef:
        """A method as code."""
        assert self.spec is not None
        return self.spec.methods[method].tree

    def chosen(self, method: str, kinds: list[str | None], caller: Any, node: ast.AST) -> str:
        """The method: its code has no others of the name."""
        return method

    def attribute(
        self, compiler: Any, name: str, value: Any, place: ast.expr, node: ast.AST
    ) -> Any:
        """An attribute: a value of the module."""
        kind = self.attributes.get(name)
        if kind is None:
            raise compiler.fail(
                node, f"Module '{self.module.original_name}' has no attribute '{name}'"
            )
        return Run(
            place, kind.removeprefix("Final[").removesuffix("]") if "Final[" in kind else kind
        )
