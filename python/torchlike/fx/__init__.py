"""Programs as graphs: traced symbolically, rewritten, and turned into Python again.

`symbolic_trace` runs a module or function with stand-ins (`Proxy`) and records what it does with them as a `Graph` of
`Node`s; a `GraphModule` is a module with a graph and the `forward` that is generated from it.
"""

from torchlike import _lazy
from torchlike.fx import _names, immutable_collections
from torchlike.fx._symbolic_trace import (
    PH,
    ProxyableClassMeta,
    Tracer,
    symbolic_trace,
    wrap,
)
from torchlike.fx.graph import CodeGen, Graph
from torchlike.fx.graph_module import GraphModule
from torchlike.fx.interpreter import Interpreter, Transformer
from torchlike.fx.node import Node, has_side_effect, map_arg
from torchlike.fx.proxy import Proxy
from torchlike.fx.subgraph_rewriter import replace_pattern

__all__ = [
    "Graph",
    "GraphModule",
    "Interpreter",
    "Node",
    "Proxy",
    "Tracer",
    "Transformer",
    "has_side_effect",
    "map_arg",
    "replace_pattern",
    "symbolic_trace",
    "wrap",
]

__getattr__ = _lazy.submodules(
    "fx", "experimental", "passes", "operator_schemas", "_utils", "_lazy_graph_module"
)

_names._register_defaults()
