"""A flat graph taken apart into the calls of modules that it was made by, each with a graph of its own."""

from __future__ import annotations

import keyword
import operator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torchlike
from torchlike.export._module_calls import call_name
from torchlike.export.graph_signature import ConstantArgument
from torchlike.fx import _pytree as fx_pytree
from torchlike.fx.graph import Graph
from torchlike.fx.node import Node
from torchlike.utils import _pytree as pytree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torchlike.export.graph_signature import ModuleCallSignature


@dataclass
class Call:
    """One call of a module: its own nodes, and the calls that it makes."""

    path: str
    kind: str | None = None
    key: str = ""
    number: int = 0
    items: list[Any] = field(default_factory=list)
    inside: set[Node] = field(default_factory=set)
    signature: ModuleCallSignature | None = None
    inputs: list[Node] = field(default_factory=list)
    outputs: list[Node] = field(default_factory=list)
    sizes: list[Node] = field(default_factory=list)  # those that are computed again inside
    graph: Graph = field(default_factory=Graph)
    name: str = ""  # the path of the module that has this graph

    def nodes(self) -> Iterator[Node]:
        """All nodes, in order."""
        for item in self.items:
            if isinstance(item, Call):
                yield from item.nodes()
            else:
                yield item

    def calls(self) -> Iterator[Call]:
        """This call, and all in it, the inner ones first."""
        for item in self.items:
            if isinstance(item, Call):
                yield from item.calls()
        yield self


def _is_below(path: str, above: str) -> bool:
    return not above or path.startswith(above + ".")


def _frames(node: Node, known: set[str]) -> list[tuple[str, str, str]]:
    """The calls that a node was made in: key, path and class, without the whole program's."""
    found: list[tuple[str, str, str]] = []
    for key, (path, kind) in node.meta.get("nn_module_stack", {}).items():
        # what a module calls that is not its own belongs to its own call
        if path in known and _is_below(path, found[-1][1] if found else ""):
            found.append((key, path, kind))
    return found


def _common(a: list[Any], b: list[Any]) -> list[Any]:
    found = []
    for one, other in zip(a, b, strict=False):
        if one != other:
            break
        found.append(one)
    return found


def _placed(nodes: list[Node], known: set[str]) -> list[list[tuple[str, str, str]]]:
    """For each node its calls; one of which nothing is known stands where both its neighbours do."""
    placed: list[Any] = [None] * len(nodes)
    for i, node in enumerate(nodes):
        if "nn_module_stack" in node.meta:
            placed[i] = _frames(node, known)
    after: list[Any] = [[]] * len(nodes)
    for i in range(len(nodes) - 2, -1, -1):
        after[i] = placed[i + 1] if placed[i + 1] is not None else after[i + 1]
    at = {n: i for i, n in enumerate(nodes)}
    before: list[Any] = []
    for i, node in enumerate(nodes):
        if placed[i] is None:
            placed[i] = _common(before, after[i])
            if node.target is operator.getitem and node.args[0] in at:
                placed[i] = placed[at[node.args[0]]]
        before = placed[i]
    return placed


def calls_of(graph: Graph, known: set[str]) -> Call:
    """The tree of calls that a graph was made by.

    Args:
        known: the paths of the modules that there are.
    """
    nodes = [n for n in graph.nodes if n.op not in ("placeholder", "output")]
    root = Call("")
    opened = [root]
    used: dict[str, set[int]] = {}
    for node, frames in zip(nodes, _placed(nodes, known), strict=True):
        shared = len(_common(frames, [(c.key, c.path, c.kind) for c in opened[1:]]))
        del opened[1 + shared :]
        for key, path, kind in frames[shared:]:
            numbers = used.setdefault(path, set())
            tail = key.rpartition("@")[2]
            number = int(tail) if "@" in key and tail.isdigit() else 0
            if number in numbers:
                number = max(numbers) + 1
            numbers.add(number)
            made = Call(path, kind, key, number)
            opened[-1].items.append(made)
            opened.append(made)
        opened[-1].items.append(node)
    for call in root.calls():
        call.inside = set(call.nodes())
    return root


