"""`jit.trace`: a run is watched, and what was called becomes straight code. Sizes that were asked for stay sizes."""

from __future__ import annotations

import ast
import inspect
import threading
import types
import warnings
from typing import Any

import torchlike
from torchlike._ops import binding
from torchlike.jit import _spelling, _types
from torchlike.jit._functions import DTYPES, FORMATS, is_operator
from torchlike.jit._module import RecursiveScriptModule, ScriptFunction, TopLevelTracedModule
from torchlike.jit._parts_of_code import call
from torchlike.jit._program import ModuleBuilder, Program, _qualified
from torchlike.jit._traced_sizes import Shape, Size
from torchlike.jit._unit import Function
from torchlike.nn import Module
from torchlike.overrides import TorchFunctionMode

Tensor = torchlike.Tensor


class TracerWarning(Warning):
    """A trace holds a value of the example, or differs from the function."""


class TracingCheckError(RuntimeError):
    """A trace does not compute what the function does."""


_ASKED = frozenset(
    [
        "item",
        "tolist",
        "__bool__",
        "__int__",
        "__float__",
        "__index__",
        "__complex__",
        "__len__",
        "__contains__",
        "numpy",
        "__array__",
    ]
)


_depth = threading.local()


def watching() -> bool:
    """True while a run is watched on this thread."""
    return getattr(_depth, "count", 0) > 0


