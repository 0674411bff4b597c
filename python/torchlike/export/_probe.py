"""Traces at several sizes, joined to one graph in which sizes that differ are computed."""

from __future__ import annotations

import itertools
import operator
from typing import TYPE_CHECKING, Any

import torchlike
from torchlike.export._expressions import Expr, fit, sample_sizes
from torchlike.export._trace import Traced, trace
from torchlike.export.dynamic_shapes import Place, UserError, Variable
from torchlike.fx.node import Node
from torchlike.utils import _pytree as pytree

if TYPE_CHECKING:
    from collections.abc import Callable

    from torchlike.export._draft_export import DraftExportReport

Tensor = torchlike.Tensor
_SAMPLES = 5


class Branched(UserError):
    """The program does something else at other sizes."""


def _resized(tensor: Any, sizes: dict[int, int]) -> Any:
    """A tensor of other sizes, with the elements of the example over and over."""
    with torchlike.no_grad():
        made = tensor.detach()
        for dim, size in sizes.items():
            index = torchlike.arange(size, device=made.device) % max(made.shape[dim], 1)
            made = made.index_select(dim, index)
    return made.requires_grad_(tensor.requires_grad)


def _points(variables: dict[str, Variable]) -> list[dict[str, int]]:
    """Sizes to trace at: each variable alone, pairs, and all together."""
    samples = {n: sample_sizes(v.low, v.high, v.example, _SAMPLES) for n, v in variables.items()}
    for name, found in samples.items():
        if not found:
            raise UserError(f"Constraints violated ({name})! There is no size above 1 in its range")
    base = {n: s[0] for n, s in samples.items()}
    points = [base]
    for name, found in samples.items():
        points += [{**base, name: size} for size in found[1:3]]
    for a, b in itertools.combinations(samples, 2):
        points.append({**base, a: samples[a][-1], b: samples[b][-1]})
    for turn in range(3, _SAMPLES):
        points.append({n: s[min(turn, len(s) - 1)] for n, s in samples.items()})
    return [dict(p) for p in dict.fromkeys(tuple(p.items()) for p in points)]


class Probe:
    """Traces a model at several sizes."""

    def __init__(
        self, run: Callable[[Any, Any], Traced], args: Any, kwargs: Any, places: list[Place]
    ) -> None:
        self.run = run
        self.leaves, self.spec = pytree.tree_flatten((args, kwargs))
        self.places = places
        self.points: list[dict[str, int]] = []
        self.traces: list[Traced] = []

    def trace_all(self, variables: dict[str, Variable]) -> None:
        """One trace for each point."""
        for point in _points(variables):
            try:
                found = self.run(*self.inputs(point))
            except (UserError, NotImplementedError):
                raise
            except Exception as e:
                if not self.traces:
                    raise
                names = ", ".join(variables)
                raise Branched(
                    f"Constraints violated ({names})! The program fails at {_shown(point)}, but not at "
                    f"{_shown(self.points[0])}: {e}"
                ) from e
            self.points.append(point)
            self.traces.append(found)

    def inputs(self, point: dict[str, int]) -> tuple[Any, Any]:
        """The arguments at these sizes."""
        leaves = list(self.leaves)
        for i, leaf in enumerate(leaves):
            mine = [p for p in self.places if p.leaf == i]
            sizes = {p.dim: p.factor * point[p.variable] + p.offset for p in mine}
            if any(leaf.shape[d] != s for d, s in sizes.items()):
                leaves[i] = _resized(leaf, sizes)
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return args, kwargs

    def compare(self) -> dict[tuple[Node, int], Expr]:
        """The numbers among arguments that depend on sizes; noted on nodes are their shapes.

        Raises:
            Branched: with the first node that is another one at other sizes.
        """
        rows = [list(t.graph.nodes) for t in self.traces]
        for point, row in zip(self.points, rows, strict=True):
            for mine, other in zip(rows[0], row, strict=False):
                self._same(mine, other, point)
            if len(row) != len(rows[0]):
                raise self._branch(rows[0][-1], point)
        found: dict[tuple[Node, int], Expr] = {}
        for nodes in zip(*rows, strict=True):
            self._arguments(nodes, found)
            self._shape(nodes)
        return found

    def _branch(self, node: Node, point: dict[str, int]) -> Branched:
        names = ", ".join(point)
        return Branched(
            f"Constraints violated ({names})! The program is another one at {_shown(point)} than at "
            f"{_shown(self.points[0])}: they first differ at {node.format_node()}"
        )

    def _same(self, mine: Node, other: Node, point: dict[str, int]) -> None:
        if mine.op != other.op or mine.target != other.target or mine.name != other.name:
            raise self._branch(mine, point)
        left, spec = pytree.tree_flatten((mine.args, mine.kwargs))
        right, other_spec = pytree.tree_flatten((other.args, other.kwargs))
        same = spec == other_spec
        for a, b in zip(left, right, strict=False):
            if isinstance(a, Node):
                same = same and isinstance(b, Node) and a.name == b.name
            elif type(a) is not int or type(b) is not int:
                same = same and type(a) is type(b) and (a == b or a != a)
        if not same:
            raise self._branch(mine, point)

    def _arguments(self, nodes: tuple[Node, ...], found: dict[tuple[Node, int], Expr]) -> None:
        leaves = [pytree.tree_leaves((n.args, n.kwargs)) for n in nodes]
        for i, values in enumerate(zip(*leaves, strict=True)):
            if type(values[0]) is int and len(set(values)) > 1:
                expression = fit(self.points, list(values))
                if expression is None:
                    at = dict(zip(map(_shown, self.points), values, strict=True))
                    raise Branched(
                        f"Constraints violated ({', '.join(self.points[0])})! An argument of "
                        f"{nodes[0].format_node()} is no expression of the sizes that is supported: {at}"
                    )
                assert isinstance(expression, Expr)
                found[nodes[0], i] = expression

    def _shape(self, nodes: tuple[Node, ...]) -> None:
        """Notes sizes and strides of a tensor as expressions; unknown ones stay as in the example."""
        values: list[Any] = [n.meta.get("val") for n in nodes]
        if not all(isinstance(v, Tensor) for v in values):
            return
        for key, rows in (
            ("sizes", [list(v.shape) for v in values]),
            ("strides", [list(v.stride()) for v in values]),
        ):
            fitted = [fit(self.points, list(c)) for c in zip(*rows, strict=True)]
            nodes[0].meta[key] = [
                f if f is not None else now for f, now in zip(fitted, rows[0], strict=True)
            ]


