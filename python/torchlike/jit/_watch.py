"""A run that is watched: what is called becomes lines of code."""

from __future__ import annotations

import ast
import inspect
import types
import warnings
from typing import TYPE_CHECKING, Any

import torchlike
from torchlike._ops import binding
from torchlike.jit import _leaves, _spelling, _state
from torchlike.jit._functions import is_operator, losses, with_reduction
from torchlike.jit._parts_of_code import call, of_setting, plain_constant
from torchlike.jit._parts_of_code import name as dotted
from torchlike.jit._traced_sizes import Shape, Size
from torchlike.overrides import TorchFunctionMode
from torchlike.utils import _pytree as pytree

if TYPE_CHECKING:
    from torchlike.jit._program import Program

Tensor = torchlike.Tensor


class TracerWarning(Warning):
    """A trace holds a value of the example, or differs from the function."""

    @staticmethod
    def ignore_lib_warnings() -> None:
        """Silences these warnings where the library's own code asks for a value, but in `jit`."""
        warnings.filterwarnings("ignore", category=TracerWarning, module=r"torch(like)?\.(?!jit)")


# What methods that ask for a value make of a tensor.
_ASKED = {
    "item": "Python number", "tolist": "Python list", "__bool__": "Python boolean", "__int__": "Python integer",
    "__float__": "Python float", "__index__": "Python index", "__complex__": "Python complex", "__len__": "",
    "__contains__": "Python number", "numpy": "NumPy array", "__array__": "NumPy array",
}  # fmt: skip


def _of_value(name: str) -> str:
    """What is said of a trace that keeps a value which a method, or an operator, asked for."""
    if name == "__len__":
        return (
            "Using len to get tensor shape might cause the trace to be incorrect. Recommended usage would be "
            "tensor.shape[0]. Passing a tensor of different shape might lead to errors or silently give "
            "incorrect results."
        )
    return (
        f"Converting a tensor to a {_ASKED.get(name, 'Python number')} might cause the trace to be incorrect. We "
        "can't record the data flow of Python values, so this value will be treated as a constant in the "
        "future. This means that the trace might not generalize to other inputs!"
    )


