"""Parts of a graph that a backend can run, as large as they can be."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from torchlike.fx.node import Node, _get_qualified_name
from torchlike.fx.passes.utils.fuser_utils import fuse_by_partitions

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torchlike.fx.graph_module import GraphModule
    from torchlike.fx.passes.operator_support import OperatorSupportBase


class Partition:
    """A group of nodes, which will be one."""

    def __init__(
        self,
        id: int | None = None,
        nodes: Iterable[Node] | None = None,
        node_orders: Iterable[int] | None = None,
    ) -> None:
        self.id = id
        self.nodes: dict[Node, int | None] = {}
        if nodes is not None:
            listed = list(nodes)
            orders = [None] * len(listed) if node_orders is None else list(node_orders)
            if len(listed) != len(orders):
                raise AssertionError("nodes and node_orders must have the same length")
            self.nodes = dict(zip(listed, orders, strict=True))

    def __repr__(self) -> str:
        return str(self.nodes)

    def add_node(self, node: Node, node_order: int | None = None) -> None:
        """Puts a node into the group."""
        self.nodes.update({node: node_order})

    def remove_node(self, node: Node) -> None:
        """Takes a node out of the group."""
        del self.nodes[node]

    def size(self) -> int:
        """The number of nodes."""
        return len(self.nodes)


class _DependencyViewer:
    """For each node, as sets of bits, the nodes that need its value."""

    def __init__(self, graph_module: GraphModule) -> None:
        self.nodes = list(graph_module.graph.nodes)
        self.place = {n: i for i, n in enumerate(self.nodes)}
        self.below: dict[Node, int] = {}
        for node in reversed(self.nodes):
            bits = 0
            for user in node.users:
                bits |= self.below[user] | 1 << self.place[user]
            self.below[node] = bits

    def downstreams_of(self, node: Node) -> set[Node]:
        """The nodes that need this one's value."""
        bits = self.below[node]
        return {n for n, i in self.place.items() if bits >> i & 1}

    def bits(self, nodes: Iterable[Node]) -> int:
        """A set of nodes as bits."""
        found = 0
        for node in nodes:
            found |= 1 << self.place[node]
        return found


