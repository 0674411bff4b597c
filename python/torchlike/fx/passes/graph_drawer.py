"""Graphs as pictures, in the language of Graphviz."""

from __future__ import annotations

import hashlib
import itertools
from typing import Any

from torchlike._tensor import typename
from torchlike.fx._codegen import _parse_stack_trace
from torchlike.fx.graph_module import GraphModule, _get_attr
from torchlike.fx.node import Node, _format_arg, _get_qualified_name
from torchlike.fx.passes.shape_prop import TensorMetadata
from torchlike.nn import Module, Parameter

__all__ = ["FxGraphDrawer"]

_COLOR_MAP = {
    "placeholder": '"AliceBlue"',
    "call_module": "LemonChiffon1",
    "get_param": "Yellow2",
    "get_attr": "LightGrey",
    "output": "PowderBlue",
}
_HASH_COLORS = """
CadetBlue1 Coral DarkOliveGreen1 DarkSeaGreen1 GhostWhite Khaki1 LavenderBlush1 LightSkyBlue MistyRose1 MistyRose2
PaleTurquoise2 PeachPuff1 Salmon Thistle1 Thistle3 Wheat1
"""
_HASH_COLOR_MAP = _HASH_COLORS.split()


class DotGraph:
    """A picture: nodes with attributes, and edges."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: list[tuple[str, dict[str, str]]] = []
        self.edges: list[tuple[str, str]] = []

    def add_node(self, name: str, attributes: dict[str, str]) -> None:
        """Adds a node."""
        self.nodes.append((name, attributes))

    def add_edge(self, source: str, target: str) -> None:
        """Adds an edge."""
        self.edges.append((source, target))

    def to_string(self) -> str:
        """The picture as text."""
        lines = [f"digraph {_quoted(self.name)} {{", "rankdir=TB;"]
        for name, attributes in self.nodes:
            texts = [f"{k}={_quoted(v)}" for k, v in attributes.items()]
            lines.append(f"{_quoted(name)} [{', '.join(texts)}];")
        lines += [f"{_quoted(a)} -> {_quoted(b)};" for a, b in self.edges]
        return "\n".join([*lines, "}", ""])

    __str__ = to_string

    def write(self, path: Any) -> None:
        """Writes the text to a file; `dot -Tsvg FILE` draws it."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.to_string())

    write_raw = write_dot = write


def _quoted(text: str) -> str:
    if len(text) > 1 and text[0] == text[-1] == '"':
        return text
    escaped = text.replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


