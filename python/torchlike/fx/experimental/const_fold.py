"""What depends on no input, computed once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import torchlike
from torchlike.fx._symbolic_trace import symbolic_trace
from torchlike.fx.graph_module import GraphModule
from torchlike.fx.node import Node, map_arg
from torchlike.fx.passes.split_module import split_module
from torchlike.nn import Module, Parameter
from torchlike.nn.modules.container import ParameterList

if TYPE_CHECKING:
    from collections.abc import Callable

    from torchlike.fx.graph import Graph

__all__ = ["FoldedGraphModule", "get_unique_attr_name_in_module", "split_const_subgraphs"]


class FoldedGraphModule(GraphModule):
    """A module that computes its constants when it is first called."""

    def __init__(
        self,
        root: Module,
        graph: Graph,
        const_subgraph: Graph | None = None,
        fx_const_folded_attrs_name: str | None = None,
        device_for_folded_attrs: str = "cuda",
    ) -> None:
        super().__init__(root, graph)
        self.const_subgraph_module = (
            None if const_subgraph is None else GraphModule(root, const_subgraph)
        )
        self.has_folding_been_run = False
        self.fx_const_folded_attrs_name = fx_const_folded_attrs_name
        self.device_for_folded_attrs = device_for_folded_attrs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.has_folding_been_run:
            self.run_folding()
        return super().__call__(*args)

    def run_folding(self) -> None:
        """Computes the constants."""
        if self.const_subgraph_module is None or self.fx_const_folded_attrs_name is None:
            return
        if self.has_folding_been_run:
            raise AssertionError("Folding has already been run")
        self.has_folding_been_run = True
        values = self.const_subgraph_module()
        folded: Any
        if isinstance(values, tuple):
            folded = ParameterList([self._parameter(v) for v in values])
        else:
            folded = self._parameter(values)
        setattr(self, self.fx_const_folded_attrs_name, folded)

    def _parameter(self, value: Any) -> Parameter:
        if isinstance(value, int):
            made = torchlike.tensor([float(value)]).to(device=self.device_for_folded_attrs)
            return Parameter(made, requires_grad=False)
        return Parameter(value.detach().clone(), requires_grad=value.requires_grad)


def get_unique_attr_name_in_module(mod_traced: Any, name: str) -> str:
    """A name for an attribute that is free."""
    name = re.sub("[^0-9a-zA-Z_]+", "_", name)
    if name[0].isdigit():
        name = f"_{name}"
    while hasattr(mod_traced, name):
        base, _, number = name.rpartition("_")
        name = f"{base}_{int(number) + 1}" if base and number.isdigit() else f"{name}_1"
    return name


def _inline_module(gm: GraphModule, inline_mod_name: str, run_dce: bool = True) -> dict[Node, Node]:
    """Puts the nodes of a module in the place of its call."""
    inner: Any = dict(gm.named_modules())[inline_mod_name]
    call = next(n for n in gm.graph.nodes if n.op == "call_module" and n.target == inline_mod_name)
    values: dict[Node, Any] = {}
    args = iter(call.args)
    for node in inner.graph.nodes:
        if node.op == "placeholder":
            values[node] = next(args) if node.name not in call.kwargs else call.kwargs[node.name]
    with gm.graph.inserting_before(call):
        result = gm.graph.graph_copy(inner.graph, values)
    if isinstance(result, Node):
        call.replace_all_uses_with(result)
    else:
        for user in list(call.users):
            if user.op == "call_function" and user.target.__name__ == "getitem":
                user.replace_all_uses_with(result[user.args[1]])
                gm.graph.erase_node(user)
        output = gm.graph.output_node()
        if call in output.all_input_nodes:
            output.args = map_arg(output.args, lambda n: result if n is call else n)
    gm.graph.erase_node(call)
    if run_dce:
        gm.graph.eliminate_dead_code()
    return values


def _constants(gm: GraphModule, skip: Callable[[Node], bool] | None) -> set[Node]:
    """The nodes that depend on no input, and can be computed once."""
    found: set[Node] = set()
    for node in gm.graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        if node.op != "get_attr" and not set(node.all_input_nodes) <= found:
            continue
        if (skip is not None and skip(node)) or node.is_impure():
            continue
        if node.op == "call_module" and _has_impure(gm.get_submodule(node.target)):
            continue
        found.add(node)
    return found


def _has_impure(module: Any) -> bool:
    if not isinstance(module, GraphModule):
        return False
    return any(
        (n.op == "call_function" and n.is_impure())
        or (n.op == "call_module" and _has_impure(module.get_submodule(n.target)))
        for n in module.graph.nodes
    )


def split_const_subgraphs(
    module: Any,
    skip_folding_node_fn: Callable[[Node], bool] | None = None,
    device_for_folded_attrs: str = "cpu",
) -> FoldedGraphModule:
    """A module that computes what depends on no input once.

    Args:
        module: what is traced, unless it is a graph module already.
        skip_folding_node_fn: nodes that are computed every time.
        device_for_folded_attrs: where numbers go.
    """
    gm = module if isinstance(module, GraphModule) else symbolic_trace(module)
    constant = _constants(gm, skip_folding_node_fn)
    if all(n.op == "get_attr" for n in constant):
        return FoldedGraphModule(gm, gm.graph)
    split: Any = split_module(gm, module, lambda n: 0 if n in constant else 1)
    first, second = split.submod_0, getattr(split, "submod_1", None)
    for part in (first, second):
        for node in part.graph.nodes if part is not None else ():
            if node.op == "call_module":
                setattr(split, node.target, getattr(part, node.target))
    call = next(n for n in split.graph.nodes if n.op == "call_module" and n.target == "submod_0")
    folding = GraphModule(split, first.graph)
    inputs = [n for n in folding.graph.nodes if n.op == "placeholder"]
    for holder, source in zip(inputs, call.args, strict=True):
        with folding.graph.inserting_before(holder):
            fetched = folding.graph.get_attr(source.target)
        fetched.meta = holder.meta.copy()
        holder.replace_all_uses_with(fetched)
        folding.graph.erase_node(holder)
    many = isinstance(folding.graph.output_node().args[0], tuple)
    name = get_unique_attr_name_in_module(gm, "_FX_CONST_FOLDED_ATTRS")
    setattr(split, name, ParameterList() if many else Parameter(torchlike.empty(0)))
    with split.graph.inserting_before(call):
        folded = split.graph.get_attr(name)
    value = folding.graph.output_node().args[0]
    folded.meta = (value if isinstance(value, Node) else call).meta.copy()
    call.replace_all_uses_with(folded)
    if second is not None:
        _inline_module(split, "submod_1")
    split.graph.eliminate_dead_code()
    return FoldedGraphModule(split, split.graph, folding.graph, name, device_for_folded_attrs)
