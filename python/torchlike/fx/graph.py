"""A graph: nodes in the order in which they run."""

from __future__ import annotations

import contextlib
import copy
from typing import TYPE_CHECKING, Any

from torchlike.fx._codegen import (  # noqa: F401  (PyTorch has these names here)
    CodeGen,
    PythonCode,
    _BoxedCodeGen,
    _format_target,
    _parse_stack_trace,
    _ParsedStackTrace,
    _PyTreeCodeGen,
    _PyTreeInfo,
    inplace_methods,
    magic_methods,
    reflectable_magic_methods,
)
from torchlike.fx._lint import lint
from torchlike.fx._names import (  # noqa: F401
    _custom_builtins,
    _CustomBuiltin,
    _function_name,
    _illegal_names,
    _is_from_torch,
    _Namespace,
    _register_custom_builtin,
    _snake_case,
)
from torchlike.fx._writer import _GENERIC as _origin_type_map  # noqa: F401
from torchlike.fx.node import Node, _get_qualified_name, _type_repr, map_arg  # noqa: F401

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["CodeGen", "Graph", "PythonCode"]

_MISSING: Any = object()


class _InsertPoint:
    """Where new nodes go, until a `with` statement ends."""

    def __init__(self, graph: Graph, new_insert: Callable[..., None]) -> None:
        self.graph = graph
        self.orig_insert, graph._insert = graph._insert, new_insert

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        self.graph._insert = self.orig_insert


class _node_list:
    """The nodes of a graph, in one direction; the graph may change while they are walked."""

    __slots__ = ("direction", "graph")

    def __init__(self, graph: Graph, direction: str = "_next") -> None:
        if direction not in ("_next", "_prev"):
            raise AssertionError(f"direction must be '_next' or '_prev', got {direction}")
        self.graph = graph
        self.direction = direction

    def __len__(self) -> int:
        return self.graph._len

    def __iter__(self) -> Iterator[Node]:
        root = self.graph._root
        forward = self.direction == "_next"
        node = root._next if forward else root._prev
        while node is not root:
            if not node._erased:
                yield node
            node = node._next if forward else node._prev

    def __reversed__(self) -> _node_list:
        return _node_list(self.graph, "_prev" if self.direction == "_next" else "_next")