class Watch(TorchFunctionMode):
    """Writes down what is called."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.program = program
        self.body: list[ast.stmt] = []
        self.known: dict[int, ast.expr] = {}
        self.kept: list[Any] = []
        self.count = 0

    def name(self, value: Any, node: ast.expr) -> None:
        """Notes what computes a tensor."""
        self.known[id(value)] = node
        self.kept.append(value)

    def fresh(self) -> str:
        """A name that nothing has yet."""
        self.count += 1
        return f"_{self.count}"

    # Arguments

    def node(self, value: Any) -> ast.expr:
        """The code for an argument."""
        if isinstance(value, Tensor):
            known = self.known.get(id(value))
            if known is None:
                from torchlike.jit._parts_of_code import name

                known = name(f"CONSTANTS.c{self.program.constant(value)}")
                self.name(value, known)
            return known
        if isinstance(value, Size):
            return value.node
        if value is None or isinstance(value, bool | str) or value is Ellipsis:
            return ast.Constant(value)
        if isinstance(value, int | float):
            if value != value or value in (float("inf"), float("-inf")):
                return call("float", [ast.Constant(str(value))])
            return (
                ast.UnaryOp(ast.USub(), ast.Constant(-value)) if value < 0 else ast.Constant(value)
            )
        if isinstance(value, torchlike.dtype):
            return ast.Constant(next(n for n, d in DTYPES.items() if d == value))
        if isinstance(value, torchlike.memory_format):
            return ast.Constant(next(n for n, f in FORMATS.items() if f == value))
        if isinstance(value, torchlike.layout):
            return ast.Constant(0)
        if isinstance(value, torchlike.device):
            return call("torch.device", [ast.Constant(str(value))])
        if isinstance(value, list | tuple):
            return ast.List([self.node(v) for v in value], ast.Load())
        raise NotImplementedError(f"jit.trace: an argument of type {type(value).__name__}")

    def index(self, key: Any) -> ast.expr:
        """The code for what stands in brackets."""
        if isinstance(key, slice):
            parts = [None if p is None else self.node(p) for p in (key.start, key.stop, key.step)]
            return ast.Slice(*parts)
        if isinstance(key, tuple):
            return ast.Tuple([self.index(k) for k in key], ast.Load())
        return self.node(key)

    # Calls

    def __torch_function__(self, func: Any, types_: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "__get__":
            return self._attribute(func.__self__.__name__, func, args)
        if isinstance(func, types.MethodDescriptorType | types.WrapperDescriptorType) or (
            hasattr(Tensor, name) and _is_method(func)
        ):
            return self._method(name, func, args, kwargs)
        library = _spelling.library(func)
        if library is not None:
            with self:
                return library(*_fitted(library, args, kwargs))
        operator = _spelling.operator(func)
        if operator is None:
            inner = getattr(func, "__wrapped__", None)
            if isinstance(inner, types.FunctionType):
                with self:
                    return inner(*args, **kwargs)
            raise NotImplementedError(f"jit.trace: {func!r} is no operator of TorchScript")
        if _spelling.is_functional(func):
            _check_fits(operator, func, args, kwargs)
        return self._emit(
            call(f"torch.{operator}", *self._spelled(args, kwargs)), func(*args, **kwargs), args
        )

    def _spelled(self, args: Any, kwargs: Any) -> tuple[list[ast.expr], list[ast.keyword]]:
        return [self.node(a) for a in args], [
            ast.keyword(k, self.node(v))
            for k, v in kwargs.items()
            if v is not None or k != "memory_format"
        ]

    def _attribute(self, name: str, func: Any, args: Any) -> Any:
        value = func(*args)
        of = args[0]
        if name == "shape":
            return self._sizes(of, value)
        if isinstance(value, Tensor) and value is not of:
            if name == "data":
                return self._emit(
                    call(ast.Attribute(self.node(of), "detach", ast.Load()), []), value, args
                )
            return self._emit(ast.Attribute(self.node(of), name, ast.Load()), value, args)
        return value

    def _sizes(self, of: Any, sizes: Any) -> Shape:
        base = self.node(of)
        return Shape(
            Size.of(n, call(ast.Attribute(base, "size", ast.Load()), [ast.Constant(i)]))
            for i, n in enumerate(sizes)
        )

    def _method(self, name: str, func: Any, args: Any, kwargs: Any) -> Any:
        of = args[0]
        if name == "__getitem__":
            node = ast.Subscript(self.node(of), self.index(args[1]), ast.Load())
            return self._emit(node, func(*args), args)
        if name == "__setitem__":
            target = ast.Subscript(self.node(of), self.index(args[1]), ast.Store())
            self.body.append(ast.Assign([target], self.node(args[2])))
            return func(*args)
        value = func(*args, **kwargs)
        if name == "size":
            given = args[1] if len(args) > 1 else kwargs.get("dim")
            return self._sizes(of, value) if given is None else self._sizes(of, of.shape)[given]
        if name in ("numel", "nelement"):
            return Size.of(value, call(ast.Attribute(self.node(of), "numel", ast.Load()), []))
        if name in _ASKED:
            warnings.warn(
                f"Converting a tensor to a Python value by {name} is not traced: the trace keeps this "
                f"value for all inputs",
                TracerWarning, stacklevel=3,
            )  # fmt: skip
            return value
        if not _has_tensor(value):
            return value
        if name.startswith("__r"):
            return self._emit(_reversed(name, self.node(of), self.node(args[1])), value, args)
        plain = name.strip("_") if name.startswith("__") else name
        plain = {"truediv": "div", "invert": "bitwise_not"}.get(plain, plain)
        if not is_operator(plain) and plain not in (
            "cpu",
            "float",
            "double",
            "half",
            "long",
            "int",
            "bool",
            "bfloat16",
        ):
            raise NotImplementedError(f"jit.trace: Tensor.{name} is no operator of TorchScript")
        return self._emit(
            call(ast.Attribute(self.node(of), plain, ast.Load()), *self._spelled(args[1:], kwargs)),
            value,
            args,
        )

    def _emit(self, node: ast.expr, value: Any, args: Any) -> Any:
        """Writes a call down, and names what it gives."""
        if isinstance(value, Tensor):
            if any(value is a for a in args):
                self.body.append(ast.Expr(node))
                return value
            name = self.fresh()
            self.body.append(ast.Assign([ast.Name(name, ast.Store())], node))
            self.name(value, ast.Name(name, ast.Load()))
        elif isinstance(value, tuple | list) and value:
            names = [self.fresh() for _ in value]
            stores: list[ast.expr] = [ast.Name(n, ast.Store()) for n in names]
            self.body.append(ast.Assign([ast.Tuple(stores, ast.Store())], node))
            for name, item in zip(names, value, strict=True):
                self.name(item, ast.Name(name, ast.Load()))
        return value


def _fitted(function: Any, args: Any, kwargs: Any) -> list[Any]:
    """The arguments of a function of the library; a number where it takes a list is a list."""
    bound = inspect.signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    out = []
    for parameter, value in zip(
        bound.signature.parameters.values(), bound.arguments.values(), strict=True
    ):
        lists = "list[int]" in str(parameter.annotation) or "list[float]" in str(
            parameter.annotation
        )
        if lists and isinstance(value, int | float):
            value = [value]
        out.append(list(value) if lists and isinstance(value, tuple) else value)
    return out


def _has_tensor(value: Any) -> bool:
    return isinstance(value, Tensor) or (
        isinstance(value, tuple | list) and any(isinstance(v, Tensor) for v in value)
    )


def _is_method(func: Any) -> bool:
    return getattr(Tensor, getattr(func, "__name__", ""), None) is func


_REVERSED = {"__radd__": ast.Add, "__rsub__": ast.Sub, "__rmul__": ast.Mult, "__rtruediv__": ast.Div,
             "__rpow__": ast.Pow,
             "__rfloordiv__": ast.FloorDiv, "__rmod__": ast.Mod, "__rmatmul__": ast.MatMult, "__rand__": ast.BitAnd,
             "__ror__": ast.BitOr, "__rxor__": ast.BitXor, "__rdiv__": ast.Div}  # fmt: skip


def _reversed(name: str, of: ast.expr, other: ast.expr) -> ast.expr:
    if name not in _REVERSED:
        raise NotImplementedError(f"jit.trace: Tensor.{name}")
    return ast.BinOp(other, _REVERSED[name](), of)


def _inputs(watch: Watch, name: str, value: Any, node: ast.expr) -> None:
    """Names the tensors of an input."""
    if isinstance(value, Tensor):
        watch.name(value, node)
    elif isinstance(value, tuple | list):
        for i, item in enumerate(value):
            _inputs(watch, name, item, ast.Subscript(node, ast.Constant(i), ast.Load()))
    elif isinstance(value, dict):
        for key, item in value.items():
            _inputs(watch, name, item, ast.Subscript(node, ast.Constant(key), ast.Load()))
    elif not isinstance(value, int | float | bool | str | None):
        raise RuntimeError(
            f"jit.trace: an example input of type {type(value).__name__}; tensors, and containers of "
            f"them, can be traced"
        )


def _output(watch: Watch, value: Any) -> ast.expr:
    if isinstance(value, tuple):
        return ast.Tuple([_output(watch, v) for v in value], ast.Load())
    if isinstance(value, list):
        return ast.List([_output(watch, v) for v in value], ast.Load())
    if isinstance(value, dict):
        return ast.Dict(
            [ast.Constant(k) for k in value], [_output(watch, v) for v in value.values()]
        )
    return watch.node(value)


def _watched(
    program: Program, function: Any, names: list[str], inputs: tuple[Any, ...], module: Any
) -> tuple[list[ast.arg], list[ast.stmt], Any]:
    """The arguments and the body of a run of a function."""
    watch = Watch(program)
    arguments = []
    for name, value in zip(names, inputs, strict=True):
        _inputs(watch, name, value, ast.Name(name, ast.Load()))
        kind = ast.parse(_types.of_value(value, lambda k: None), mode="eval").body
        arguments.append(ast.arg(name, kind))
    for path, value in (
        (
            *module.named_parameters(remove_duplicate=False),
            *module.named_buffers(remove_duplicate=False),
        )
        if module
        else ()
    ):
        watch.name(value, _place(path))
    _depth.count = getattr(_depth, "count", 0) + 1
    try:
        with watch:
            out = function(*inputs)
    finally:
        _depth.count -= 1
    if not _has_any(out):
        raise RuntimeError(
            "jit.trace: the function gave no tensor; only tensors, and tuples, lists and dictionaries of "
            "them, can be traced"
        )
    watch.body.append(ast.Return(_output(watch, out)))
    return arguments, watch.body, out


def _has_any(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_has_any(v) for v in value.values())
    return isinstance(value, Tensor) or (
        isinstance(value, tuple | list) and any(_has_any(v) for v in value)
    )


def _place(path: str) -> ast.expr:
    """The code for a parameter or buffer by its path."""
    from torchlike.jit._parts_of_code import _member

    node: ast.expr = ast.Name("self", ast.Load())
    for part in path.split("."):
        node = _member(node, part)
    return node


def _names(function: Any, inputs: tuple[Any, ...], skip: int) -> list[str]:
    try:
        found = list(inspect.signature(function).parameters.values())[skip:]
    except (TypeError, ValueError):
        found = []
    plain = [p.name for p in found if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return (
        plain[: len(inputs)]
        if len(plain) >= len(inputs)
        else [f"argument_{i + 1}" for i in range(len(inputs))]
    )


def _function_def(
    name: str, arguments: list[ast.arg], body: list[ast.stmt], of_module: bool
) -> ast.FunctionDef:
    whole = [ast.arg("self"), *arguments] if of_module else arguments
    made = ast.FunctionDef(name, ast.arguments([], whole, None, [], [], None, []), body, [], None)
    return ast.fix_missing_locations(made)


def trace_module(
    mod: Any, inputs: dict[str, Any], check_trace: bool = True, **how: Any
) -> RecursiveScriptModule:
    """A module whose methods are traces of a module's methods; `inputs` gives example inputs by method."""
    from torchlike.jit._script import _made

    program = Program()
    root = program.builders[id(mod)] = ModuleBuilder(program, mod)
    for method, given in inputs.items():
        example = _tuple(given)
        function = mod.__call__ if method == "forward" else getattr(mod, method)
        names = _names(getattr(type(mod), method), example, 1)
        arguments, body, _ = _watched(program, function, names, example, mod)
        root.methods[method] = _function_def(method, arguments, body, True)
        root.kinds[method] = None
    for inner in mod.modules():
        program.builder(inner, None, ast.Pass())
    made = _made(program, mod, {})
    made.__class__ = TopLevelTracedModule
    if check_trace:
        for method, given in inputs.items():
            function = mod if method == "forward" else getattr(mod, method)
            _compare(
                function, made if method == "forward" else getattr(made, method), _tuple(given)
            )
    return made


