"""Forward hooks of modules: compiled with their module, they run around `forward` wherever code calls the module."""

from __future__ import annotations

import ast
import copy
import inspect
from typing import TYPE_CHECKING, Any, NamedTuple

from torchlike.jit import _layers, _types
from torchlike.jit._parts_of_code import call
from torchlike.jit._parts_of_code import name as dotted
from torchlike.jit._scope import Source
from torchlike.nn import Module

if TYPE_CHECKING:
    from torchlike.jit._program import ModuleBuilder
    from torchlike.jit._unit import Class


class Hook(NamedTuple):
    """A compiled hook."""

    name: str
    tree: ast.FunctionDef
    gives: str
    """The type of its result."""


def compile_hooks(builder: ModuleBuilder, caller: Any, node: ast.AST) -> None:
    """Compiles the hooks of a module, after its `forward`.

    Raises:
        NotSupportedError: for a hook that is no function.
        RuntimeError: for a signature that hooks of compiled modules have not, or a name that is taken.
    """
    module = builder.module
    whole: dict[str, Any] = {}
    if module._forward_pre_hooks or module._forward_hooks:
        if _layers.method_of(module, "forward") is Module.forward:
            raise RuntimeError(f"Couldn't find method: 'forward' on class: '{builder.name}'")
        builder.compiled("forward", caller, node)
    for kept, hooks, word, count in (
        (builder.pre_hooks, module._forward_pre_hooks, "Pre-hook", 2),
        (builder.hooks, module._forward_hooks, "Hook", 3),
    ):
        for hook in hooks.values():
            if not inspect.isfunction(hook):
                raise _refused(f"{word} {hook!r:.60} on module '{_class(module)}' is no function")
            name = hook.__name__
            if whole.setdefault(name, hook) is not hook:
                raise RuntimeError(
                    f"{word} '{name}' on {_class(module)} has at least two different python "
                    "definitions. Please use unique names for all hooks."
                )
            if name in builder.methods:
                raise RuntimeError(
                    f"Can't define hook: {name} on class: {builder.name} because a method or hook with "
                    "that name already exists."
                )
            kept.append(_compiled(builder, hook, word, count))


def _class(module: Any) -> str:
    return type(module).__name__


def _refused(text: str) -> Exception:
    from torchlike.jit._errors import NotSupportedError

    return NotSupportedError(text)


def _compiled(builder: ModuleBuilder, hook: Any, word: str, count: int) -> Hook:
    from torchlike.jit._scope import Part
    from torchlike.jit._statements import Statements

    source = Source(hook)
    what = f"{word} '{hook.__name__}' on module '{_class(builder.module)}'"
    given = len(source.tree.args.args)
    if given != count:
        raise RuntimeError(
            f"{what} was expected to only have exactly {count} inputs but it had {given} inputs"
        )
    if word == "Pre-hook" and source.tree.returns is None:
        raise RuntimeError(
            f"{what} is missing a return annotation. Return annotations are required, please add one."
        )
    part = Part(ast.Name("self", ast.Load()), builder.module)
    statements = Statements(builder.program, source, part)
    tree, kind = statements.function(hook.__name__)
    taken = statements.kinds.get(source.tree.args.args[1].arg, "Tensor")
    if not taken.startswith("Tuple["):
        raise RuntimeError(
            f"{what} expected the input argument to be typed as a Tuple but found type: '{taken}' instead"
        )
    return Hook(hook.__name__, tree, _given(tree, kind))


def hook_of(spec: Class, name: str) -> Hook:
    """A hook of a class that is TorchScript already."""
    tree = spec.methods[name].tree
    return Hook(
        name, tree, _given(tree, None if tree.returns is None else ast.unparse(tree.returns))
    )


def _given(tree: ast.FunctionDef, kind: str | None) -> str:
    """The type of what a hook gives: nothing, where it never says what."""
    if kind is not None:
        return "NoneType" if kind == "None" else kind
    returns = [n.value for n in ast.walk(tree) if isinstance(n, ast.Return)]
    something = any(v is not None and not _is_none(v) for v in returns)
    return "Any" if something else "NoneType"


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def around(builder: ModuleBuilder, caller: Any, node: ast.AST) -> tuple[str, str | None]:
    """The function that runs a module's hooks and its `forward`, and the type of its result.

    It stands beside the class, through whose name it calls the hooks.
    """
    kind = builder.compiled("forward", caller, node)
    for hook in builder.hooks:
        kind = kind if hook.gives == "NoneType" else None if hook.gives == "Any" else hook.gives
    program = builder.program
    known = program.functions.get((id(builder), "hooks"))
    if known is not None:
        return known
    name = program.fresh(f"{builder.name}_with_hooks")
    prefix, _, last = name.rpartition(".")
    made = ast.fix_missing_locations(_around(builder, last))
    program.unit.define(prefix, ast.unparse(made) + "\n")
    program.functions[id(builder), "hooks"] = name, kind
    return name, kind


def _around(builder: ModuleBuilder, name: str) -> ast.FunctionDef:
    """The function's tree: hooks before, `forward`, hooks after, each of which may replace what it is shown."""
    made = copy.deepcopy(builder.tree_of("forward"))
    made.name, made.args.args[0].annotation = name, _types.node_of(builder.name)
    itself, given = ast.Name("self", ast.Load()), ast.Name("_input", ast.Load())
    args: list[ast.expr] = [ast.Name(a.arg, ast.Load()) for a in made.args.args[1:]]
    body: list[ast.stmt] = [_stored("_input", ast.Tuple(args, ast.Load()))]
    count = len(args)
    for hook in builder.pre_hooks:
        called = call(dotted(f"{builder.name}.{hook.name}"), [itself, given])
        if hook.gives == "NoneType":
            body.append(ast.Expr(called))
        elif hook.gives.startswith("Tuple["):
            body.append(_stored("_input", called))
            count = 0 if hook.gives == "Tuple[()]" else len(_types.parts_of(hook.gives))
        else:
            body.append(_stored("_input", ast.Tuple([called], ast.Load())))
            count = 1
    items: list[ast.expr] = [
        ast.Subscript(given, ast.Constant(i), ast.Load()) for i in range(count)
    ]
    body.append(_stored("_output", call(ast.Attribute(itself, "forward", ast.Load()), items)))
    out = ast.Name("_output", ast.Load())
    for hook in builder.hooks:
        called = call(dotted(f"{builder.name}.{hook.name}"), [itself, given, out])
        body.append(ast.Expr(called) if hook.gives == "NoneType" else _stored("_output", called))
    made.body, made.returns = [*body, ast.Return(out)], None
    return made


def _stored(name: str, value: ast.expr) -> ast.stmt:
    return ast.Assign([ast.Name(name, ast.Store())], value)
