"""Graphs of operators without calls that write: a write becomes a new value, and views of it are made again."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torchlike
from torchlike.fx._names import _Namespace
from torchlike.fx.node import Node, map_arg

if TYPE_CHECKING:
    from torchlike.fx.graph import Graph

aten: Any = torchlike.ops.aten

# views that put their elements back by an operator of the same arguments
_SCATTERS = {
    "select": "select_scatter",
    "slice": "slice_scatter",
    "diagonal": "diagonal_scatter",
    "as_strided": "as_strided_scatter",
}
# views that are undone by a view of the old size
_RESHAPES = ("view", "_unsafe_view", "unsqueeze", "squeeze", "alias", "detach", "reshape")
_KINDS = (*_SCATTERS, *_RESHAPES, "t", "transpose", "permute", "split", "split_with_sizes")
_KINDS += ("expand", "unbind", "unfold")
# what is known of a value wherever it comes from
_KEPT = ("val", "tensor_meta")
# what is known of where it was made
_PLACED = ("nn_module_stack", "writes")
# operators that write beside their results: the one that gives what they write too, and where, by place of the argument
_BESIDE = {"_native_batch_norm_legit": ("_native_batch_norm_legit_functional", {3: 3, 4: 4})}


def _name(node: Node) -> str:
    return node.target.overloadpacket.__name__ if _is_operator(node) else ""


def _is_operator(node: Node) -> bool:
    return node.op == "call_function" and hasattr(node.target, "overloadpacket")


class _Functional:
    """The state of the rewriting: what each node's memory holds now."""

    def __init__(self, graph: Graph, copies: bool, write_back: bool) -> None:
        self.graph = graph
        self.copies = copies
        self.write_back = write_back
        self.base: dict[Node, Node] = {}  # a view: the node whose memory it sees
        self.chain: dict[Node, list[Node]] = {}  # the views that lead there, from the base on
        self.now: dict[Node, Node] = {}  # a base that was written: its value now
        self.fresh: dict[
            Node, tuple[Node, Node]
        ] = {}  # a view: for which value of its base, and it
        self.written_inputs: dict[Node, None] = {}
        self.at: Node = next(iter(graph.nodes))  # the node that is rewritten

    def run(self) -> None:
        """Rewrites every node, in order."""
        for node in list(self.graph.nodes):
            if node._erased:  # an item of results that are written
                continue
            self.at = node
            if node.op == "output":
                self._finish(node)
                continue
            if not _is_operator(node) and node.target is not operator.getitem:
                with self.graph.inserting_before(node):
                    self._update_arguments(node, None)
                continue
            written, outs = self._written(node), _outs(node)
            with self.graph.inserting_before(node):
                self._update_arguments(node, written)
                if written is not None and _name(node).removesuffix("_") in _KINDS:
                    self._turn(node, written)
                    continue
                if written is not None and _name(node) in _BESIDE:
                    self._write_beside(node)
                    continue
                if len(outs) > 1:
                    self._write_all(node, outs)
                    continue
                if written is not None:
                    self._write(node, written)
                    continue
            if _name(node) in _KINDS and node.args and isinstance(node.args[0], Node):
                self._note_view(node, node.args[0])
            elif node.target is operator.getitem and _name(node.args[0]) in _KINDS:
                self._note_item(node)
        self.graph.lint()

    def _written(self, node: Node) -> Node | None:
        """What an operator writes: its first argument or `out`."""
        if not _is_operator(node) or not node.target._schema.is_mutable:
            return None
        for i, arg in enumerate(node.target._schema.arguments):
            if arg.alias_info is not None and arg.alias_info.is_write:
                found = node.kwargs.get(arg.name, node.args[i] if i < len(node.args) else None)
                if isinstance(found, Node):
                    return found
        raise NotImplementedError(
            f"functionalize: {node.target} writes something else than a tensor"
        )

    def _root(self, node: Node) -> Node:
        return self.base.get(node, node)

    def _update_arguments(self, node: Node, written: Node | None) -> None:
        """Puts what memory holds now in the place of arguments that were written since."""

        def current(arg: Node) -> Node:
            return arg if arg is written else self._current(arg)

        node.args = map_arg(node.args, current)
        node.kwargs = map_arg(node.kwargs, current)

    def _current(self, node: Node) -> Node:
        """What a node's memory holds now: a view is made again after its base was written."""
        root, chain = self._root(node), self.chain.get(node, [])
        if root not in self.now:
            return node
        now = self.now[root]
        if not chain:
            return now
        of, known = self.fresh.get(node, (None, None))
        if of is not now or known is None:
            known = self._views(now, chain)[-1]
            self.fresh[node] = now, known
        return known

    def _views(self, of: Node, chain: list[Node]) -> list[Node]:
        """A base, and the views of it that each step of a chain makes of the one before."""
        values = [of]
        for step in chain:
            values.append(self._again(step, values[-1]))
        return values

    def _again(self, view: Node, of: Node) -> Node:
        made = self.graph.call_function(
            view.target, (of, *view.args[1:]), dict(view.kwargs), name=_name(view) or None
        )
        self._describe(made, view.meta)
        return made

    def _describe(self, made: Node, like: dict[str, Any]) -> None:
        """Notes what a new node's value is like; it belongs to the call that is rewritten."""
        made.meta = {k: v for k, v in like.items() if k not in _PLACED}
        if "nn_module_stack" in self.at.meta:
            made.meta["nn_module_stack"] = self.at.meta["nn_module_stack"]

    def _note_view(self, node: Node, of: Node) -> None:
        origin = self._original(of)
        self._show(node, self._root(origin), [*self.chain.get(origin, []), node])

    def _show(self, node: Node, root: Node, chain: list[Node]) -> None:
        """Notes that a node is a view of a base as it is now."""
        self.base[node], self.chain[node] = root, chain
        self.fresh[node] = self.now.get(root, root), node

    def _note_item(self, node: Node) -> None:
        source = node.args[0]
        if source in self.base:
            self._show(node, self.base[source], [*self.chain[source], node])

    def _original(self, node: Node) -> Node:
        """The base whose value now a node is, or the node."""
        for root, value in self.now.items():
            if value is node:
                return root
        return node

    def _hold(self, target: Node, new: Node) -> None:
        """Notes what the memory of a tensor holds now, which may be a view."""
        root, chain = self._root(target), self.chain.get(target, [])
        before = self._views(self.now.get(root, root), chain[:-1])
        for view, whole in zip(reversed(chain), reversed(before), strict=bool(chain)):
            new = self._put_back(view, whole, new)
        self.now[root] = new
        if root.op == "placeholder":
            new.meta["writes"] = root.name
            self.written_inputs[root] = None

    def _turn(self, node: Node, target: Node) -> None:
        """A view in place of one that the tensor itself becomes: its memory stays as it is."""
        packet = getattr(aten, _name(node).removesuffix("_"))
        view = node.target.form_in(packet, node.target._overloadname)
        args = (self._current(target), *node.args[1:])
        made = self.graph.call_function(view, args, dict(node.kwargs))
        made.meta = dict(node.meta)
        self._show(made, self._root(target), [*self.chain.get(target, []), made])
        node.replace_all_uses_with(made)
        self.graph.erase_node(node)

    def _write_beside(self, node: Node) -> None:
        """An operator with new values of what it writes beside its results."""
        name, places = _BESIDE[_name(node)]
        targets = {i: node.args[i] for i in places}
        args = map_arg(node.args, self._current)
        made = self.graph.call_function(getattr(aten, name).default, args, dict(node.kwargs))
        made.meta = dict(node.meta)
        if isinstance(made.meta.get("val"), list | tuple):
            beside = (t.meta.get("val") for t in targets.values() if isinstance(t, Node))
            made.meta["val"] = (*made.meta["val"], *beside)
        node.replace_all_uses_with(made)
        for i, place in places.items():
            target = targets[i]
            if isinstance(target, Node):
                new = self.graph.call_function(operator.getitem, (made, place))
                self._describe(new, {k: target.meta[k] for k in _KEPT if k in target.meta})
                self._hold(target, new)
        self.graph.erase_node(node)

    def _write(self, node: Node, target: Node) -> None:
        """A new value of the base, in place of a write to a view of it."""
        root, chain = self._root(target), self.chain.get(target, [])
        self._hold(target, self._functional(node, self._current(target)))
        result = self._current(target)
        node.replace_all_uses_with(result)
        if result is not target:
            self._show(result, root, chain)
        self.graph.erase_node(node)

    def _write_all(self, node: Node, outs: list[Node]) -> None:
        """An operator with several results, in place of one that writes them where `out` says."""
        target = node.target.form_in(node.target.overloadpacket)
        if target is None:
            raise _unwritten(node)
        names = {a.name for a in target._schema.arguments}
        kwargs = {k: v for k, v in node.kwargs.items() if k in names}
        made = self.graph.call_function(target, node.args, kwargs, name=_name(node))
        made.meta = dict(node.meta)
        for i, out in enumerate(outs):
            new = self.graph.call_function(operator.getitem, (made, i))
            val = made.meta.get("val")
            self._describe(new, {"val": val[i]} if isinstance(val, list | tuple) else {})
            self._hold(out, self._in_type(new))
        for item in list(node.users):
            item.replace_all_uses_with(outs[item.args[1]])
            self.graph.erase_node(item)
        self.graph.erase_node(node)

    def _functional(self, node: Node, value: Node) -> Node:
        """The operator that gives what this one writes."""
        name = _name(node)
        args = node.args if "out" in node.kwargs else (value, *node.args[1:])
        kwargs = {k: v for k, v in node.kwargs.items() if k != "out"}
        name = name.removesuffix("_")
        target = node.target.without_writing
        if target is None or node.target._schema.returns[1:]:
            raise _unwritten(node)
        made = self.graph.call_function(target, args, kwargs, name=name)
        made.meta = dict(node.meta)
        return self._in_type(made)

    def _in_type(self, made: Node) -> Node:
        """What is written has the type of what it is written to."""
        wanted = made.meta.get("val")
        meta = map_arg((made.args, made.kwargs), lambda n: n.meta.get("val"))
        try:
            found = made.target(*meta[0], **meta[1])
        except (RuntimeError, TypeError, NotImplementedError):
            return made
        if wanted is None or found.dtype == wanted.dtype:
            return made
        how = {"dtype": wanted.dtype, "layout": wanted.layout}
        copied = self.graph.call_function(aten._to_copy.default, (made,), how)
        copied.meta = dict(made.meta)
        return copied

    def _put_back(self, view: Node, before: Node, new: Node) -> Node:
        """The value under a view after the view was written."""
        name = _name(view)
        sizes = list(before.meta["val"].shape) if "val" in before.meta else None
        shown = view.meta.get("val")
        same = shown is not None and sizes == list(shown.shape)
        if same and name in ("expand", "squeeze"):
            return new
        if name in _SCATTERS:
            call = getattr(aten, _SCATTERS[name]).default, (before, new, *view.args[1:])
        elif name == "t":
            call = aten.t.default, (new,)
        elif name == "transpose":
            call = aten.transpose.int, (new, *view.args[1:])
        elif name == "permute":
            order = list(view.args[1])
            call = aten.permute.default, (new, [order.index(i) for i in range(len(order))])
        elif name in ("alias", "detach"):
            call = aten.alias.default, (new,)
        elif name == "unsqueeze":
            call = aten.squeeze.dim, (new, view.args[1])
        elif name == "squeeze" and len(view.args) == 2 and isinstance(view.args[1], int):
            call = aten.unsqueeze.default, (new, view.args[1])
        elif name in _RESHAPES:
            call = aten.view.default, (new, sizes)
        else:
            raise NotImplementedError(f"functionalize: a write to a view made by {view.target}")
        made = self.graph.call_function(*call)
        self._describe(made, {k: before.meta[k] for k in _KEPT if k in before.meta})
        return made

    def _finish(self, output: Node) -> None:
        """Gives the results as they are now, and writes inputs that the program writes."""
        with self.graph.inserting_before(output):
            output.args = map_arg(output.args, self._current)
            for root in sorted(self.written_inputs) if self.write_back else ():
                copied = self.graph.call_function(aten.copy_.default, (root, self.now[root]))
                copied.meta = dict(root.meta)
        if self.copies:
            for node in self.graph.nodes:
                self._copy_view(node)

    def _copy_view(self, node: Node) -> None:
        name = _name(node)
        packet = (
            getattr(aten, f"{name}_copy", None) if name in _KINDS and name != "detach" else None
        )
        target = getattr(packet, node.target._overloadname, None) if packet is not None else None
        if target is not None:
            node.target = target
            node._rename(f"{_name(node)}")


