"""Calls that are made twice with the same arguments, made once."""

from __future__ import annotations

from typing import Any

import torchlike
from torchlike.fx.graph import Graph
from torchlike.fx.graph_module import GraphModule
from torchlike.fx.node import Node
from torchlike.fx.passes.infra.pass_base import PassBase, PassResult
from torchlike.utils._pytree import tree_flatten

_RANDOM = (
    "dropout _fused_dropout _standard_gamma bernoulli multinomial native_dropout normal poisson "
    "binomial rrelu rand_like rand randint randn randperm"
)
_IN_PLACE = "add_ sub_ mul_ div_ pow_ lerp_ relu_ sigmoid_ tanh_"


def get_CSE_banned_ops() -> set[Any]:
    """Operators whose calls are not the same: random ones, and those that write."""
    aten = torchlike.ops.aten
    return {getattr(aten, n) for n in f"{_RANDOM} {_IN_PLACE}".split() if hasattr(aten, n)}


class CSEPass(PassBase):
    """Makes one call of those with the same function and arguments.

    Args:
        banned_ops: operators that are left alone.
    """

    def __init__(self, banned_ops: set[Any] | None = None) -> None:
        self.banned_ops = banned_ops if banned_ops is not None else set()
        super().__init__()

    def call(self, graph_module: GraphModule) -> PassResult:
        """A module without the calls that repeat others."""
        new = Graph()
        env: dict[Node, Node] = {}
        seen: dict[Any, Node] = {}
        for n in graph_module.graph.nodes:
            target = getattr(n.target, "overloadpacket", n.target)
            key = None
            if n.op not in ("placeholder", "output", "get_attr") and target not in self.banned_ops:
                key = _key(n, env)
                if key in seen:
                    env[n] = seen[key]
                    continue
            env[n] = new.node_copy(n, lambda x: env[x])
            if key is not None:
                seen[key] = env[n]
        if len(new.nodes) == len(graph_module.graph.nodes):
            return PassResult(graph_module, False)
        return PassResult(GraphModule(graph_module, new), True)


def _key(n: Node, env: dict[Node, Node]) -> Any:
    """What two calls have in common if they are the same; None if that cannot be said."""
    leaves, spec = tree_flatten((n.args, n.kwargs))
    values = tuple((type(v), env[v] if isinstance(v, Node) else v) for v in leaves)
    key = (n.op, n.target, values, spec)
    try:
        hash(key)
    except TypeError:
        return None
    return key