class CapabilityBasedPartitioner:
    """Groups nodes that a backend can run, as far as no group then needs itself.

    Args:
        graph_module: the module.
        operator_support: says which nodes can be run.
        allows_single_node_partition: groups of one call stay.
        non_compute_ops: functions that do not count as calls.
        allowed_single_node_partition_ops: functions for which a group of one call stays.
        skip_horizontal_fusion: only nodes that use each other are grouped.
    """

    def __init__(
        self,
        graph_module: GraphModule,
        operator_support: OperatorSupportBase,
        allows_single_node_partition: bool = False,
        non_compute_ops: Sequence[str] | None = None,
        allowed_single_node_partition_ops: Sequence[str] | None = None,
        skip_horizontal_fusion: bool = False,
    ) -> None:
        self.graph_module = graph_module
        self.operator_support = operator_support
        self.allows_single_node_partition = allows_single_node_partition
        self.non_compute_ops = list(non_compute_ops or [])
        self.allowed_single_node_partition_ops = list(allowed_single_node_partition_ops or [])
        self.skip_horizontal_fusion = skip_horizontal_fusion
        self.dependency_viewer = _DependencyViewer(graph_module)
        self._modules = dict(graph_module.named_modules())

    def _is_node_supported(self, node: Node) -> bool:
        return self.operator_support.is_node_supported(self._modules, node)

    def propose_partitions(self) -> list[Partition]:
        """The groups, each with its nodes in order."""
        groups: dict[int, list[Node]] = {}
        of: dict[Node, int] = {}
        ids = itertools.count()
        for node in reversed(self.dependency_viewer.nodes):
            if not self._is_node_supported(node):
                continue
            mine = next(ids)
            groups[mine], of[node] = [node], mine
            if self.skip_horizontal_fusion:
                others = list(dict.fromkeys(of[u] for u in node.users if u in of))
            else:
                others = [i for i in groups if i != mine]
            for other in others:
                if other in groups and other != mine and self._can_merge(groups, of, mine, other):
                    keep, gone = (mine, other) if mine < other else (other, mine)
                    groups[keep] += groups.pop(gone)
                    of.update(dict.fromkeys(groups[keep], keep))
                    mine = keep
        self._take_items(groups, of)
        place = self.dependency_viewer.place
        found = []
        for i, nodes in groups.items():
            nodes.sort(key=place.__getitem__)
            if nodes and (self.allows_single_node_partition or self._worth_it(nodes)):
                found.append(Partition(i, nodes, [len(place) - 1 - place[n] for n in nodes]))
        return found

    def _can_merge(
        self, groups: dict[int, list[Node]], of: dict[Node, int], a: int, b: int
    ) -> bool:
        """True if two groups can be one: nothing outside needs one of them and is needed by one."""
        viewer = self.dependency_viewer
        inside = viewer.bits(groups[a]) | viewer.bits(groups[b])
        reached = 0
        for node in itertools.chain(groups[a], groups[b]):
            reached |= viewer.below[node]
        whole = {i: viewer.bits(nodes) for i, nodes in groups.items() if i not in (a, b)}
        below = {i: self._below(groups[i]) for i in whole}
        left = set(whole)
        reached &= ~inside
        grown = True
        direct = self._leaving(groups[a] + groups[b], inside)
        while grown:
            grown = False
            for i in list(left):
                # a group runs as one: whoever reaches a part of it reaches all that is behind it
                if whole[i] & direct:
                    left.discard(i)
                    direct |= whole[i] | below[i]
                    grown = True
        return not direct & inside

    def _below(self, nodes: list[Node]) -> int:
        found = 0
        for node in nodes:
            found |= self.dependency_viewer.below[node]
        return found

    def _leaving(self, nodes: list[Node], inside: int) -> int:
        """What is reached by paths whose first step leads out of a group."""
        viewer = self.dependency_viewer
        found = 0
        for node in nodes:
            for user in node.users:
                if not inside >> viewer.place[user] & 1:
                    found |= viewer.below[user] | 1 << viewer.place[user]
        return found

    def _take_items(self, groups: dict[int, list[Node]], of: dict[Node, int]) -> None:
        """Puts items of a tuple where the tuple is made."""
        for node in self.dependency_viewer.nodes:
            users = list(node.users)
            if not users or not all(_is_getitem(u) for u in users):
                continue
            home = of.get(node)
            for user in users:
                if of.get(user) == home:
                    continue
                if user in of:
                    groups[of.pop(user)].remove(user)
                if home is not None:
                    of[user] = home
                    groups[home].append(user)

    def _worth_it(self, nodes: list[Node]) -> bool:
        """True if a group makes more than one call."""
        plain = {"torchlike.ops.aten.view", "_operator.getitem", *self.non_compute_ops}
        count = 0
        for node in nodes:
            if node.op == "call_function":
                name = _get_qualified_name(node.target)
                count += name not in plain
                count += name in self.allowed_single_node_partition_ops
        return count > 1

    def fuse_partitions(self, partitions: list[Partition], prefix: str = "fused_") -> GraphModule:
        """Makes each group one call of a module."""
        return fuse_by_partitions(self.graph_module, [p.nodes for p in partitions], prefix=prefix)

    def remove_bookend_non_compute_ops(self, partitions: list[Partition]) -> None:
        """Takes functions that do not count out of groups where they stand at the edge."""
        plain = set(self.non_compute_ops)

        def counts(node: Node) -> bool:
            return node.op != "call_function" or _get_qualified_name(node.target) not in plain

        for partition in partitions:
            inside = set(partition.nodes)
            changed = True
            while changed:
                edge = [
                    n
                    for n in inside
                    if not counts(n)
                    and (
                        all(i not in inside for i in n.all_input_nodes)
                        or all(u not in inside for u in n.users)
                    )
                ]
                inside -= set(edge)
                changed = bool(edge)
            for node in [n for n in partition.nodes if n not in inside]:
                partition.remove_node(node)

    def partition_and_fuse(self, prefix: str = "fused_") -> GraphModule:
        """Both steps."""
        return self.fuse_partitions(self.propose_partitions(), prefix=prefix)


def _is_getitem(node: Node) -> Any:
    import operator

    return node.op == "call_function" and node.target is operator.getitem
