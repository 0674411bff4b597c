"""Compiling statements: what is known decides branches and unrolls loops; the rest is written down."""

from __future__ import annotations

import ast
from collections import Counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from torchlike.jit import _marks, _mismatches, _types
from torchlike.jit._bodies import (
    _LEAVES,
    _always_raises,
    _common,
    _ends,
    _has_code,
    _is_raise,
    _leaves,
    _raise,
    _stored,
    _tests_none,
    fits,
    kinds_of,
)
from torchlike.jit._errors import UnsupportedNodeError
from torchlike.jit._narrowing import Narrowing, narrowing
from torchlike.jit._parts_of_code import _kind, call, count_of
from torchlike.jit._plain_statements import PlainStatements
from torchlike.jit._scope import Known, Method, Neither, Part, Run, Several, Source

if TYPE_CHECKING:
    from collections.abc import Mapping


class Statements(PlainStatements):
    """Compiles the body of one function."""

    def __init__(
        self,
        program: Any,
        source: Source,
        part: Part | Run | None,
        fixed: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        super().__init__(program, source, part)
        self.fixed = fixed
        self.counts: Counter[str] = Counter()
        self.loops = 0
        self.kinds: dict[str, str] = {}
        self.around: dict[str, str] = {}
        self.returns: str | None = None
        self.returned: list[str | None] = []

    def function(self, text_name: str) -> tuple[ast.FunctionDef, str | None]:
        """The function as code, and the type of its result where that is said."""
        tree = self.source.tree
        self._count(tree)
        arguments = self._arguments(tree.args)
        if tree.returns is not None and not self._says_nothing(tree.returns):
            self.returns = self.annotation(tree.returns, "return")
        if _marks.mark_of(self.source.function) == _marks.UNUSED:
            body = self._unused()
        else:
            body = self.block(tree.body)
        if body and _always_raises(body) and not any(isinstance(n, ast.Return) for n in body):
            body = [
                *body,
                ast.Return(call("uninitialized", [_types.node_of(self.returns or "Tensor")])),
            ]
        returns = (
            None
            if self.returns is None
            else _types.node_of("NoneType" if self.returns == "None" else self.returns)
        )
        made = ast.FunctionDef(text_name, arguments, body or [ast.Pass()], [], returns)
        return ast.fix_missing_locations(made), self.returns or self._result_kind()

    def _result_kind(self) -> str | None:
        """The type of what the function gives, where nothing says it and all that is given has one."""
        return self.returned[0] if len(set(self.returned)) == 1 else None

    def _says_nothing(self, node: ast.AST) -> bool:
        """True for annotations by which the library tells nothing."""
        return (
            isinstance(node, ast.Name)
            and node.id == "Any"
            and self.program.is_own(self.source.function)
            and not isinstance(self.part, Run)
        )

    def _unused(self) -> list[ast.stmt]:
        name = self.source.function.__name__
        return [
            _raise(
                f"The method '{name}' was marked with @torch.jit.unused and is not run",
                "builtins.NotImplementedError",
            )
        ]

    def _count(self, tree: ast.FunctionDef) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self.counts[node.id] += 1
        for argument in (*tree.args.args, *tree.args.kwonlyargs):
            self.counts[argument.arg] += 1

    def _arguments(self, given: ast.arguments) -> ast.arguments:
        if given.vararg or given.kwarg:
            raise self.fail(
                given.vararg or given.kwarg or given,
                "Compiled functions can't take variable number of arguments or use keyword-only "
                "arguments with defaults",
            )
        args = list(given.args)
        made: list[ast.arg] = []
        defaults: list[ast.expr] = []
        if self.part is not None:
            first = args.pop(0)
            itself = ast.Name("self", ast.Load())
            of = self.part
            self.locals[first.arg] = Part(itself, of.module) if isinstance(of, Part) else of
            made.append(ast.arg("self"))
        both = list(given.defaults) + [d for d in given.kw_defaults if d is not None]
        whole = args + list(given.kwonlyargs)
        for i, argument in enumerate(whole):
            at = i - (len(whole) - len(both))
            default = both[at] if at >= 0 else None
            if argument.arg in self.fixed:
                self.locals[argument.arg] = Known(self.fixed[argument.arg])
                continue
            kind = self._argument_kind(argument, default)
            self.locals[argument.arg] = Run(ast.Name(argument.arg, ast.Load()), kind)
            self.kinds[argument.arg] = kind
            made.append(ast.arg(argument.arg, _types.node_of(kind)))
            if default is not None:
                defaults.append(self._default(argument.arg, kind, default))
        return ast.arguments([], made, None, [], [], None, defaults)

    def _default(self, argument: str, kind: str, node: ast.expr) -> ast.expr:
        """The value of an argument that is not given, which is that of the function itself."""
        import inspect

        value = inspect.signature(self.source.function).parameters[argument].default
        if kind == "float" and isinstance(value, int):
            value = float(value)
        if kind.startswith(("List", "Optional[List")) and isinstance(value, tuple):
            value = list(value)
        return self.constant(value, node)

    def _argument_kind(self, argument: ast.arg, default: ast.AST | None) -> str:
        if argument.annotation is None or self._says_nothing(argument.annotation):
            nothing = isinstance(default, ast.Constant) and default.value is None
            if (
                isinstance(default, ast.Constant)
                and argument.annotation is not None
                and not nothing
            ):
                return type(default.value).__name__
            return "Optional[Tensor]" if nothing and argument.annotation is not None else "Tensor"
        return self.annotation(argument.annotation, argument.arg)

    # Blocks

    def block(self, nodes: list[ast.stmt]) -> list[ast.stmt]:
        """The code of statements; what follows a certain end is left out."""
        out: list[ast.stmt] = []
        for node in nodes:
            made = self.statement(node)
            out.extend(made)
            if made and (isinstance(made[-1], _LEAVES) or _is_raise(made[-1]) or _ends(made[-1])):
                break
        return out

    def statement(self, node: ast.stmt) -> list[ast.stmt]:
        """The code of one statement."""
        method = getattr(self, "_do_" + type(node).__name__, None)
        if method is None:
            called = _STATEMENTS.get(type(node).__name__, type(node).__name__ + " statements")
            raise UnsupportedNodeError(f"{called} aren't supported", self.source.place(node))
        return method(node)

    def _do_Pass(self, node: ast.Pass) -> list[ast.stmt]:
        return []

    def _do_Break(self, node: ast.Break) -> list[ast.stmt]:
        return [ast.Break()] if self.loops == 0 else self._no_jump(node)

    def _do_Continue(self, node: ast.Continue) -> list[ast.stmt]:
        return [ast.Continue()] if self.loops == 0 else self._no_jump(node)

    def _no_jump(self, node: ast.stmt) -> list[ast.stmt]:
        raise self.fail(node, "break and continue in a loop over modules aren't supported")

    def _do_Global(self, node: ast.Global) -> list[ast.stmt]:
        raise self.fail(node, "global variables aren't supported")

    def _do_Expr(self, node: ast.Expr) -> list[ast.stmt]:
        if isinstance(node.value, ast.Constant):
            return []
        value = self.visit(node.value)
        return [] if isinstance(value, Known) else [ast.Expr(self.node(value, node))]

    def _do_Return(self, node: ast.Return) -> list[ast.stmt]:
        if node.value is None:
            self.returned.append("NoneType")
            return [ast.Return(None)]
        value = self.visit(node.value)
        if self.returns == "float" and isinstance(value, Known) and isinstance(value.value, int):
            value = Known(float(value.value))
        found = _kind(value)
        if self.returns is None:
            self.refuse(_mismatches.of_returns(self.returned, found), node)
        self.returned.append(found)
        if self.returns and found and found != self.returns and not fits(found, self.returns):
            raise self.fail(
                node,
                f"Return value was annotated as having type {self.returns} but is actually of type {found}",
            )
        return [ast.Return(self.node(value, node))]

    # Names

    def _do_Assign(self, node: ast.Assign) -> list[ast.stmt]:
        value = self.visit(node.value)
        out: list[ast.stmt] = []
        for target in node.targets:
            out.extend(self.assign(target, value, node))
            if len(node.targets) > 1 and isinstance(target, ast.Name):
                value = self.locals[target.id]
        return out

    def assign(self, target: ast.AST, value: Any, node: ast.AST) -> list[ast.stmt]:
        """The code that stores a value."""
        if isinstance(target, ast.Name):
            return self._assign_name(target.id, value, node)
        if isinstance(target, ast.Tuple | ast.List):
            several = value.items if isinstance(value, Several) else []
            if any(isinstance(v, Part | Method) for v in several):
                self.bind(target, value, node)
                return []
            if any(isinstance(t, ast.Starred) for t in target.elts):
                raise self.fail(node, "Starred assignments aren't supported")
            self.refuse(_mismatches.of_unpacking(count_of(value), len(target.elts)), node)
            kinds = kinds_of(_kind(value), len(target.elts))
            if isinstance(value, Several):
                kinds = [_kind(v) for v in value.items]
            code = self.node(value, node)
            stores = [self._store(t, k) for t, k in zip(target.elts, kinds, strict=False)]
            return [ast.Assign([ast.Tuple(stores, ast.Store())], code)]
        if isinstance(target, ast.Attribute):
            of = self.visit(target.value)
            objects = self.program.objects_of(_kind(of)) if isinstance(of, Run) else None
            if objects is not None and objects.sets(target.attr):
                return [objects.set(self, of, target.attr, self.node(value, node), target)]
            kept = value if isinstance(value, Run) else _kind(value)
            return [ast.Assign([self._store(target, kept)], self.node(value, node))]
        if isinstance(target, ast.Subscript):
            self.refuse(self._misplaced(target, _kind(value)), node)
            return [ast.Assign([self._store(target, None)], self.node(value, node))]
        raise self.fail(node, f"{type(target).__name__} as a target")

    def _misplaced(self, target: ast.Subscript, kind: str | None) -> str:
        """What is said of a value that is stored under an index, or a key, of a variable."""
        of = self.locals.get(target.value.id) if isinstance(target.value, ast.Name) else None
        if not isinstance(of, Run | Known | Several) or isinstance(target.slice, ast.Slice):
            return ""
        key = self.visit(target.slice) if isinstance(target.slice, ast.Constant) else None
        return _mismatches.of_item(_kind(of), _kind(key), kind)

    def _store(self, target: ast.AST, kind: Any) -> ast.expr:
        if isinstance(target, ast.Name):
            self.locals[target.id] = Run(ast.Name(target.id, ast.Load()), kind)
            return ast.Name(target.id, ast.Store())
        if isinstance(target, ast.Subscript):
            return ast.Subscript(self.run(target.value), self._key(target.slice), ast.Store())
        if isinstance(target, ast.Attribute):
            of = self.visit(target.value)
            if isinstance(of, Part) and target.attr not in of.module._modules:
                self.program.writes(of.module, target.attr, self, target, kind)
                return ast.Attribute(of.node, target.attr, ast.Store())
            objects = self.program.objects_of(_kind(of)) if isinstance(of, Run) else None
            if objects is not None:
                return objects.store(self, of, target.attr, kind, target)
        if isinstance(target, ast.Tuple):
            return ast.Tuple([self._store(t, None) for t in target.elts], ast.Store())
        raise self.fail(target, "a target that code cannot store to")

    def _assign_name(self, name: str, value: Any, node: ast.AST) -> list[ast.stmt]:
        once = self.counts[name] == 1
        if isinstance(value, Part | Method) or (
            isinstance(value, Several) and any(isinstance(v, Part) for v in value.items)
        ):
            self.locals[name] = value
            return []
        if isinstance(value, Known) and (once or not _has_code(value.value)):
            self.locals[name] = value
            return []
        kind = _kind(value)
        known = self.around.get(name)
        number = known in ("int", "float") and kind == "Tensor"
        if known and kind and kind != known and not number and not fits(kind, known):
            raise self.fail(
                node,
                f"Variable '{name}' previously had type {known} but is now being assigned to a value of type {kind}",
            )
        shown = self._declared(name, kind)
        self.locals[name] = Run(ast.Name(name, ast.Load()), shown)
        return [ast.Assign([ast.Name(name, ast.Store())], self.node(value, node))]

    def _declared(self, name: str, kind: str | None) -> str | None:
        """The type of a variable from here on: that of the block around, or what it holds now."""
        known = self.around.get(name) or self.kinds.get(name)
        if known in ("int", "float") and kind == "Tensor":
            self.kinds.pop(name, None)
            return None if name in self.around else kind
        if known and (name in self.around or (kind and fits(kind, known))):
            return known
        if kind and kind != "NoneType":
            self.kinds[name] = kind
        else:
            self.kinds.pop(name, None)
        return kind

    def inner(self, nodes: list[ast.stmt]) -> list[ast.stmt]:
        """The code of a block within, which keeps the types of variables around it."""
        saved, self.around = self.around, dict(self.kinds)
        try:
            return self.block(nodes)
        finally:
            self.around = saved

    def _do_AnnAssign(self, node: ast.AnnAssign) -> list[ast.stmt]:
        kind = self.annotation(node.annotation)
        if node.value is None:
            return []
        value = self.visit(node.value)
        if kind == "float" and isinstance(value, Known) and isinstance(value.value, int):
            value = Known(float(value.value))
        said, code = _types.node_of(kind), self.node(value, node)
        if isinstance(node.target, ast.Name):
            self.refuse(_mismatches.of_annotation(node.target.id, kind, _kind(value)), node)
            self.kinds[node.target.id] = kind
            self.locals[node.target.id] = Run(ast.Name(node.target.id, ast.Load()), kind)
            # `annotate` would leave the variable the type of what it holds first.
            return [ast.AnnAssign(ast.Name(node.target.id, ast.Store()), said, code, 1)]
        annotated = Run(call("annotate", [said, code]), kind)
        return self.assign(node.target, annotated, node)

    def _do_AugAssign(self, node: ast.AugAssign) -> list[ast.stmt]:
        if isinstance(node.target, ast.Name):
            old = self.locals.get(node.target.id)
            if isinstance(old, Known):
                made = self._BinOp(
                    ast.copy_location(
                        ast.BinOp(ast.Name(node.target.id, ast.Load()), node.op, node.value), node
                    )
                )
                return self._assign_name(node.target.id, made, node)
            if old is None:
                raise self.fail(node, f"undefined value {node.target.id}")
            target: ast.expr = ast.Name(node.target.id, ast.Store())
        else:
            target = self._store(node.target, None)
        if isinstance(node.op, ast.FloorDiv | ast.MatMult):
            # PyTorch reads neither operator with an assignment.
            old = self.run(ast.parse(ast.unparse(node.target), mode="eval").body)
            return [ast.Assign([target], ast.BinOp(old, node.op, self.run(node.value)))]
        return [ast.AugAssign(target, node.op, self.run(node.value))]  # type: ignore[arg-type]

    # Control flow

    def _do_If(self, node: ast.If) -> list[ast.stmt]:
        test = self.visit(node.test)
        if isinstance(test, Part):
            test = Known(True)
        if isinstance(test, Known):
            return self.block(node.body if test.value else node.orelse)
        code = self.truth(test, node.test)
        learnt = narrowing(self, node.test)
        before, kinds = dict(self.locals), dict(self.kinds)
        body = self._side(node.body, learnt, True)
        after, kinds_after = self.locals, self.kinds
        self.locals, self.kinds = dict(before), dict(kinds)
        rest = self._side(node.orelse, learnt, False)
        ends = [bool(b) and _leaves(b) for b in (body, rest)]
        for said in learnt:
            if not ends[0]:
                said.leave(self.locals, False)
            if not ends[1]:
                said.leave(after, True)
        self._join(after, kinds_after, kinds, *ends)
        if body and _is_raise(body[-1]) and not rest and len(body) == 1 and _tests_none(code):
            message = body[0].value.args[0]  # type: ignore[attr-defined]
            return [ast.Assert(ast.UnaryOp(ast.Not(), code), message)]
        if rest and _is_raise(rest[-1]) and body and not _is_raise(body[-1]):
            return [ast.If(ast.UnaryOp(ast.Not(), code), rest, []), *body]
        if body and _is_raise(body[-1]) and rest:
            return [ast.If(code, body, []), *rest]
        return [ast.If(code, body or [ast.Pass()], rest)]

    def _side(self, nodes: list[ast.stmt], learnt: list[Narrowing], side: bool) -> list[ast.stmt]:
        """The code of one side of a branch, which knows what the test says."""
        for said in learnt:
            said.enter(self.locals, side)
        return self.inner(nodes)

    def _join(
        self,
        other: dict[str, Any],
        other_kinds: dict[str, str],
        before: dict[str, str],
        body_ends: bool,
        rest_ends: bool,
    ) -> None:
        """The names after a branch: those that compiling knew must be the same on both sides."""
        if body_ends and not rest_ends:
            return
        if rest_ends and not body_ends:
            self.locals, self.kinds = other, other_kinds
            return
        self.kinds = {**other_kinds, **self.kinds}
        mine = self.locals
        for name in {*mine, *other}:
            a, b = other.get(name), mine.get(name)
            if a is None or b is None:
                side = "true" if a is None else "false"
                self.locals[name] = Neither(f"{name} is not defined in the {side} branch")
            elif isinstance(a, Run) and isinstance(b, Run):
                if a.kind == b.kind:
                    continue
                kind = before.get(name) if a.kind and b.kind else None
                if name not in before and a.kind and b.kind:
                    kind = _common(a.kind, b.kind)
                said = "" if name in before else _mismatches.of_branches(name, a.kind, b.kind)
                self.locals[name] = Neither(said) if said else Run(a.node, kind)
                if name not in before:
                    self.kinds.pop(name, None)
                    if kind:
                        self.kinds[name] = kind
            elif a is not b and not (
                isinstance(a, Known) and isinstance(b, Known) and a.value is b.value
            ):
                self.locals[name] = Neither()

    def _do_While(self, node: ast.While) -> list[ast.stmt]:
        if node.orelse:
            raise self.fail(node, "else branches of loops aren't supported")
        self._forget(node.body)
        test = self.truth(self.visit(node.test), node.test)
        return [ast.While(test, self._repeated(node.body) or [ast.Pass()], [])]

    def _forget(self, nodes: list[ast.stmt]) -> None:
        """Takes back what tests said of variables that a loop sets: it comes to the tests once more."""
        for name in _stored(nodes):
            value = self.locals.get(name)
            if isinstance(value, Run) and name in self.kinds:
                self.locals[name] = Run(value.node, self.kinds[name])

    def _repeated(self, nodes: list[ast.stmt]) -> list[ast.stmt]:
        """The body of a loop; what its tests say of variables is not known after it."""
        before = dict(self.locals)
        saved, self.loops = self.loops, 0
        body = self.inner(nodes)
        self.loops = saved
        for name, value in before.items():
            now = self.locals.get(name)
            if isinstance(value, Run) and isinstance(now, Run) and now.node is value.node:
                self.locals[name] = value
        return body

    def _do_For(self, node: ast.For) -> list[ast.stmt]:
        if node.orelse:
            raise self.fail(node, "else branches of loops aren't supported")
        over = self.visit(node.iter)
        items = self.unrolled(over, node.iter)
        if items is not None:
            return self._unrolled(node, items)
        each = self.node(over, node.iter)
        self._forget(node.body)
        target = self.runtime_target(node.target, over)
        return [ast.For(target, each, self._repeated(node.body) or [ast.Pass()], [])]

    def _unrolled(self, node: ast.For, items: list[Any]) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        self.loops += 1
        for item in items:
            self.bind(node.target, item, node)
            for name in _stored(node.body):
                self.counts[name] += 1
            out.extend(self.block(node.body))
        self.loops -= 1
        return out


_STATEMENTS = {
    "Try": "try blocks", "FunctionDef": "function definitions",
    "ClassDef": "class definitions", "Import": "import statements", "ImportFrom": "import statements",
    "Nonlocal": "nonlocal statements", "AsyncFor": "async for loops", "AsyncFunctionDef": "async function definitions",
    "Match": "match statements",
}  # fmt: skip
