"""Which call of which module makes a node, and with what modules are called whose signature is to be kept."""

from __future__ import annotations

import contextlib
import functools
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from torchlike.export.graph_signature import ConstantArgument, TensorArgument
from torchlike.fx._patching import _Patch
from torchlike.fx.interpreter import Interpreter
from torchlike.fx.node import Node, has_side_effect
from torchlike.nn import Module
from torchlike.utils import _pytree as pytree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from torchlike.fx.graph import Graph

ROOT = "L__self__"


@has_side_effect
def tracepoint(*_: Any) -> None:
    """Marks, while a graph is made, the values that a module is called with or gives."""


def call_name(path: str, number: int) -> str:
    """The name of one of several calls of a module."""
    return path if not number else f"{path}@{number}"


def class_name(module: Any) -> str:
    """The path of a module's class, as PyTorch has it."""
    kind = type(module)
    home = kind.__module__
    if home == "torchlike" or home.startswith("torchlike."):
        home = "torch" + home.removeprefix("torchlike")
    return f"{home}.{kind.__qualname__}"


class Calls:
    """Follows the calls of a model's modules while it is traced.

    Args:
        preserved: paths of the modules whose calls are noted with their arguments and results.
        note: makes a node with these arguments, where tensors are.
        root: what names of calls begin with.
    """

    def __init__(
        self,
        model: Module,
        tracer: Any,
        preserved: Iterable[str],
        note: Callable[..., Any],
        root: str = ROOT,
    ) -> None:
        self.root = root
        self.paths = {id(m): path for path, m in model.named_modules()}
        self.kept = {id(model.get_submodule(path)) for path in preserved}
        self.tracer, self.note = tracer, note
        self.counts: dict[str, int] = {}
        self.specs: dict[str, tuple[Any, Any]] = {}

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Inside, each call of a module of the model is on the tracer's stack."""
        original = Module.__call__

        @functools.wraps(original)
        def call(module: Module, *args: Any, **kwargs: Any) -> Any:
            path = self.paths.get(id(module))
            if path is None:
                return original(module, *args, **kwargs)
            return self._call(original, path, module, args, kwargs)

        patch = _Patch(Module, "__call__", call)
        patch.apply()
        try:
            yield
        finally:
            patch.revert()

    def _call(self, original: Any, path: str, module: Module, args: Any, kwargs: Any) -> Any:
        number = self.counts.get(path, 0)
        self.counts[path] = number + 1
        name = call_name(path, number)
        stack = self.tracer.module_stack
        stack[self.root + name] = (path, class_name(module))
        try:
            if id(module) not in self.kept:
                return original(module, *args, **kwargs)
            leaves, in_spec = pytree.tree_flatten((args, kwargs))
            self.note(name, "inputs", *leaves)
            result = original(module, *args, **kwargs)
            leaves, out_spec = pytree.tree_flatten(result)
            self.note(name, "outputs", *leaves)
            self.specs[name] = (in_spec, out_spec)
            return result
        finally:
            stack.popitem()


class Replay(Interpreter):
    """Runs the module of a program for a trace, whose nodes are as if the modules were called."""

    def __init__(self, module: Any, tracer: Any) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.tracer = tracer

    def run_node(self, n: Node) -> Any:
        """The value of a node; what is recorded meanwhile stands where the node does."""
        self.tracer.module_stack = OrderedDict(n.meta.get("nn_module_stack", ()))
        try:
            return super().run_node(n)
        finally:
            self.tracer.module_stack = OrderedDict()

    def note_signatures(self, signatures: dict[str, Any], note: Callable[..., Any]) -> None:
        """Notes the arguments and results of calls anew."""
        values = {n.meta.get("input", n.name): value for n, value in self.env.items()}
        for name, signature in signatures.items():
            for which in ("inputs", "outputs"):
                given = getattr(signature, which)
                found = [
                    a.value if isinstance(a, ConstantArgument) else values[a.name] for a in given
                ]
                note(name, which, *found)


def taken_out(graph: Graph) -> dict[str, dict[str, list[Any]]]:
    """Takes the marks out of a graph: what each call was given, and what it gave."""
    found: dict[str, dict[str, list[Any]]] = {}
    for node in graph.nodes:
        if node.op == "call_function" and node.target is tracepoint:
            name, which, *values = node.args
            found.setdefault(name, {})[which] = [
                TensorArgument(v.name) if isinstance(v, Node) else ConstantArgument("", v)
                for v in values
            ]
            graph.erase_node(node)
    return found