def _tuple(given: Any) -> tuple[Any, ...]:
    return given if isinstance(given, tuple) else (given,)


def _compare(function: Any, traced: Any, inputs: tuple[Any, ...], rtol: float = 1e-5) -> None:
    """Warns if a trace gives something else than its function."""
    from torchlike.utils import _pytree as pytree

    with torchlike.no_grad(), torchlike.random.fork_rng(devices=[]):
        state = torchlike.get_rng_state()
        wanted = pytree.tree_leaves(function(*inputs))
        torchlike.set_rng_state(state)
        found = pytree.tree_leaves(traced(*inputs))
    for a, b in zip(wanted, found, strict=True):
        if (
            isinstance(a, Tensor)
            and not a.is_meta
            and not torchlike.allclose(a, b, rtol=rtol, atol=1e-5, equal_nan=True)
        ):
            warnings.warn(
                "Output of the traced function does not match the function's: the function is not "
                "deterministic, or has state",
                TracerWarning,
                stacklevel=3,
            )
            return


def trace(
    func: Any,
    example_inputs: Any = None,
    optimize: Any = None,
    check_trace: bool = True,
    check_inputs: Any = None,
    check_tolerance: float = 1e-5,
    strict: bool = True,
    _force_outplace: bool = False,
    _module_class: Any = None,
    _compilation_unit: Any = None,
    example_kwarg_inputs: dict[str, Any] | None = None,
    _store_inputs: bool = True,
) -> Any:
    """Runs a function or module once and keeps what was called as TorchScript: straight code without branches.

    `example_inputs` is a tensor or a tuple of inputs. Sizes that the function asks for stay sizes of the run, so a
    trace works at
    another batch size; values that it asks for are kept as they were, with a `TracerWarning`.
    """
    if example_kwarg_inputs is not None:
        names = [
            p
            for p in inspect.signature(
                func.forward if isinstance(func, Module) else func
            ).parameters
            if p in example_kwarg_inputs
        ]
        example_inputs = tuple(example_kwarg_inputs[n] for n in names)
    inputs = _tuple(example_inputs)
    if isinstance(func, RecursiveScriptModule | ScriptFunction):
        return func
    if isinstance(func, Module):
        return trace_module(func, {"forward": inputs}, check_trace)
    owner = getattr(func, "__self__", None)
    if isinstance(owner, Module):
        return trace_module(owner, {func.__name__: inputs}, check_trace)
    program = Program()
    names = _names(func, inputs, 0)
    arguments, body, _ = _watched(program, func, names, inputs, None)
    name = program.fresh(_qualified(func) if hasattr(func, "__qualname__") else "__torch__.traced")
    prefix, _, last = name.rpartition(".")
    last = last if last.isidentifier() and last != "_" else "traced"
    program.unit.define(prefix, ast.unparse(_function_def(last, arguments, body, False)) + "\n")
    found = program.unit.find(f"{prefix}.{last}")
    assert isinstance(found, Function)
    made = ScriptFunction(found, func)
    if check_trace:
        _compare(func, made, inputs, check_tolerance)
    return made


def _check_fits(operator: str, func: Any, args: Any, kwargs: Any) -> None:
    """Refuses a call that the operator of a function's name does not take as it is."""
    packet = getattr(torchlike.ops.aten, operator, None)
    try:
        if packet is not None:
            binding.choose(packet, args, {k: v for k, v in kwargs.items() if v is not None})
    except (RuntimeError, TypeError) as e:
        raise NotImplementedError(
            f"jit.trace: {func!r} with these arguments is no operator of TorchScript"
        ) from e