class FxGraphDrawer:
    """Draws a module's graph, and those of graph modules that it calls.

    Args:
        graph_module: what is drawn.
        name: the name of the picture.
        ignore_getattr: leaves nodes that fetch attributes out.
        ignore_parameters_and_buffers: leaves the state of modules out.
        skip_node_names_in_args: shows only arguments that are no nodes.
        parse_stack_trace: shows where nodes come from.
        dot_graph_shape: the shape of nodes.
        normalize_args: shows arguments by name.
    """

    def __init__(
        self,
        graph_module: GraphModule,
        name: str,
        ignore_getattr: bool = False,
        ignore_parameters_and_buffers: bool = False,
        skip_node_names_in_args: bool = True,
        parse_stack_trace: bool = False,
        dot_graph_shape: str | None = None,
        normalize_args: bool = False,
    ) -> None:
        self._name = name
        self.dot_graph_shape = dot_graph_shape if dot_graph_shape is not None else "record"
        self.normalize_args = normalize_args
        self._options = (ignore_getattr, ignore_parameters_and_buffers)
        self._labels = (skip_node_names_in_args, parse_stack_trace)
        self._dot_graphs = {name: self._to_dot(graph_module, name)}
        for node in graph_module.graph.nodes:
            if node.op == "call_module":
                below = self._get_leaf_node(graph_module, node)
                if isinstance(below, GraphModule):
                    inner = f"{name}_{node.target}"
                    self._dot_graphs[inner] = self._to_dot(below, inner)

    def get_dot_graph(self, submod_name: str | None = None) -> DotGraph:
        """The picture of the module, or of one that it calls."""
        return (
            self.get_main_dot_graph()
            if submod_name is None
            else self.get_submod_dot_graph(submod_name)
        )

    def get_main_dot_graph(self) -> DotGraph:
        """The picture of the module."""
        return self._dot_graphs[self._name]

    def get_submod_dot_graph(self, submod_name: str) -> DotGraph:
        """The picture of a module that it calls."""
        return self._dot_graphs[f"{self._name}_{submod_name}"]

    def get_all_dot_graphs(self) -> dict[str, DotGraph]:
        """All pictures by name."""
        return self._dot_graphs

    def _get_node_style(self, node: Node) -> dict[str, str]:
        color = _COLOR_MAP.get(node.op)
        if color is None:
            name = node._pretty_print_target(node.target).encode()
            digest = hashlib.md5(name, usedforsecurity=False).hexdigest()[:8]
            color = _HASH_COLOR_MAP[int(digest, 16) % len(_HASH_COLOR_MAP)]
        return self._style(color)

    def _style(self, color: str) -> dict[str, str]:
        return {
            "shape": self.dot_graph_shape,
            "fillcolor": color,
            "style": '"filled,rounded"',
            "fontcolor": "#000000",
        }

    def _get_leaf_node(self, module: Module, node: Node) -> Any:
        return _get_attr(module, node.target)

    def _typename(self, target: Any) -> str:
        if isinstance(target, str):
            name = target
        else:
            name = typename(target) if isinstance(target, Module) else _get_qualified_name(target)
        return _escaped(name)

    def _arguments(self, node: Node) -> str:
        args, kwargs = node.args, node.kwargs
        if self.normalize_args:
            from torchlike.fx.operator_schemas import normalize_function

            try:
                found = normalize_function(
                    node.target, args, kwargs, normalize_to_only_use_kwargs=True
                )
                if found is not None:
                    args, kwargs = found
            except Exception:
                pass
        label = self._list(r"|args=(\l", r",\n)\l", [_format_arg(a, 8) for a in args])
        named = [f"{k}: {_format_arg(v, 8)}" for k, v in kwargs.items()]
        return label + self._list(r"|kwargs={\l", r",\n}\l", named)

    def _list(self, prefix: str, suffix: str, texts: list[str]) -> str:
        if self._labels[0]:
            texts = [t for t in texts if "%" not in t]
        if not texts:
            return ""
        text = prefix + r",\n".join(texts) + suffix
        if len(texts) == 1:
            text = text.replace(r"\l", "").replace(r"\n", "")
        return _escaped(text)

    def _get_node_label(self, module: GraphModule, node: Node) -> str:
        label = "{" + f"name=%{node.name}|op_code={node.op}\n"
        if node.op == "call_module":
            leaf = self._get_leaf_node(module, node)
            constants = getattr(leaf, "__constants__", ())
            shown = r"\n".join(f"{c}: {getattr(leaf, c)}" for c in constants)
            label += rf"\n{self._typename(leaf)}\n|{shown}\n"
        else:
            label += rf"|target={self._typename(node.target)}\n"
            label += self._arguments(node) + rf"|num_users={len(node.users)}\n"
        label += self._tensor_meta_to_label(node.meta.get("tensor_meta"))
        if self._labels[1] and node.stack_trace is not None:
            place = _parse_stack_trace(node.stack_trace)
            if place is not None:
                file = "/".join(place.file.split("/")[-2:])
                label += rf"|file={file}:{place.lineno} {place.code}\n"
        return label + "}"

    def _tensor_meta_to_label(self, tm: Any) -> str:
        if tm is None:
            return ""
        if isinstance(tm, TensorMetadata):
            return self._stringify_tensor_meta(tm)
        if isinstance(tm, list | tuple | dict):
            items = tm.values() if isinstance(tm, dict) else tm
            return "".join(self._tensor_meta_to_label(x) for x in items)
        raise RuntimeError(f"Unsupported tensor meta type {type(tm)}")

    def _stringify_tensor_meta(self, tm: TensorMetadata) -> str:
        rows = [("dtype", tm.dtype), ("shape", tuple(tm.shape))]
        rows += [("requires_grad", tm.requires_grad), ("stride", tm.stride)]
        if tm.is_quantized:
            prefix = "q_per_channel_" if "axis" in tm.qparams else "q_"
            keys = [k for k in ("scale", "zero_point", "axis") if k in tm.qparams]
            rows += [(prefix + k, tm.qparams[k]) for k in keys]
            rows.append(("qscheme", tm.qparams["qscheme"]))
        return "".join(rf"|{k}={v}\n" for k, v in rows)

    def _to_dot(self, graph_module: GraphModule, name: str) -> DotGraph:
        dot = DotGraph(name)
        ignore_getattr, ignore_state = self._options
        shown = [n for n in graph_module.graph.nodes if not (ignore_getattr and n.op == "get_attr")]
        for node in shown:
            label = self._get_node_label(graph_module, node)
            dot.add_node(node.name, {"label": label, **self._get_node_style(node)})
            if node.op == "call_module" and not ignore_state:
                leaf = self._get_leaf_node(graph_module, node)
                if not isinstance(leaf, GraphModule):
                    self._add_state(dot, node, leaf)
        for node in shown:
            for user in node.users:
                dot.add_edge(node.name, user.name)
        return dot

    def _add_state(self, dot: DotGraph, node: Node, leaf: Module) -> None:
        for name, tensor in itertools.chain(leaf.named_parameters(), leaf.named_buffers()):
            path = f"{node.name}.{name}"
            kind = "parameter" if isinstance(tensor, Parameter) else "buffer"
            label = rf"{{{path}|op_code=get_{kind}\l{tensor.dtype}{list(tensor.shape)}\n}}"
            dot.add_node(path, {"label": label, **self._style("Salmon")})
            dot.add_edge(path, node.name)


def _escaped(text: str) -> str:
    return text.replace("{", r"\{").replace("}", r"\}")