class Watch(TorchFunctionMode):
    """Writes down what is called."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.program = program
        self.body: list[ast.stmt] = []
        self.known: dict[int, ast.expr] = {}
        self.kept: list[Any] = []
        self.count = 0
        self.places: dict[int, ast.expr] = {}
        """Where the code finds modules that are TorchScript already, by their identity."""
        self._asleep = False

    def name(self, value: Any, node: ast.expr) -> None:
        """Notes what computes a tensor."""
        self.known[id(value)] = node
        self.kept.append(value)

    def names(self, value: Any, node: ast.expr) -> None:
        """Notes what computes the tensors of a value."""
        if isinstance(value, Tensor):
            self.name(value, node)
        elif isinstance(value, tuple | list):
            for i, item in enumerate(value):
                self.names(item, ast.Subscript(node, ast.Constant(i), ast.Load()))
        elif isinstance(value, dict):
            for key, item in value.items():
                self.names(item, ast.Subscript(node, ast.Constant(key), ast.Load()))

    def taken(self, value: Any, node: ast.expr) -> Any:
        """An input as the function gets it: a tensor that is known already, by another name, is a view of it."""
        if isinstance(value, Tensor):
            value = value.view(value.shape) if id(value) in self.known else value
            self.name(value, node)
            return value
        if isinstance(value, dict):
            return {
                k: self.taken(v, ast.Subscript(node, ast.Constant(k), ast.Load()))
                for k, v in value.items()
            }
        items = [
            self.taken(v, ast.Subscript(node, ast.Constant(i), ast.Load()))
            for i, v in enumerate(value)
        ]
        return items if isinstance(value, list) else _like(value, items)

    def code(self, value: Any, *, as_result: bool = False) -> ast.expr:
        """The code for a value, whose containers stay what they are; sizes in a result are tensors."""
        if isinstance(value, dict):
            items = [self.code(v, as_result=as_result) for v in value.values()]
            return ast.Dict([self.node(k) for k in value], items)
        if isinstance(value, tuple | list):
            items = [self.code(v, as_result=as_result) for v in value]
            return (ast.Tuple if isinstance(value, tuple) else ast.List)(items, ast.Load())
        if as_result and isinstance(value, Size):
            return call("ops.prim.NumToTensor", [value.node])
        return self.node(value)

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
                if value.requires_grad:
                    raise RuntimeError(
                        "Cannot insert a Tensor that requires grad as a constant. Consider making it a parameter or "
                        f"input, or detaching the gradient\nTensor:\n{value}"
                    )
                known = dotted(f"CONSTANTS.c{self.program.constant(value)}")
                self.name(value, known)
            return known
        if isinstance(value, Size):
            return value.node
        plain = plain_constant(value)
        if plain is not None:
            return plain
        setting = of_setting(value)
        if setting is not None:
            return setting
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

    def _fitted(self, function: Any, args: Any, kwargs: Any) -> list[Any]:
        """The arguments of a function of the library; a number where it takes a list is a list."""
        if kwargs.get("out", self) is None:
            kwargs = {k: v for k, v in kwargs.items() if k != "out"}
        bound = inspect.signature(function).bind(*args, **kwargs)
        bound.apply_defaults()
        out = []
        for parameter, value in zip(
            bound.signature.parameters.values(), bound.arguments.values(), strict=True
        ):
            kind = str(parameter.annotation)
            lists = "list[int]" in kind or "list[float]" in kind
            if lists and isinstance(value, int | float):
                value = [value]
            elif lists and isinstance(value, tuple | list):
                # None is the size that the input has there
                sizes = (
                    self._sizes(args[0], args[0].shape)[-len(value) :] if None in value else value
                )
                value = [s if v is None else v for v, s in zip(value, sizes, strict=True)]
            out.append(value)
        return out

    # Calls

    def scripted(self, function: Any, module: Any, args: Any, kwargs: Any) -> Any:
        """A call of what is TorchScript already, of a module or by itself: it stays a call, with all its branches."""
        name = function.name.rpartition(".")[2]
        place = self.places.get(id(module))
        if module is None:
            target = dotted(self.program.adoption(function.unit).name(function.name))
        elif place is not None:
            target = ast.Attribute(place, name, ast.Load())
        else:
            raise RuntimeError(
                f"Tried to trace {function.name.rpartition('.')[0]} but it is not part of the active trace. Modules "
                "that are called during a trace must be registered as submodules of the thing being traced."
            )
        keywords = [ast.keyword(k, self.code(v)) for k, v in kwargs.items()]
        node = call(target, [self.code(a) for a in args], keywords)
        self._asleep = True
        try:
            with _state.watched(None):
                value = function(*(() if module is None else (module,)), *args, **kwargs)
        finally:
            self._asleep = False
        result = self.fresh()
        self.body.append(ast.Assign([ast.Name(result, ast.Store())], node))
        self.names(value, ast.Name(result, ast.Load()))
        return value

    def __torch_function__(self, func: Any, types_: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._asleep:
            return func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if name == "__get__":
            return self._attribute(func.__self__.__name__, func, args)
        if isinstance(func, types.MethodDescriptorType | types.WrapperDescriptorType) or (
            hasattr(Tensor, name) and _is_method(func)
        ):
            return self._method(name, func, args, kwargs)
        library = _spelling.library(func)
        if library is not None:
            return self._by_library(library, func, args, kwargs)
        operator = _spelling.operator(func)
        inner = getattr(func, "__wrapped__", None)
        if operator is None and isinstance(inner, types.FunctionType):
            with self:
                return inner(*args, **kwargs)
        if operator in losses() and isinstance(func, types.BuiltinFunctionType):
            kwargs = with_reduction(operator, args, kwargs)
        fitting = None if operator is None else _fitting(operator, args, kwargs)
        if operator is None or fitting is None:
            return self._apart(func, args, kwargs)
        node = call(_spelling.path(operator), *self._spelled(*fitting))
        return self._emit(node, func(*args, **kwargs), args)

    def _by_library(self, library: Any, func: Any, args: Any, kwargs: Any) -> Any:
        """A call by the library's words, or by its operators where the library has none for its arguments."""
        before = len(self.body)
        try:
            fitted = self._fitted(library, args, kwargs)
            with self:
                return library(*fitted)
        except (NotImplementedError, TypeError):
            # before anything is computed: it has not this setting or this argument
            del self.body[before:]
            return self._apart(func, args, kwargs)

    def _apart(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Writes a call down as the operators that it comes down to; sizes among its arguments are kept."""
        value, body, nodes = _leaves.written(self, func, args, kwargs)
        if nodes and any(isinstance(a, Size) for a in pytree.tree_leaves((args, kwargs))):
            name = getattr(func, "__name__", func)
            self.warn(
                f"Sizes that {name} is given are not traced: the trace keeps this value for all inputs"
            )
        self.body += body
        for tensor, node in nodes:
            self.name(tensor, node)
        return value

    def warn(self, text: str) -> None:
        """Tells that a value of the example stays in the trace."""
        warnings.warn(text, TracerWarning, stacklevel=5)

    def warn_of(self, name: str) -> None:
        """Tells that what a method asked for stays in the trace."""
        self.warn(_of_value(name))

    def _spelled(self, args: Any, kwargs: Any) -> tuple[list[ast.expr], list[ast.keyword]]:
        return [self.node(a) for a in args], [
            ast.keyword(k, self.node(v)) for k, v in kwargs.items()
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
            item = ast.Subscript(self.node(of), self.index(args[1]), ast.Load())
            return self._emit(item, func(*args), args)
        if name == "__setitem__":
            target = ast.Subscript(self.node(of), self.index(args[1]), ast.Store())
            self.body.append(ast.Assign([target], self.node(args[2])))
            return func(*args)
        if name in _ASKED or name in ("size", "numel", "nelement"):
            return self._number(name, func(*args, **kwargs), args, kwargs)
        node = self._of_method(name, args, kwargs)
        if node is None:
            return self._apart(func, args, kwargs)
        return self._emit(node, func(*args, **kwargs), args)

    def _of_method(self, name: str, args: Any, kwargs: Any) -> ast.expr | None:
        """The code of a method that is an operator."""
        of = self.node(args[0])
        if name in _REVERSED:
            return ast.BinOp(self.node(args[1]), _REVERSED[name](), of)
        if name in _CASTS:
            layout = kwargs.get("memory_format", args[1] if len(args) > 1 else None)
            there = _CASTS[name], False, False, layout
            return call("torch.to", [of, *map(self.node, there)])
        plain = name.strip("_") if name.startswith("__") else name
        plain = {"truediv": "div", "invert": "bitwise_not"}.get(plain, plain)
        fitting = _fitting(plain, args, kwargs) if plain == "cpu" or is_operator(plain) else None
        if fitting is None:
            return None
        spelled = self._spelled(fitting[0][1:], fitting[1])
        return call(ast.Attribute(of, plain, ast.Load()), *spelled)

    def _number(self, name: str, value: Any, args: Any, kwargs: Any) -> Any:
        """A size, which code asks for when it runs, or another number, which it keeps."""
        of = args[0]
        if name == "size":
            given = args[1] if len(args) > 1 else kwargs.get("dim")
            return self._sizes(of, value) if given is None else self._sizes(of, of.shape)[given]
        if name in ("numel", "nelement"):
            return Size.of(value, call(ast.Attribute(self.node(of), "numel", ast.Load()), []))
        self.warn_of(name)
        return value

    def _emit(self, node: ast.expr, value: Any, args: Any) -> Any:
        """Writes a call down, and names what it gives."""
        if isinstance(value, Tensor):
            if any(value is a for a in args):
                self.body.append(ast.Expr(node))
                return value
            name = self.fresh()
            self.body.append(ast.Assign([ast.Name(name, ast.Store())], node))
            self.name(value, ast.Name(name, ast.Load()))
        elif isinstance(value, tuple | list) and any(isinstance(v, Tensor) for v in value):
            names = [self.fresh() for _ in value]
            stores: list[ast.expr] = [ast.Name(n, ast.Store()) for n in names]
            self.body.append(ast.Assign([ast.Tuple(stores, ast.Store())], node))
            for name, item in zip(names, value, strict=True):
                self.name(item, ast.Name(name, ast.Load()))
        return value


def _like(example: tuple[Any, ...], items: list[Any]) -> Any:
    """A tuple of the class of another."""
    return type(example)(*items) if hasattr(example, "_fields") else tuple(items)


def _is_method(func: Any) -> bool:
    return getattr(Tensor, getattr(func, "__name__", ""), None) is func


_REVERSED = {"__radd__": ast.Add, "__rsub__": ast.Sub, "__rmul__": ast.Mult, "__rtruediv__": ast.Div,
             "__rpow__": ast.Pow, "__rfloordiv__": ast.FloorDiv, "__rmod__": ast.Mod, "__rmatmul__": ast.MatMult,
             "__rdiv__": ast.Div}  # fmt: skip

_CASTS = {
    "float": torchlike.float32, "double": torchlike.float64, "half": torchlike.float16, "bfloat16": torchlike.bfloat16,
    "long": torchlike.int64, "int": torchlike.int32, "short": torchlike.int16, "char": torchlike.int8,
    "byte": torchlike.uint8, "bool": torchlike.bool, "cfloat": torchlike.complex64, "cdouble": torchlike.complex128,
    "chalf": torchlike.complex32,
}  # fmt: skip
# They give as many tensors as they are asked for.
_VARYING = frozenset(("unique_consecutive",))


def _fitting(operator: str, args: Any, kwargs: Any) -> tuple[Any, dict[str, Any]] | None:
    """The arguments of a call as the operator of a name takes them, its numbers as a list too; None if it does not."""
    packet = getattr(torchlike.ops.aten, operator, None)
    if packet is None:
        return args, kwargs
    given = {k: v for k, v in kwargs.items() if v is not None}
    if operator in ("view", "view_copy") and isinstance(args[-1], torchlike.dtype):
        # by its name, as code has numbers for types
        return args[:1], {"dtype": args[-1]}
    packed = [(*args[:i], list(args[i:])) for i in (0, 1) if _alike(args[i:])]
    for each in (args, *packed):
        schema = _schema(packet, each, given)
        if schema is None:
            continue
        lists = any(a.base == "Scalar" and a.is_list for a in schema.arguments)
        if lists or operator in _VARYING:
            return None
        values = binding.bind(schema, each, given)
        real = {a.name: _as_real(values[a.name]) for a in schema.arguments if a.base == "float"}
        return binding.spelled(schema, {**values, **real})
    return None


def _alike(args: Any) -> bool:
    """Whether these are numbers, or tensors, that may stand for a list of them."""
    kinds = ((int, Size), (Tensor, torchlike.nn.Parameter))
    return len(args) > 0 and any(all(type(a) in kind for a in args) for kind in kinds)


def _as_real(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_as_real(v) for v in value]
    return float(value) if type(value) is int else value


def _schema(packet: Any, args: Any, kwargs: Any) -> Any | None:
    try:
        return binding.choose(packet, args, kwargs)._schema
    except (RuntimeError, TypeError):
        return None
