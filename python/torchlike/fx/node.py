"""A node of a graph: one call, input, attribute or output."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torchlike
from torchlike.fx._arguments import _format_arg, frozen, map_aggregate
from torchlike.fx._names import _find_module_of_method, _get_qualified_name, _type_repr  # noqa: F401

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torchlike.fx.graph import Graph

__all__ = ["Node", "has_side_effect", "map_aggregate", "map_arg"]

Target = Any
Argument = Any
BaseArgumentTypes = Any
base_types: tuple[Any, ...] = (str, int, float, bool, complex, torchlike.dtype, torchlike.Tensor)
base_types += (torchlike.device, torchlike.memory_format, torchlike.layout)

CALLS = ("call_function", "call_method", "call_module")
_legal_ops = dict.fromkeys(("placeholder", *CALLS, "get_attr", "output", "root"))
_RANDOM = (
    "bernoulli multinomial normal poisson rand rand_like randint randint_like randn randn_like "
    "randperm"
)


@functools.cache
def _impure_functions() -> set[Any]:
    import operator

    names = ("_assert", "_assert_async", *_RANDOM.split())
    found = {getattr(torchlike, n) for n in names if hasattr(torchlike, n)}
    return found | {operator.setitem, torchlike._C._set_grad_enabled}


_side_effectful_functions: set[Any] = set()
# The end of a collective, which the other ranks wait for.
_WAIT = "_c10d_functional::wait_tensor"


def has_side_effect(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Notes that calls of this function are to stay in a graph where nobody uses the result."""
    _side_effectful_functions.add(fn)
    return fn


def map_arg(a: Any, fn: Callable[[Node], Any]) -> Any:
    """The argument with `fn` applied to each node in it."""
    if not callable(fn):
        raise AssertionError("torch.fx.map_arg(a, fn): fn must be a callable")
    return map_aggregate(a, lambda x: fn(x) if isinstance(x, Node) else x)


def _is_impure_function(target: Any, impure_random: bool) -> bool:
    if target in _side_effectful_functions or target in _impure_functions():
        return True
    schema = getattr(target, "_schema", None)
    if schema is None:
        return getattr(target, "_qualified_op_name", None) == _WAIT
    if getattr(schema, "is_mutable", False) or schema.name == _WAIT:
        return True
    name = target._schema.name.rpartition("::")[2].rstrip("_")
    if name.startswith("_assert"):
        return True
    tags = getattr(target, "tags", ())
    random = any(str(t).endswith("nondeterministic_seeded") for t in tags)
    return impure_random and (random or name in _RANDOM.split() or name == "dropout")


