"""What passes over graphs have in common: names of targets, kinds of values, orders of nodes."""

from __future__ import annotations

import collections
import heapq
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torchlike
from torchlike.fx.graph import Graph
from torchlike.fx.node import CALLS, Node, _get_qualified_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torchlike.fx.graph_module import GraphModule

__all__ = [
    "FxNetAccFusionsFinder",
    "get_acc_ops_name",
    "get_node_target",
    "is_node_output_tensor",
    "legalize_graph",
    "stable_topological_sort",
]

# Checks of sizes are made of these, and are to stand before what relies on them.
_FIRST = frozenset(
    {operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod}
    | {operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne}
    | {
        getattr(getattr(torchlike.ops.aten, name), overload)
        for name, overload in (
            ("sym_constrain_range", "default"),
            ("sym_constrain_range_for_size", "default"),
            ("_assert_async", "msg"),
            ("scalar_tensor", "default"),
            ("_assert_scalar", "default"),
        )
    }
)

Tensors = Any
TensorOrTensors = Any
NodeList = list[Node]
NodeSet = set[Node]
Names = list[str]
CALLABLE_NODE_OPS = set(CALLS)


def get_acc_ops_name(k: Any) -> str:
    """The name of a target, as accelerators' tables have it."""
    if isinstance(k, str):
        return k
    if k.__module__ and "acc_ops" in k.__module__:
        return f"acc_ops.{k.__name__}"
    module = k.__module__.replace("torch._ops", "torch.ops")
    return f"{module if module else ''}.{k.__name__}"


def get_node_target(submodules: Mapping[str, Any], node: Node) -> str:
    """The class of the module, the function or the method that a node calls, as text."""
    from torchlike._tensor import typename

    if node.op not in CALLABLE_NODE_OPS:
        raise AssertionError(
            f"Expect op types of {', '.join(CALLABLE_NODE_OPS)}, but found {node.op}"
        )
    if node.op == "call_module":
        below = submodules[node.target]
        return typename(getattr(below, "_base_class_origin", type(below)))
    if node.op == "call_function":
        func = node.target
        inner = func.__module__ is not None and "acc_ops" in func.__module__
        return f"acc_ops.{func.__name__}" if inner else _get_qualified_name(func)
    return node.target


def is_node_output_tensor(node: Node) -> bool:
    """True if a pass noted that the value is a tensor."""
    kind = node.meta.get("type", None)
    return kind is not None and issubclass(kind, torchlike.Tensor)


class FxNetAccFusionsFinder:
    """Groups of nodes that have to stay together, as values between them are no tensors."""

    @dataclass
    class FusionGroup:
        """Nodes that stay together, where they begin, and what they use."""

        top_node_idx: int
        nodes: set[Node]
        inputs: set[Node]
        nodes_need_process: set[Node]

        def add_node(self, node: Node) -> None:
            """Puts a node into the group."""
            if node in self.nodes:
                return
            self.nodes_need_process.add(node)
            self.nodes.add(node)
            self.inputs.discard(node)
            self.inputs.update(
                n for n in node.all_input_nodes if n.op in CALLABLE_NODE_OPS and n not in self.nodes
            )

    def __init__(self, module: GraphModule, acc_nodes: set[Node]) -> None:
        self.module = module
        self.nodes = list(module.graph.nodes)
        self.acc_nodes = acc_nodes

    def recursive_add_node(
        self, fusion_group: FusionGroup, inputs: Any, visited: set[Node] | None = None
    ) -> bool:
        """Adds what lies between inputs and the group, if they lead back into it."""
        seen = visited if visited is not None else set()
        for arg in inputs:
            if arg in seen:
                continue
            seen.add(arg)
            if arg.op not in CALLABLE_NODE_OPS:
                continue
            if self.nodes.index(arg) < fusion_group.top_node_idx:
                continue
            if arg in fusion_group.nodes:
                return True
            if self.recursive_add_node(fusion_group, arg.all_input_nodes, seen):
                fusion_group.add_node(arg)
                return True
        return False

    def __call__(self) -> dict[Node, set[Node]]:
        """For each node of a group all nodes of it."""
        result: dict[Node, set[Node]] = {}
        for node in list(self.acc_nodes):
            if node in result or node.op not in CALLABLE_NODE_OPS:
                continue
            if "tensor_meta" in node.meta or node not in self.acc_nodes:
                continue
            group = self._group(node)
            if not group.nodes <= self.acc_nodes:
                self.acc_nodes -= group.nodes
            else:
                result.update(dict.fromkeys(group.nodes, group.nodes))
        return result

    def _group(self, node: Node) -> FusionGroup:
        group = self.FusionGroup(self.nodes.index(node), {node}, set(node.all_input_nodes), {node})
        while group.nodes_need_process:
            node = group.nodes_need_process.pop()
            self.recursive_add_node(group, group.inputs)
            if "tensor_meta" not in node.meta:
                for user in node.users:
                    if user.op in CALLABLE_NODE_OPS and user not in group.nodes:
                        group.add_node(user)
                        self.recursive_add_node(group, group.inputs)
            for arg in node.all_input_nodes:
                if arg.op not in CALLABLE_NODE_OPS or "tensor_meta" in arg.meta:
                    continue
                if arg not in group.nodes:
                    group.add_node(arg)
                    group.top_node_idx = min(group.top_node_idx, self.nodes.index(arg))
                    self.recursive_add_node(group, group.inputs)
        return group


def _rebuilt(gm: GraphModule, order: list[Node]) -> GraphModule:
    """The module with a graph in another order."""
    old = gm.graph
    if len(order) < len(old.nodes):
        raise RuntimeError(
            f"Input graph has cycles, unable to add {[n for n in old.nodes if n not in set(order)]}"
        )
    made: dict[Node, Node] = {}
    new = Graph(tracer_cls=old._tracer_cls, tracer_extras=old._tracer_extras)
    for node in order:
        made[node] = new.node_copy(node, lambda n: made[n])
    new._codegen = old._codegen
    gm.graph = new
    return gm


def legalize_graph(gm: GraphModule) -> GraphModule:
    """The module with each node behind what it uses; inputs first, as far as that leaves it open.

    Raises:
        RuntimeError: if nodes use each other in a circle.
    """
    nodes = list(gm.graph.nodes)
    waiting = {n: len(n.all_input_nodes) for n in nodes}
    ready: collections.deque[Node] = collections.deque(n for n in nodes if not waiting[n])
    order: list[Node] = []
    while ready:
        node = ready.popleft()
        order.append(node)
        for user in node.users:
            waiting[user] -= 1
            if not waiting[user]:
                ready.appendleft(user) if user.target in _FIRST else ready.append(user)
    return _rebuilt(gm, order)


def stable_topological_sort(gm: GraphModule) -> GraphModule:
    """The module with each node behind what it uses, otherwise in the order it had.

    Raises:
        RuntimeError: if nodes use each other in a circle.
    """
    nodes = list(gm.graph.nodes)
    place = {n: i for i, n in enumerate(nodes)}
    waiting = {n: len(n.all_input_nodes) for n in nodes}
    ready = [i for i, n in enumerate(nodes) if not waiting[n]]
    heapq.heapify(ready)
    order = []
    while ready:
        node = nodes[heapq.heappop(ready)]
        order.append(node)
        for user in node.users:
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, place[user])
    return _rebuilt(gm, order)