class Graph:
    """A program of calls, inputs and attributes: what tracing records, and what is rewritten.

    New nodes go to the end, or where `inserting_before` and `inserting_after` say.
    """

    def __init__(
        self,
        owning_module: Any = None,
        tracer_cls: type[Any] | None = None,
        tracer_extras: dict[str, Any] | None = None,
    ) -> None:
        self._root: Node = Node(self, "", "root", "", (), {})
        self._insert: Callable[[Node], None] = self._root.prepend
        self._len = 0
        self._graph_namespace = _Namespace()
        self._owning_module = owning_module
        self._tracer_cls = tracer_cls
        self._tracer_extras = tracer_extras
        self._codegen = CodeGen()
        self._co_fields: dict[str, Any] = {}

    @property
    def owning_module(self) -> Any:
        """The module whose function this is, if there is one."""
        return self._owning_module

    @owning_module.setter
    def owning_module(self, mod: Any) -> None:
        self._owning_module = mod

    @property
    def nodes(self) -> _node_list:
        """All nodes, in order."""
        return _node_list(self)

    def _renumber(self) -> None:
        """Gives the nodes new numbers for comparisons, where there is no room between old ones."""
        for i, node in enumerate(self.nodes):
            node._sort_key = float(i + 1)

    def output_node(self) -> Node:
        """The node that returns."""
        last = self._root._prev
        if last.op != "output":
            raise AssertionError(f"Expected output node, got op={last.op}")
        return last

    def find_nodes(self, *, op: str, target: Any = None, sort: bool = True) -> list[Node]:
        """The nodes of an operation, and of a target where one is given."""
        if op == "call_function" and target is None:
            raise AssertionError("target must not be None for call_function op")
        return [n for n in self.nodes if n.op == op and (target is None or n.target == target)]

    # making nodes

    def create_node(
        self,
        op: str,
        target: Any,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        name: str | None = None,
        type_expr: Any | None = None,
    ) -> Node:
        """Puts a node at the place where new ones go.

        Args:
            op: the kind of node.
            target: what it calls, fetches or is.
            name: a name for the value, without it one made of the target.
            type_expr: the type of the value, for annotations.
        """
        if args is None:
            args = ()
        elif not isinstance(args, tuple):
            raise AssertionError(f"args must be a tuple, got {type(args)}")
        if kwargs is None:
            kwargs = {}
        elif not isinstance(kwargs, dict):
            raise AssertionError(f"kwargs must be a dict, got {type(kwargs)}")
        if not name:
            name = self._target_to_str(target)
        name = self._graph_namespace.create_name(name, None)
        node = Node(self, name, op, target, args, kwargs, type_expr)
        self._graph_namespace._obj_to_name[node] = name
        owner = self._owning_module
        self._insert(node)
        self._len += 1
        if owner is not None:
            for hook in getattr(owner, "_create_node_hooks", None) or ():
                hook(node)
        return node

    def placeholder(
        self, name: str, type_expr: Any | None = None, default_value: Any = _MISSING
    ) -> Node:
        """An input; the empty value of `inspect` says that it has no default."""
        import inspect

        given = default_value is not _MISSING and default_value is not inspect.Signature.empty
        args = (default_value,) if given else ()
        return self.create_node("placeholder", name, args=args, type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any | None = None) -> Node:
        """The value of an attribute of the module, by its path."""
        owner = self._owning_module
        if owner is not None and _reachable(owner, qualified_name) is None:
            import warnings

            warnings.warn(
                "Attempted to insert a get_attr Node with no underlying reference in the owning "
                "GraphModule! Call GraphModule.add_submodule to add the necessary submodule, "
                "GraphModule.add_parameter to add the necessary Parameter, or "
                "nn.Module.register_buffer to add the necessary buffer",
                stacklevel=2,
            )
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(
        self,
        module_name: str,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        type_expr: Any | None = None,
    ) -> Node:
        """A call of the module at a path."""
        owner = self._owning_module
        if owner is not None and owner.get_submodule(module_name) is None:
            import warnings

            warnings.warn(
                "Attempted to insert a call_module Node with no underlying reference in the "
                "owning GraphModule! Call GraphModule.add_submodule to add the necessary submodule",
                stacklevel=2,
            )
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def call_method(
        self,
        method_name: str,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        type_expr: Any | None = None,
    ) -> Node:
        """A call of a method of the first argument."""
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_function(
        self,
        the_function: Callable[..., Any],
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        type_expr: Any | None = None,
        name: str | None = None,
    ) -> Node:
        """A call of a function."""
        return self.create_node(
            "call_function", the_function, args, kwargs, name=name, type_expr=type_expr
        )

    def output(self, result: Any, type_expr: Any | None = None) -> Node:
        """What the function returns."""
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def node_copy(self, node: Node, arg_transform: Callable[[Node], Any] = lambda x: x) -> Node:
        """A copy of a node of another graph.

        Args:
            arg_transform: gives for each node among the arguments what stands there here.
        """
        args = map_arg(node._args, arg_transform)
        kwargs = map_arg(node._kwargs, arg_transform)
        made = self.create_node(node.op, node.target, args, kwargs, node._name, node.type)
        made.meta = copy.copy(node.meta)
        return made

    def graph_copy(
        self, g: Graph, val_map: dict[Node, Any], return_output_node: bool = False
    ) -> Any:
        """Copies the nodes of another graph, but for its output.

        Args:
            val_map: what stands here for nodes there; nodes that are in it are not copied.
            return_output_node: gives the output node of the other graph, too.

        Returns:
            What the other graph returns, in terms of this one; None if it does not return.
        """
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                value = map_arg(node._args[0], lambda n: val_map[n])
                return (value, node) if return_output_node else value
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Graph:
        memo = memo if memo is not None else {}
        made = Graph(tracer_cls=self._tracer_cls, tracer_extras=self._tracer_extras)
        val_map: dict[Node, Any] = {}
        made._codegen = copy.deepcopy(self._codegen, memo)
        result = made.graph_copy(self, val_map, return_output_node=True)
        memo.update((id(old), new) for old, new in val_map.items())
        if result is not None:
            value, old = result
            new = made.output(value, type_expr=old.type)
            new.meta = copy.copy(old.meta)
            memo[id(old)] = new
        return made

    # changing

    def erase_node(self, to_erase: Node) -> None:
        """Takes a node that nobody uses out of the graph."""
        if to_erase.users:
            raise RuntimeError(
                f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} "
                f"users in the graph: {to_erase.users}!"
            )
        if to_erase.graph is not self:
            raise RuntimeError(f"Attempting to remove {to_erase} from wrong graph!")
        if to_erase._erased:
            import warnings

            warnings.warn(f"erase_node({to_erase}) on an already erased node", stacklevel=2)
            return
        for hook in getattr(self._owning_module, "_erase_node_hooks", None) or ():
            hook(to_erase)
        to_erase._unlink()
        to_erase._erased = True
        self._len -= 1
        to_erase._update_args_kwargs((), {})

    def inserting_before(self, n: Node | None = None) -> _InsertPoint:
        """New nodes go before `n`, or to the front; in a `with` statement, until its end."""
        if n is None:
            return self.inserting_after(self._root)
        if n.graph is not self:
            raise AssertionError("Node to insert before is not in graph.")
        return _InsertPoint(self, n.prepend)

    def inserting_after(self, n: Node | None = None) -> _InsertPoint:
        """New nodes go behind `n`, or to the end; in a `with` statement, until its end."""
        if n is None:
            return self.inserting_before(self._root)
        if n.graph is not self:
            raise AssertionError("Node to insert after is not in graph.")
        return _InsertPoint(self, n.append)

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Takes nodes out that nobody uses and that do nothing else.

        Args:
            is_impure_node: says of a node whether it has to stay; `Node.is_impure` without it.

        Returns:
            True if there were any.
        """
        from torchlike.fx.graph_module import GraphModule

        self.lint()
        impure = is_impure_node if is_impure_node is not None else Node.is_impure
        changed = False
        for node in reversed(self.nodes):
            if not node.users and not impure(node):
                self.erase_node(node)
                changed = True
        if self._owning_module is not None:
            used = {n.target for n in self.nodes if n.op == "get_attr"}
            for name, child in self._owning_module.named_children():
                if name in used and isinstance(child, GraphModule):
                    changed |= child.graph.eliminate_dead_code()
                    child.recompile()
        return changed

    def _clear_nodes(self) -> None:
        for node in reversed(self.nodes):
            node.meta.clear()
            self.erase_node(node)

    def lint(self) -> None:
        """Checks that nodes belong here, stand in order and refer to what exists.

        Raises:
            RuntimeError: if one does not.
        """
        lint(self)

    # code and text

    def process_inputs(self, *args: Any) -> Any:
        """What the placeholders receive, of what the function is called with."""
        return self._codegen.process_inputs(*args)

    def process_outputs(self, out: Any) -> Any:
        """What the function returns, of what stands in the output node."""
        return self._codegen.process_outputs(out)

    def _target_to_str(self, target: Any) -> str:
        if callable(target):
            name = _function_name(target)
        else:
            if not isinstance(target, str):
                raise AssertionError(f"Expected target to be str, got {type(target)}")
            name = target
            if name.startswith("__") and name.endswith("__"):
                name = name[2:-2]
        return _snake_case(name)

    def python_code(
        self,
        root_module: str,
        *,
        verbose: bool = False,
        include_stride: bool = False,
        include_device: bool = False,
        colored: bool = False,
        expanded_def: bool = False,
        record_func: bool = False,
        additional_meta: list[str] | None = None,
    ) -> PythonCode:
        """The graph as the source of a function.

        Args:
            root_module: the name of the module in it, usually `self`.
            verbose: with shapes and places in the traced program, where they are known.
        """
        return self._codegen._gen_python_code(
            self.nodes,
            root_module,
            _Namespace(),
            verbose=verbose,
            include_stride=include_stride,
            include_device=include_device,
            colored=colored,
            expanded_def=expanded_def,
            record_func=record_func,
            additional_meta=additional_meta,
        )

    def set_codegen(self, codegen: CodeGen) -> None:
        """Chooses how the function takes its arguments and returns."""
        self._codegen = codegen

    def on_generate_code(
        self, make_transformer: Callable[[Any], Callable[[list[str]], list[str]]]
    ) -> contextlib.AbstractContextManager[None]:
        """Registers a function that changes the lines of generated code.

        Args:
            make_transformer: gets the function registered before, or None, and gives the new one.

        Returns:
            A context manager that brings the old one back.
        """
        before = self._codegen._body_transformer
        self._codegen._body_transformer = make_transformer(before)

        @contextlib.contextmanager
        def restoring() -> Iterator[None]:
            try:
                yield
            finally:
                self._codegen._body_transformer = before

        return restoring()

    def __str__(self) -> str:
        names: list[str] = []
        lines = [n.format_node(names) for n in self.nodes]
        head = f"graph({', '.join(names)}):"
        return "".join([head, *(f"\n    {line}" for line in lines if line)])

    def print_tabular(self) -> None:
        """Prints the nodes as a table; needs the package `tabulate`."""
        try:
            from tabulate import tabulate  # type: ignore[import-untyped]
        except ImportError:
            print(
                "`print_tabular` relies on the library `tabulate`, which could not be found on "
                "this machine. Run `pip install tabulate` to install the library."
            )
            raise
        rows = [[n.op, n.name, n.target, n.args, n.kwargs] for n in self.nodes]
        print(tabulate(rows, headers=["opcode", "name", "target", "args", "kwargs"]))


def _reachable(module: Any, path: str) -> Any:
    """What stands at a path below a module, or None."""
    here = module
    for part in path.split("."):
        here = getattr(here, part, None)
        if here is None:
            return None
    return here