class Node:
    """One step of a graph.

    What it is, says `op`:

    * `placeholder`: an input of the function, `target` its name, `args` its default if there is one;
    * `get_attr`: a parameter, buffer or other attribute of the module, `target` its path;
    * `call_function`, `call_module`, `call_method`: a call of the function `target`, of the module at the
      path `target`, or of the method `target` of the first argument;
    * `output`: what the function returns, in `args[0]`.
    """

    __slots__ = (
        "__dict__",
        "__weakref__",
        "_args",
        "_erased",
        "_input_nodes",
        "_kwargs",
        "_name",
        "_next",
        "_prev",
        "_repr_fn",
        "_sort_key",
        "graph",
        "meta",
        "op",
        "target",
        "type",
        "users",
    )

    graph: Graph
    op: str
    target: Any
    users: dict[Node, None]
    type: Any
    meta: dict[str, Any]
    _input_nodes: dict[Node, None]
    _args: tuple[Any, ...]
    _kwargs: dict[str, Any]
    _name: str
    _prev: Node
    _next: Node
    _repr_fn: Any
    _erased: bool
    _sort_key: float

    def __init__(
        self,
        graph: Graph,
        name: str,
        op: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        return_type: Any | None = None,
    ) -> None:
        if op == "call_function":
            if not callable(target):
                raise ValueError(_wrong_target(graph, name, target, "Callable"))
        elif op not in _legal_ops:
            raise AssertionError(f"op '{op}' is not in _legal_ops")
        elif not isinstance(target, str):
            raise ValueError(_wrong_target(graph, name, target, "str"))
        self.graph = graph
        self._name = name
        self.op = op
        self.target = target
        self.type = return_type
        self.users = {}
        self.meta = {}
        self._repr_fn = None
        self._erased = False
        self._sort_key = 0.0
        self._prev = self._next = self
        used: dict[Node, None] = {}
        self._input_nodes = used
        self._args = frozen(args, Node, used)
        self._kwargs = frozen(kwargs, Node, used)
        for node in used:
            node.users[self] = None

    # names and neighbours

    @property
    def name(self) -> str:
        """The name of the value, unique in the graph."""
        return self._name

    @name.setter
    def name(self, value: str) -> None:
        owner = self.graph.owning_module
        for hook in getattr(owner, "_replace_hooks", None) or ():
            for user in self.users:
                hook(old=self, new=value, user=user)
        self._name = value

    def _rename(self, candidate: str) -> None:
        if candidate != self._name:
            self.name = self.graph._graph_namespace.create_name(candidate, None)
            self.graph._graph_namespace._rename_object(self, self._name)

    @property
    def next(self) -> Node:
        """The node behind this one."""
        return self._next

    @property
    def prev(self) -> Node:
        """The node before this one."""
        return self._prev

    def prepend(self, x: Node) -> None:
        """Moves `x`, of the same graph, before this node."""
        if self.graph is not x.graph:
            raise AssertionError("Attempting to move a Node into a different Graph")
        if self is x:
            return
        x._unlink()
        before = self._prev
        before._next, x._prev, x._next, self._prev = x, before, self, x
        low = before._sort_key
        high = self._sort_key if self.op != "root" else low + 2.0
        x._sort_key = (low + high) / 2
        if not low < x._sort_key < high:
            self.graph._renumber()

    def append(self, x: Node) -> None:
        """Moves `x`, of the same graph, behind this node."""
        self._next.prepend(x)

    def _unlink(self) -> None:
        self._prev._next, self._next._prev = self._next, self._prev

    def __lt__(self, other: Node) -> bool:
        return self._sort_key < other._sort_key

    def __gt__(self, other: Node) -> bool:
        return self._sort_key > other._sort_key

    def __le__(self, other: Node) -> bool:
        return self is other or self._sort_key < other._sort_key

    def __ge__(self, other: Node) -> bool:
        return self is other or self._sort_key > other._sort_key

    # arguments

    @property
    def args(self) -> tuple[Any, ...]:
        """The arguments by position, with immutable containers."""
        return self._args

    @args.setter
    def args(self, value: tuple[Any, ...]) -> None:
        self._update_args_kwargs(value, self._kwargs)

    @property
    def kwargs(self) -> dict[str, Any]:
        """The arguments by name."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, value: dict[str, Any]) -> None:
        self._update_args_kwargs(self._args, value)

    def _update_args_kwargs(self, args: Any, kwargs: Any) -> None:
        used: dict[Node, None] = {}
        args, kwargs = frozen(args, Node, used), frozen(kwargs, Node, used)
        for node in self._input_nodes:
            node.users.pop(self, None)
        for node in used:
            node.users[self] = None
        self._args, self._kwargs, self._input_nodes = args, kwargs, used

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes among the arguments, each once."""
        return list(self._input_nodes)

    def update_arg(self, idx: int, arg: Any) -> None:
        """Puts another argument at a position."""
        args = list(self._args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx: int, arg: Any) -> None:
        """Puts an argument before a position."""
        if not 0 <= idx <= len(self._args):
            raise AssertionError(
                f"insert_args index must be between 0 and len(self.args), got {idx}"
            )
        new: dict[Node, None] = {}
        arg = frozen(arg, Node, new)
        self._args = (*self._args[:idx], arg, *self._args[idx:])
        self._input_nodes |= new  # those that were there stay in front
        for node in new:
            node.users[self] = None

    def update_kwarg(self, key: str, arg: Any) -> None:
        """Puts another argument under a name."""
        self.kwargs = {**self._kwargs, key: arg}

    def _replace_input_with(self, old: Node, new: Node) -> None:
        def swap(node: Node) -> Node:
            return new if node is old else node

        self._update_args_kwargs(map_arg(self._args, swap), map_arg(self._kwargs, swap))

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Puts another node everywhere one stands in the arguments."""
        for hook in getattr(self.graph.owning_module, "_replace_hooks", None) or ():
            hook(old=old_input, new=new_input.name, user=self)
        self._replace_input_with(old_input, new_input)

    def replace_all_uses_with(
        self,
        replace_with: Node,
        delete_user_cb: Callable[[Node], bool] | None = None,
        *,
        propagate_meta: bool = False,
    ) -> list[Node]:
        """Puts another node everywhere this one is used.

        Args:
            delete_user_cb: says of each user whether it is to change; all do without it.
            propagate_meta: the other node, which has no `meta` yet, takes that of this one.

        Returns:
            The nodes that used this one before, those that were left out as well.
        """
        if propagate_meta:
            if replace_with.meta:
                raise AssertionError(
                    "Called node.replace_all_uses_with(replace_with, propagate_meta=True), "
                    "but replace_with already has .meta keys"
                )
            replace_with.meta.update(self.meta)
        hooks = getattr(self.graph.owning_module, "_replace_hooks", None) or ()
        changed = []
        for user in list(self.users):
            if delete_user_cb is not None and not delete_user_cb(user):
                continue
            changed.append(user)
            for hook in hooks:
                hook(old=self, new=replace_with.name, user=user)
            user._replace_input_with(self, replace_with)
        return changed

    # questions

    def is_impure(self, impure_random: bool = True) -> bool:
        """True if the node does something besides giving its value.

        Args:
            impure_random: whether drawing random numbers counts.
        """
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_module":
            owner = self.graph.owning_module
            if owner is None:
                raise AssertionError("self.graph.owning_module not set for purity check")
            return getattr(owner.get_submodule(self.target), "_is_impure", False)
        if self.op == "call_function":
            return _is_impure_function(self.target, impure_random)
        return False

    def normalized_arguments(
        self,
        root: Any,
        arg_types: tuple[Any, ...] | None = None,
        kwarg_types: dict[str, Any] | None = None,
        normalize_to_only_use_kwargs: bool = False,
    ) -> Any:
        """The arguments as the signature of the target names them; None where there is none."""
        from torchlike.fx.operator_schemas import normalize_function, normalize_module

        if self.op == "call_function":
            return normalize_function(
                self.target,
                self._args,
                self._kwargs,
                arg_types,
                kwarg_types,
                normalize_to_only_use_kwargs,
            )
        if self.op == "call_module":
            return normalize_module(
                root, self.target, self._args, self._kwargs, normalize_to_only_use_kwargs
            )
        return None

    @property
    def stack_trace(self) -> str | None:
        """Where the call stands in the traced program, if that was recorded."""
        return self.meta.get("stack_trace", None)

    @stack_trace.setter
    def stack_trace(self, trace: str | None) -> None:
        self.meta["stack_trace"] = trace

    # text

    def __repr__(self) -> str:
        return self._name if self._repr_fn is None else self._repr_fn(self)

    @staticmethod
    def _pretty_print_target(target: Any) -> str:
        if isinstance(target, str):
            return target
        module, name = getattr(target, "__module__", None), getattr(target, "__name__", None)
        if name is not None and module in ("builtins", "_operator"):
            return f"{module.lstrip('_')}.{name}"
        return _get_qualified_name(target)

    def format_node(
        self,
        placeholder_names: list[str] | None = None,
        maybe_return_typename: list[str] | None = None,
        *,
        include_tensor_metadata: bool = False,
    ) -> str | None:
        """The node as a line of text.

        Args:
            placeholder_names: where the texts of placeholders are collected; those give None then.
            maybe_return_typename: a list whose first entry becomes the type of an output.
            include_tensor_metadata: shapes and types of results, where `meta` has them.
        """
        kind = f"{_type_repr(self.type)} " if self.type is not None else ""
        head = f"%{self._name} : {kind}[num_users={len(self.users)}] = {self.op}"
        if self.op == "placeholder":
            if placeholder_names:
                placeholder_names.append(f"{self.target}: {kind.strip()}" if kind else self.target)
                return None
            default = f"(default={self._args[0]})" if self._args else ""
            return f"{head}[target={self.target}]{default}"
        if self.op == "output":
            if self.type and maybe_return_typename:
                maybe_return_typename[0] = f" -> {_type_repr(self.type)}"
            return f"return {self._args[0]}"
        target = self._pretty_print_target(self.target)
        if self.op == "get_attr":
            return f"{head}[target={target}]"
        if include_tensor_metadata:
            value = _value_of(self)
            if isinstance(value, torchlike.Tensor):
                kind = _tensor_text(value)
                head = f"%{self._name} : {kind}[num_users={len(self.users)}] = {self.op}"
        args, kwargs = _format_arg(self._args), _format_arg(self._kwargs)
        return f"{head}[target={target}](args = {args}, kwargs = {kwargs})"

    # copies

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        for name in Node.__slots__:
            if not name.startswith("__"):
                state[name] = getattr(self, name)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)


def _wrong_target(graph: Any, name: str, target: Any, wanted: str) -> str:
    from torchlike._tensor import typename

    return (
        f"Node [graph = {graph}, name = '{name}'] target {target} has type "
        f"{typename(target)} but a {wanted} is expected"
    )


def _value_of(node: Node) -> Any:
    """What a pass noted of a node's value."""
    meta = node.meta
    return meta.get("val", meta.get("tensor_meta", meta.get("example_value")))


_ABBREVIATIONS = {
    "bfloat16": "bf16", "float64": "f64", "float32": "f32", "float16": "f16",
    "float8_e4m3fn": "f8e4m3fn", "float8_e5m2": "f8e5m2", "float8_e4m3fnuz": "f8e4m3fnuz",
    "float8_e5m2fnuz": "f8e5m2fnuz", "float8_e8m0fnu": "f8e8m0fnu", "complex32": "c32",
    "complex64": "c64", "complex128": "c128", "int8": "i8", "int16": "i16", "int32": "i32",
    "int64": "i64", "bool": "b8", "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
}  # fmt: skip


def dtype_abbreviation(dtype: Any) -> str:
    """`f32` for float32."""
    name = str(dtype).rpartition(".")[2]
    return _ABBREVIATIONS.get(name, name)


def shape_text(shape: Sequence[Any]) -> str:
    """Sizes in brackets."""
    return f"[{', '.join(map(str, shape))}]"


def _tensor_text(value: Any) -> str:
    return (
        f'Tensor "{dtype_abbreviation(value.dtype)}{shape_text(value.shape)}'
        f'{shape_text(value.stride())}{value.device}"'
    )
