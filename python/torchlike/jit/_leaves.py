"""A call that is no operator of TorchScript, as the operators that it comes down to."""

from __future__ import annotations

import ast
import operator
from typing import TYPE_CHECKING, Any

import torchlike
from torchlike.fx.experimental.proxy_tensor import READS, ProxyTorchDispatchMode, PythonKeyTracer
from torchlike.fx.graph import Graph
from torchlike.fx.node import Node
from torchlike.jit import _spelling
from torchlike.jit._parts_of_code import call
from torchlike.utils import _pytree as pytree

if TYPE_CHECKING:
    from torchlike.jit._watch import Watch

Tensor = torchlike.Tensor


def written(
    watch: Watch, func: Any, args: Any, kwargs: Any
) -> tuple[Any, list[ast.stmt], list[tuple[Any, ast.expr]]]:
    """What a call gives, the statements that compute it, and the tensors that it made with their code.

    Raises:
        NotImplementedError: if a tensor is made by no operator.
    """
    given = _tensors((args, kwargs))
    tracer = PythonKeyTracer()
    tracer.root, tracer.graph = torchlike.nn.Module(), Graph()
    codes: dict[Node, ast.expr] = {}
    for i, tensor in enumerate(given):
        proxy = tracer.create_proxy("placeholder", f"given_{i}", (), {})
        tracer.track(tensor, proxy)
        codes[proxy.node] = watch.node(tensor)
    with ProxyTorchDispatchMode(tracer, _error_on_data_dependent_ops=False):
        value = func(*args, **kwargs)
    if not _tensors(value) and not any(_writes(n) for n in tracer.graph.nodes):
        return value, [], []
    made = [t for t in _tensors(value) if all(t is not g for g in given)]
    body = [s for n in tracer.graph.nodes for s in _statement(watch, tracer.root, codes, n)]
    nodes = []
    for tensor in made:
        found = tracer.find(tensor)
        if found is None:
            raise NotImplementedError(f"jit.trace: {func!r} is no operator of TorchScript")
        nodes.append((tensor, codes[found.node]))
    return value, body, nodes


def _tensors(value: Any) -> list[Any]:
    return [t for t in pytree.tree_leaves(value) if isinstance(t, Tensor)]


def _writes(node: Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable


def _statement(watch: Watch, root: Any, codes: dict[Node, ast.expr], node: Node) -> list[ast.stmt]:
    """The code of a node of a graph; it is noted how the node's value is called in it."""
    if node.op == "placeholder":
        return []
    if node.op == "get_attr":
        codes[node] = watch.node(getattr(root, str(node.target)))
        return []
    if node.target is operator.getitem:
        of, place = node.args
        codes[node] = ast.Subscript(codes[of], ast.Constant(place), ast.Load())
        return []
    overload: Any = node.target
    if overload._schema.name in READS:
        name = overload._schema.name.partition("::")[2]
        watch.warn_of(name)
        return []

    def code(value: Any) -> ast.expr:
        if isinstance(value, Node):
            return codes[value]
        if isinstance(value, list | tuple):
            return ast.List([code(v) for v in value], ast.Load())
        return watch.node(value)

    words = [ast.keyword(k, code(v)) for k, v in node.kwargs.items()]
    made = call(_spelling.path(overload._schema.name), [code(a) for a in node.args], words)
    if not overload._schema.returns:
        return [ast.Expr(made)]
    fresh = watch.fresh()
    codes[node] = ast.Name(fresh, ast.Load())
    return [ast.Assign([ast.Name(fresh, ast.Store())], made)]