class Cutter:
    """Gives each call its graph.

    Args:
        root: the call of the whole program, which `graph` is of.
        user_inputs: the program's inputs that its caller gives.
        paths: where inputs that are state are, by every path that they have.
        place: for a constant that has no place of its own, its name in the module at a path; None for others.
        signatures: how calls are called that keep their signature.
    """

    def __init__(
        self,
        graph: Graph,
        root: Call,
        user_inputs: list[Node],
        paths: dict[Node, list[str]],
        place: Callable[[Node, str], str | None],
        signatures: dict[str, ModuleCallSignature],
    ) -> None:
        self.by_name = {n.name: n for n in graph.nodes}
        self.outputs: tuple[Any, ...] = graph.output_node().args[0]
        self.root, self.user_inputs, self.paths, self.place = root, user_inputs, paths, place
        self.graphs: dict[str, list[tuple[Any, str]]] = {}
        self.specs: dict[str, dict[str, Any]] = {}  # structures that graphs use, by path and name
        for call in root.calls():
            if call is not root:
                call.signature = signatures.get(call_name(call.path, call.number))
        self.kept = {c.path for c in root.calls() if c.signature is not None}
        for call in root.calls():
            self._bound(call)
            self._cut(call)
            if call is not root:
                self._name(call)

    def local(self, node: Node, call: Call) -> str | None:
        """The name that an input which is state has within a call's module, None if it is not in it."""
        if node not in self.paths:
            return None
        prefix = call.path + "." if call.path else ""
        own = [p.removeprefix(prefix) for p in self.paths[node] if p.startswith(prefix)]
        if own:
            return min(own, key=lambda p: p.count("."))
        return self.place(node, call.path)

    def _nodes_of(self, arguments: list[Any]) -> list[Node | None]:
        """The nodes of arguments; None for constants, and for what nobody has computed."""
        found = (None if isinstance(a, ConstantArgument) else a.name for a in arguments)
        return [None if name is None else self.by_name.get(name) for name in found]

    def _used(self, call: Call) -> Iterator[Node]:
        """What the nodes and calls of a call use."""
        for item in call.items:
            yield from item.inputs if isinstance(item, Call) else item.all_input_nodes
        outputs: Any = self.outputs if call is self.root else ()
        if call.signature is not None:
            outputs = self._nodes_of(call.signature.outputs)
        yield from (n for n in outputs if isinstance(n, Node))

    def _bound(self, call: Call) -> None:
        """Finds the values that a call takes from outside, and those of its own that others use."""
        taken = {n: None for n in self._used(call) if n not in call.inside}
        taken = {n: None for n in taken if self.local(n, call) is None}
        given = [n for n in call.nodes() if any(u not in call.inside for u in n.users)]
        call.inputs, call.outputs = list(taken), given
        if call is self.root:
            call.inputs = list(self.user_inputs)
        elif call.signature is not None:
            signature = call.signature
            call.inputs = [n for n in self._nodes_of(signature.inputs) if n is not None]
            call.sizes = [n for n in taken if n not in call.inputs]
            outputs = self._nodes_of(signature.outputs)
            extra = [n for n in call.sizes if not _is_size(n)]
            extra += [n for n in given if n not in outputs]
            if extra:
                does = "uses" if extra[0] in taken else "gives"
                raise RuntimeError(
                    f"unflatten: {call.path!r} keeps its signature, but {does} {extra[0].name!r}, "
                    "which is not in it"
                )

    def _cut(self, call: Call) -> None:
        """Makes the graph of a call."""
        graph = call.graph
        env: dict[Node, Node] = {}
        if call.signature is None:
            for node in call.inputs:
                env[node] = graph.placeholder(
                    node.target if node.op == "placeholder" else node.name
                )
                env[node].meta = dict(node.meta)
        else:
            self._unpack(call, call.signature, env)
        for node in sorted({n for n in self._used(call) if n in self.paths and n not in env}):
            name = self.local(node, call)
            assert name is not None
            env[node] = graph.get_attr(name)
            env[node].meta = dict(node.meta)
        for item in call.items:
            if not isinstance(item, Call):
                env[item] = graph.node_copy(item, lambda n: env[n])
            elif item.signature is None:
                _insert(call, item, env)
            else:
                self._insert_kept(call, item, item.signature, env)
        if call is self.root:
            graph.output(tuple(env[v] if isinstance(v, Node) else v for v in self.outputs))
        elif call.signature is None:
            values = tuple(env[n] for n in call.outputs)
            graph.output(values[0] if len(values) == 1 else values)
        else:
            leaves = self._leaves(call.signature.outputs, env)
            graph.output(self._tree(call, pytree.tree_unflatten, leaves, call.signature.out_spec))

    def _tree(self, call: Call, function: Any, value: Any, spec: Any) -> Node:
        """A node that makes a tree of leaves, or leaves of a tree."""
        known = self.specs.setdefault(call.path, {})
        name = next((n for n, s in known.items() if s == spec), f"_spec_{len(known)}")
        known[name] = spec
        return call.graph.call_function(function, (value, call.graph.get_attr(name)))

    def _leaves(self, arguments: list[Any], env: dict[Node, Node]) -> list[Any]:
        nodes = self._nodes_of(arguments)
        pairs = zip(arguments, nodes, strict=True)
        return [getattr(a, "value", None) if n is None else env[n] for a, n in pairs]

    def _unpack(self, call: Call, signature: ModuleCallSignature, env: dict[Node, Node]) -> None:
        """Begins a graph whose arguments have the structure of the original's."""
        graph = call.graph
        positional, named = signature.in_spec.children_specs
        # archives say how arguments are called, and generated code names them
        strange = [k for k in named.context if not k.isidentifier() or keyword.iskeyword(k)]
        if strange:
            raise RuntimeError(f"unflatten: {strange[0]!r} is no name of an argument")
        args = tuple(
            graph.placeholder(f"_positional_arg_{i}") for i in range(positional.num_children)
        )
        kwargs = {k: graph.placeholder(k) for k in named.context}
        leaves = self._tree(call, fx_pytree.tree_flatten_spec, (args, kwargs), signature.in_spec)
        for i, node in enumerate(self._nodes_of(signature.inputs)):
            if node is not None:
                env[node] = _item(graph, leaves, i, node)
        for node in call.sizes:
            _compute(node, graph, env)

    def _insert_kept(
        self, call: Call, item: Call, signature: ModuleCallSignature, env: dict[Node, Node]
    ) -> None:
        """Puts the call of a module that keeps its signature into the graph of another one."""
        graph = call.graph
        leaves = self._leaves(signature.inputs, env)
        tree = self._tree(call, pytree.tree_unflatten, leaves, signature.in_spec)
        positional, named = signature.in_spec.children_specs
        args, kwargs = _item(graph, tree, 0), _item(graph, tree, 1)
        node = graph.call_module(
            _below(item.path, call.path),
            tuple(_item(graph, args, i) for i in range(positional.num_children)),
            {k: _item(graph, kwargs, k) for k in named.context},
        )
        results = self._tree(call, fx_pytree.tree_flatten_spec, node, signature.out_spec)
        for i, out in enumerate(self._nodes_of(signature.outputs)):
            if out in item.inside:
                assert out is not None
                env[out] = _item(graph, results, i, out)

    def _name(self, call: Call) -> None:
        """Gives calls of a module that have the same graph the same name."""
        own = _outline(call)
        known = self.graphs.setdefault(call.path, [])
        # calls that keep their signature are told apart by their order
        for outline, name in () if call.path in self.kept else known:
            if outline == own:
                call.name = name
                return
        call.name = call_name(call.path, call.number if known else 0)
        known.append((own, call.name))