def _outs(node: Node) -> list[Node]:
    """What an operator writes by keyword alone."""
    if not _is_operator(node):
        return []
    written = [a.name for a in node.target._schema.arguments if a.kwarg_only and a.alias_info]
    return [node.kwargs[n] for n in written if isinstance(node.kwargs.get(n), Node)]


def _unwritten(node: Node) -> NotImplementedError:
    return NotImplementedError(f"functionalize: {node.target} has no form that does not write")


def _name_anew(graph: Graph) -> None:
    """Gives nodes the names that they have where a graph is recorded as this one is now."""
    names = _Namespace()
    for node in graph.nodes:
        name = node.name
        if node.op == "call_function":
            name = graph._target_to_str(_name(node) or node.target.__name__)
        node.name = names.create_name(name, node)
    graph._graph_namespace = names


def functionalize_graph(
    graph: Graph, copies: bool = False, write_back: bool = True
) -> dict[Node, Node]:
    """Takes calls that write out of a graph of operators.

    Args:
        copies: views become copies.
        write_back: inputs that the program writes are written at its end.

    Returns:
        For each input that the program writes, the node of its new value.

    Raises:
        NotImplementedError: for a write that has no other form.
    """
    rewriting = _Functional(graph, copies, write_back)
    rewriting.run()
    if write_back:
        _name_anew(graph)
    return {root: rewriting.now[root] for root in rewriting.written_inputs}