def _shown(point: dict[str, int]) -> str:
    return ", ".join(f"{n} = {s}" for n, s in point.items())


def write_sizes(
    traced: Traced, places: list[Place], arguments: dict[tuple[Node, int], Expr]
) -> None:
    """Puts nodes that compute sizes into a graph, in the place of numbers that depend on them."""
    writer = _Sizes(traced, places)
    for node in {n: None for n, _ in arguments}:
        leaves, spec = pytree.tree_flatten((node.args, node.kwargs))
        with traced.graph.inserting_before(node):
            for (owner, i), expression in arguments.items():
                if owner is node:
                    leaves[i] = writer.value(expression)
        node.args, node.kwargs = pytree.tree_unflatten(leaves, spec)
    traced.graph.lint()


class _Sizes:
    """Makes nodes of expressions, each once."""

    def __init__(self, traced: Traced, places: list[Place]) -> None:
        self.traced, self.graph = traced, traced.graph
        # where a size stands as it is, it is taken from there
        order = sorted(reversed(places), key=lambda p: (p.factor, p.offset) == (1, 0))
        self.places = {p.variable: p for p in order}
        self.sizes: dict[str, Node] = {}

    def size(self, name: str) -> Node:
        """The node of a size, behind the inputs."""
        if name not in self.sizes:
            place = self.places[name]
            first = next(n for n in self.graph.nodes if n.op != "placeholder")
            source = self.traced.users[place.leaf]
            with self.graph.inserting_before(first):
                node = self.graph.call_function(
                    torchlike.ops.aten.sym_size.int, (source, place.dim)
                )
                node.meta["expr"] = Expr((((name,), place.factor),), place.offset)
                if place.offset:
                    whole = Expr((((name,), place.factor),), 0)
                    node = self.call(operator.add, node, -place.offset, whole)
                if place.factor != 1:
                    one = Expr((((name,), 1),), 0)
                    node = self.call(operator.floordiv, node, place.factor, one)
            self.sizes[name] = node
        return self.sizes[name]

    def call(self, function: Any, a: Any, b: Any, expression: Expr) -> Node:
        """A node of an operation on sizes."""
        node = self.graph.call_function(function, (a, b))
        node.meta["expr"] = expression
        return node

    def value(self, expression: Expr) -> Any:
        """The node of an expression, at the place where new nodes go."""
        total: Any = None
        partial = Expr((), 0)
        parts: list[tuple[Any, Expr]] = []
        for names, factor in expression.terms:
            node, so_far = self.size(names[0]), Expr((((names[0],), 1),), 0)
            for name in names[1:]:
                other = self.size(name)
                so_far = Expr(((names, 1),), 0)
                node = self.call(operator.mul, node, other, so_far)
            if factor != 1:
                so_far = Expr(((names, factor),), 0)
                node = self.call(operator.mul, node, factor, so_far)
            parts.append((node, so_far))
        if expression.quotient is not None:
            name, shift, divisor, factor = expression.quotient
            node = self.size(name)
            if shift:
                node = self.call(operator.add, node, shift, Expr((((name,), 1),), shift))
            node = self.call(
                operator.floordiv, node, divisor, Expr((), 0, (name, shift, divisor, 1))
            )
            if factor != 1:
                node = self.call(operator.mul, node, factor, Expr((), 0, expression.quotient))
            parts.append((node, Expr((), 0, expression.quotient)))
        for node, part in parts:
            partial = Expr(partial.terms + part.terms, 0, part.quotient or partial.quotient)
            total = node if total is None else self.call(operator.add, total, node, partial)
        if expression.constant:
            total = self.call(operator.add, total, expression.constant, expression)
        return total


def probed(
    model: Any,
    args: Any,
    kwargs: Any,
    variables: dict[str, Variable],
    places: list[Place],
    table: Any = None,
    preserved: Any = (),
    of: Any = None,
    report: DraftExportReport | None = None,
) -> tuple[Traced, dict[str, Variable], list[Place]]:
    """A graph for all sizes, and the sizes that do vary in it."""

    def run(a: Any, k: Any) -> Traced:
        return trace(model, a, k, table, preserved, of, report)

    while True:
        probe = Probe(run, args, kwargs, places)
        if not variables:
            return run(args, kwargs), variables, places
        try:
            probe.trace_all(variables)
            arguments = probe.compare()
        except Branched as e:
            fixed = [n for n, v in variables.items() if v.optional]
            if not fixed and report is not None:
                fixed = list(variables)
                report.note_constant_size(fixed[-1], variables[fixed[-1]].example, e)
            if not fixed:
                raise
            # sizes that nobody insists on become constant, the last first
            variables = {n: v for n, v in variables.items() if n != fixed[-1]}
            places = [p for p in places if p.variable in variables]
            continue
        write_sizes(probe.traces[0], places, arguments)
        return probe.traces[0], variables, places
