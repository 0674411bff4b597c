"""Running a graph node by node; what is done with each can be overridden."""

from __future__ import annotations

import contextlib
import inspect
from typing import TYPE_CHECKING, Any

from torchlike.fx import traceback as fx_traceback
from torchlike.fx._arguments import PLAIN
from torchlike.fx._symbolic_trace import Tracer
from torchlike.fx._writer import _last_uses
from torchlike.fx.graph import Graph
from torchlike.fx.graph_module import GraphModule
from torchlike.fx.node import Node, map_aggregate, map_arg
from torchlike.fx.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator


__all__ = ["Interpreter", "Transformer"]


class Interpreter:
    """Runs the graph of a module, one node after the other.

    Args:
        module: what has the parameters and modules that the graph names, and the graph.
        garbage_collect_values: values are let go after their last use; otherwise all stay in `env`.
        graph: the graph, if it is not the module's.
    """

    def __init__(
        self, module: Any, garbage_collect_values: bool = True, graph: Graph | None = None
    ) -> None:
        self.module = module
        self.submodules = dict(module.named_modules())
        self.graph: Graph = module.graph if graph is None else graph
        self.env: dict[Node, Any] = {}
        self.name = "Interpreter"
        self.garbage_collect_values = garbage_collect_values
        self.extra_traceback = True
        self.args_iter: Iterator[Any] = iter(())
        if garbage_collect_values:
            self.user_to_last_uses: dict[Node, list[Node]] = _last_uses(list(self.graph.nodes))

    def run(
        self,
        *args: Any,
        initial_env: dict[Node, Any] | None = None,
        enable_io_processing: bool = True,
    ) -> Any:
        """The result of the module for these arguments.

        Args:
            initial_env: values of some nodes, which are not run.
            enable_io_processing: arguments and results have the form that the graph's function has.
        """
        self.env = env = initial_env if initial_env is not None else {}
        if enable_io_processing:
            args = self.graph.process_inputs(*args)
        self.args_iter = iter(args)
        for node in self.graph.nodes:
            if node in env:
                continue
            try:
                env[node] = self.run_node(node)
            except Exception as e:
                self._explain(e, node)
                raise
            if self.garbage_collect_values:
                for gone in self.user_to_last_uses.get(node, ()):
                    del env[gone]
            if node.op == "output":
                result = env[node]
                return self.graph.process_outputs(result) if enable_io_processing else result
        return None

    def _explain(self, e: Exception, node: Node) -> None:
        """Says in the message of an error at which node it happened."""
        if not self.extra_traceback:
            return
        text = f"While executing {node.format_node()}"
        if e.args:
            text = f"{e.args[0]}\n\n{text}"
        text += f"\nOriginal traceback:\n{node.stack_trace}"
        text += "\nUse tlparse to see full graph. "
        text += "(https://github.com/pytorch/tlparse?tab=readme-ov-file#tlparse-parse-structured-pt2-logs)"
        e.args = (text, *e.args[1:])
        if isinstance(e, KeyError):
            raise RuntimeError(*e.args) from e

    def boxed_run(self, args_list: list[Any]) -> Any:
        """The result for a list of arguments, which is emptied so that they can be freed early."""
        inputs = [n for n in self.graph.nodes if n.op == "placeholder"]
        if len(args_list) != len(inputs):
            detail = "extra" if len(args_list) > len(inputs) else "missing"
            raise RuntimeError(
                f"Interpreter.boxed_run expected {len(inputs)} arguments for placeholders "
                f"but received {len(args_list)} ({detail} arguments)"
            )
        env = dict(zip(inputs, args_list, strict=True))
        args_list.clear()
        return self.run(initial_env=env)

    @contextlib.contextmanager
    def _set_current_node(self, node: Node) -> Iterator[None]:
        with fx_traceback.set_current_meta(node, f"Interpreter_{type(self).__name__}"):
            yield

    def run_node(self, n: Node) -> Any:
        """The value of a node: what the method of its `op` gives."""
        if fx_traceback.should_preserve_node_meta:
            with self._set_current_node(n):
                args, kwargs = self.fetch_args_kwargs_from_env(n)
                return getattr(self, n.op)(n.target, args, kwargs)
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n.op)(n.target, args, kwargs)

    def placeholder(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An input: the next argument."""
        if target.startswith("*"):
            return list(self.args_iter)
        try:
            return next(self.args_iter)
        except StopIteration as e:
            if args:
                return args[0]
            raise RuntimeError(
                f"Expected positional argument for parameter {target}, but one was not passed in!"
            ) from e

    def get_attr(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An attribute of the module."""
        return self.fetch_attr(target)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call of a function."""
        return target(*args, **kwargs)

    def call_method(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call of a method of the first argument."""
        return getattr(args[0], target)(*args[1:], **kwargs)

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call of a module."""
        return self.fetch_attr(target)(*args, **kwargs)

    def output(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result."""
        return args[0]

    def fetch_attr(self, target: str) -> Any:
        """What stands at a path below the module.

        Raises:
            RuntimeError: if nothing does.
        """
        here: Any = self.module
        atoms = target.split(".")
        for i, atom in enumerate(atoms):
            if not hasattr(here, atom):
                raise RuntimeError(f"Node referenced nonexistent target {'.'.join(atoms[: i + 1])}")
            here = getattr(here, atom)
        return here

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a node, with values in place of nodes."""
        return self.map_nodes_to_values(n._args, n), self.map_nodes_to_values(n._kwargs, n)

    def map_nodes_to_values(self, args: Any, n: Node) -> Any:
        """An argument of a node, with values in place of nodes."""
        env = self.env
        if type(args) is tuple and all(type(a) is Node or type(a) in PLAIN for a in args):
            try:
                return tuple([env[a] if type(a) is Node else a for a in args])
            except KeyError:
                pass
        elif not args and type(args) is not Node:
            return map_aggregate(args, lambda x: x)

        def load(arg: Node) -> Any:
            if arg not in env:
                raise RuntimeError(
                    f"Node {n} referenced nonexistent value {arg}! Run Graph.lint() "
                    "to diagnose such issues"
                )
            return env[arg]

        return map_arg(args, load)


class _TransformerTracer(Tracer):
    """Adds nodes to the new graph; no module is traced into."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        self.tensor_attrs = {}

    def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
        """True."""
        return True


class Transformer(Interpreter):
    """Makes another module of a graph: the methods see each node, and give stand-ins for new ones."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.new_graph = Graph()
        self.new_graph.set_codegen(module.graph._codegen)
        self.tracer = _TransformerTracer(self.new_graph)
        self.tracer.root = module

    def placeholder(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Proxy:
        """An input of the new graph."""
        default = args[0] if args else inspect.Signature.empty
        return Proxy(self.new_graph.placeholder(target, default_value=default), self.tracer)

    def get_attr(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Proxy:
        """An attribute, in the new graph."""
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_module(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call of a module, in the new graph."""
        below = self.fetch_attr(target)
        return self.tracer.call_module(below, below.forward, args, kwargs)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call of a function, in the new graph."""
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def transform(self) -> GraphModule:
        """The new module."""
        with fx_traceback.preserve_node_meta():
            result = super().run(enable_io_processing=False)
        if result is not None:
            value = map_aggregate(result, lambda a: a.node if isinstance(a, Proxy) else a)
            output = self.new_graph.output(value)
            output.meta.update(self.graph.output_node().meta)
        return GraphModule(self.module, self.new_graph)