def _below(path: str, above: str) -> str:
    return path[len(above) + 1 :] if above else path


def _is_size(node: Node) -> bool:
    return "expr" in node.meta


def _item(graph: Graph, of: Node, key: Any, like: Node | None = None) -> Node:
    """A node that takes one of several values out."""
    name = None if like is None else like.name
    node = graph.create_node("call_function", operator.getitem, (of, key), {}, name)
    if like is not None:
        node.meta = dict(like.meta)
    return node


def _insert(call: Call, item: Call, env: dict[Node, Node]) -> None:
    """Puts the call of a module into the graph of another one."""
    graph = call.graph
    target = _below(item.name, call.path)
    node = graph.call_module(target, tuple(env[n] for n in item.inputs))
    if len(item.outputs) == 1:
        env[item.outputs[0]] = node
        node.meta["val"] = item.outputs[0].meta.get("val")
        return
    node.meta["val"] = tuple(n.meta.get("val") for n in item.outputs)
    for i, out in enumerate(item.outputs):
        env[out] = _item(graph, node, i, out)


def _compute(node: Any, graph: Graph, env: dict[Node, Node]) -> Any:
    """A size computed again from the arguments that there are.

    Raises:
        RuntimeError: if it is the size of something else.
    """
    if not isinstance(node, Node):
        return node
    if node not in env:
        if not _is_size(node):
            raise RuntimeError(f"unflatten: {node.name!r} is needed for a size, but no argument")
        env[node] = graph.call_function(
            node.target, tuple(_compute(a, graph, env) for a in node.args)
        )
        env[node].meta = dict(node.meta)
    return env[node]


def _outline(call: Call) -> Any:
    """What graphs that do the same have in common."""
    numbers: dict[Node, int] = {}

    def plain(value: Any) -> Any:
        if isinstance(value, Node):
            return ("node", numbers[value])
        if isinstance(value, list | tuple):
            return [plain(v) for v in value]
        if isinstance(value, dict):
            return {k: plain(v) for k, v in value.items()}
        if isinstance(value, torchlike.Tensor):
            return ("tensor", id(value))
        return (type(value), repr(value))

    rows = []
    for node in call.graph.nodes:
        target = "" if node.op in ("placeholder", "output") else node.target
        rows.append((node.op, target, plain(node.args), plain(node.kwargs)))
        numbers[node] = len(numbers)
    return rows
