"""One trace of a model: a graph of operators without writes, whose state is among its inputs."""

from __future__ import annotations

import inspect
import operator
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torchlike
from torchlike.compiler import exporting
from torchlike.export._module_calls import Calls, Replay, taken_out, tracepoint
from torchlike.export.graph_signature import (
    ConstantArgument,
    InputKind,
    InputSpec,
    ModuleCallSignature,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torchlike.fx.experimental._functional import functionalize_graph
from torchlike.fx.experimental.proxy_tensor import (
    ProxyTorchDispatchMode,
    PythonKeyTracer,
)
from torchlike.fx.graph import Graph
from torchlike.fx.node import Node
from torchlike.nn import Module, Parameter
from torchlike.utils import _pytree as pytree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from torchlike.export._draft_export import DraftExportReport
    from torchlike.fx.proxy import Proxy

Tensor = torchlike.Tensor
aten: Any = torchlike.ops.aten


@dataclass
class Traced:
    """What one trace found."""

    graph: Graph
    inputs: list[InputSpec] = field(default_factory=list)
    outputs: list[OutputSpec] = field(default_factory=list)
    constants: dict[str, Any] = field(default_factory=dict)
    users: list[Node] = field(default_factory=list)  # placeholders of the caller's inputs
    in_spec: Any = None
    out_spec: Any = None
    signatures: dict[str, ModuleCallSignature] = field(default_factory=dict)


def identifier(path: str) -> str:
    """A path as a part of a name."""
    return re.sub(r"\W", "_", path)


def input_names(model: Module, args: Any, kwargs: Any) -> list[str]:
    """A name for each leaf of the inputs: its parameter, and the way through containers."""
    signature = inspect.signature(model.forward)
    given: dict[str, Any] = {}
    for name, value in signature.bind(*args, **kwargs).arguments.items():
        by_name = signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD
        given |= value if by_name else {name: value}
    names = []
    for path, _ in pytree.tree_leaves_with_path(given):
        keys = [getattr(k, "key", getattr(k, "idx", getattr(k, "name", ""))) for k in path]
        names.append("_".join(re.sub(r"[^a-zA-Z0-9]", "_", str(k)).lower() for k in keys))
    return names


class _Names:
    """Names of inputs, which no two have: a number tells those apart that would be the same."""

    def __init__(self) -> None:
        self.used: set[str] = set()
        self.numbers: Counter[str] = Counter()

    def take(self, name: str) -> str:
        """The name, or the next one with a number."""
        new = f"{name}_{self.numbers[name] + 1}" if name in self.used else name
        if numbered := re.match(r"(.*)_(\d+)", new):
            before, number = numbered.group(1), int(numbered.group(2))
            self.numbers[before] = max(self.numbers[before], number)
        self.used.add(new)
        return new


class _Noting(PythonKeyTracer):
    """Notes where tensors are, too."""

    def track(self, tensor: Any, proxy: Proxy, *, anew: bool = False) -> None:
        """Notes the node of a tensor."""
        super().track(tensor, proxy, anew=anew)
        proxy.node.meta["device"] = str(tensor.device)


class _Mode(ProxyTorchDispatchMode):
    """Refuses what reads elements of lists too: a program must not keep those of its examples."""

    report: DraftExportReport | None = None  # where reads are noted instead

    def _refuse_values(self, name: str, given: Iterable[Any]) -> None:
        if self.report is None:
            super()._refuse_values(name, given)
            return
        found = [t for t in given if isinstance(t, Tensor)]
        try:
            super()._refuse_values(name, found)
        except RuntimeError:
            self.report.note_read(name, found)

    def _reads(self, tensor: Tensor) -> None:
        if self.enable_tracing:
            self._refuse_values("aten::_local_scalar_dense", (tensor,))


def _norm_with_statistics(
    input: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, *rest: Any
) -> Any:
    """Batch norm by the operator that says what it does with statistics, and has a form which writes none."""
    if mean is None:
        return aten._native_batch_norm_legit.no_stats(input, weight, bias, training, *rest)
    if not training:
        return aten._native_batch_norm_legit_no_training.default(
            input, weight, bias, mean, var, *rest
        )
    return aten._native_batch_norm_legit(input, weight, bias, mean, var, training, *rest)


_NORMALISED = {aten.native_batch_norm.default: _norm_with_statistics}


def state_of(model: Module) -> dict[str, Any]:
    """What a model's state dict has before hooks change it: parameters and buffers by all their paths."""
    found = dict(model.named_parameters(remove_duplicate=False))
    found |= model.named_buffers(remove_duplicate=False)
    for prefix, module in model.named_modules(remove_duplicate=False):
        for name in module._non_persistent_buffers_set:
            found.pop(f"{prefix}.{name}" if prefix else name, None)
    return found


class _Trace:
    """The state of a trace."""

    def __init__(
        self,
        model: Module,
        table: Mapping[Any, Callable[..., Any]] | None,
        report: DraftExportReport | None,
    ) -> None:
        self.model = model
        self.tracer = _Noting()
        self.tracer.root = Module()
        self.tracer.graph = Graph()
        self.tracer.tensor_attrs = {}
        self.mode = _Mode(self.tracer, decomposition_table={**_NORMALISED, **(table or {})})
        self.mode.report = report
        self.found = Traced(self.tracer.graph)
        self.specs: dict[str, tuple[Any, Any]] = {}
        self.names = _Names()
        self.given: list[str] = []

    def name_inputs(self, args: Any, kwargs: Any) -> None:
        """Gives the caller's inputs their names, before all others."""
        self.given = [self.names.take(n) for n in input_names(self.model, args, kwargs)]

    def held(self, kind: str, path: str, value: Any) -> Proxy:
        """An input for what the model holds."""
        return self.placeholder(self.names.take(f"{kind}_{identifier(path).lower()}"), value)

    def placeholder(self, name: str, value: Any) -> Proxy:
        """An input of the graph."""
        proxy = self.tracer.create_proxy("placeholder", name, (), {})
        if isinstance(value, Tensor):
            self.tracer.track(value, proxy)
            proxy.node.meta["real"] = value
            if value.requires_grad and type(value) in (Tensor, Parameter):
                proxy.node.meta["val"].requires_grad_()
        return proxy

    def add_state(self) -> None:
        """Inputs for parameters, buffers, and tensors that are plain attributes."""
        specs = self.found.inputs
        for path, param in self.model.named_parameters(remove_duplicate=False):
            proxy = self.held("p", path, param)
            specs.append(InputSpec(InputKind.PARAMETER, TensorArgument(proxy.node.name), path))
        kept = state_of(self.model)
        for path, buffer in self.model.named_buffers(remove_duplicate=False):
            proxy = self.held("b", path, buffer)
            name = TensorArgument(proxy.node.name)
            specs.append(InputSpec(InputKind.BUFFER, name, path, path in kept))
        for prefix, module in self.model.named_modules():
            for key, value in module._state_.items():
                if isinstance(value, Tensor) and key not in module._kinds:
                    path = f"{prefix}.{key}" if prefix else key
                    if any(value is c for c in self.found.constants.values()):
                        self.found.constants[path] = value
                    else:
                        self.add_constant(path, value)

    def add_constant(self, path: str, value: Any) -> Proxy:
        """An input for a tensor that is no state."""
        proxy = self.held("c", path, value)
        name = TensorArgument(proxy.node.name)
        self.found.inputs.append(InputSpec(InputKind.CONSTANT_TENSOR, name, path))
        self.found.constants[path] = value
        return proxy

    def add_inputs(self, args: Any, kwargs: Any) -> None:
        """Inputs for what the caller gives."""
        leaves, self.found.in_spec = pytree.tree_flatten((args, kwargs))
        for leaf, name in zip(leaves, self.given, strict=True):
            node = self.placeholder(name, leaf).node
            self.found.users.append(node)
            tensor = isinstance(leaf, Tensor)
            if not tensor:
                node.meta["val"] = leaf
            arg: Any = TensorArgument(node.name) if tensor else ConstantArgument(node.name, leaf)
            self.found.inputs.append(InputSpec(InputKind.USER_INPUT, arg, None))

    def call(self, preserved: Iterable[str], args: Any, kwargs: Any) -> Any:
        """Runs the model."""
        calls = Calls(self.model, self.tracer, preserved, self.note)
        with calls.watched():
            result = self.model(*args, **kwargs)
        self.specs = calls.specs
        return result

    def replay(self, of: dict[str, ModuleCallSignature], args: Any, kwargs: Any) -> Any:
        """Runs the module of a program, node by node."""
        replay = Replay(self.model, self.tracer)
        leaves = pytree.tree_leaves((args, kwargs))
        result = replay.run(*leaves, enable_io_processing=False)
        own = {name: s for name, s in of.items() if name}
        replay.note_signatures(own, self.note)
        self.specs = {name: (s.in_spec, s.out_spec) for name, s in own.items()}
        return pytree.tree_unflatten(result, of[""].out_spec)

    def finish(self, result: Any) -> None:
        """The output, and a graph without writes."""
        tracer, graph = self.tracer, self.found.graph
        leaves, self.found.out_spec = pytree.tree_flatten(result)
        values = tuple(tracer.create_arg(self._leaf(leaf)) for leaf in leaves)
        graph.output(values)
        changed = functionalize_graph(graph, write_back=False)
        _drop_lifts(graph)
        self._lift()
        output = graph.output_node()
        updates = []
        by_name = {s.arg.name: s for s in self.found.inputs}
        for root, new in sorted(changed.items()):
            value = _copied_whole(root, new)
            spec = by_name[root.name]
            kind = OutputKind.USER_INPUT_MUTATION
            if spec.kind is InputKind.BUFFER:
                kind = OutputKind.BUFFER_MUTATION
            elif spec.kind is not InputKind.USER_INPUT:
                raise NotImplementedError(f"export: the program writes {spec.target}")
            updates.append(value)
            target = spec.target if spec.target is not None else root.name
            self.found.outputs.append(OutputSpec(kind, TensorArgument(value.name), target))
        for value in output.args[0]:
            arg: Any = ConstantArgument("", value)
            if isinstance(value, Node):
                arg = TensorArgument(value.name)
            self.found.outputs.append(OutputSpec(OutputKind.USER_OUTPUT, arg, None))
        output.args = ((*updates, *output.args[0]),)
        graph.eliminate_dead_code()
        for name, given in taken_out(graph).items():
            in_spec, out_spec = self.specs[name]
            self.found.signatures[name] = ModuleCallSignature(
                given["inputs"], given["outputs"], in_spec, out_spec
            )

    def note(self, *values: Any) -> None:
        """Marks values, which the graph shows until it is finished."""
        found = tuple(self._leaf(v) for v in values)
        self.tracer.create_proxy("call_function", tracepoint, found, {})

    def _leaf(self, leaf: Any) -> Any:
        return self.mode._argument(leaf) if isinstance(leaf, Tensor) else leaf

    def _lift(self) -> None:
        """Makes inputs of the tensors that the program made of numbers."""
        graph, first = self.found.graph, self.found.users
        constants = [n for n in graph.nodes if n.op == "get_attr"]
        made: dict[str, Node] = {}
        inside = (n for n in graph.nodes if n.op not in ("placeholder", "get_attr"))
        before = first[0] if first else next(inside)
        at = len(self.found.inputs) - len(first)
        for node in constants:
            if node.target not in made:
                path = f"lifted_tensor_{len(made)}"
                value = getattr(self.tracer.root, node.target)
                if isinstance(value, Parameter):  # of no module
                    value = value.detach()
                with graph.inserting_before(before):
                    proxy = self.held("c", path, value)
                name = TensorArgument(proxy.node.name)
                spec = InputSpec(InputKind.CONSTANT_TENSOR, name, path)
                self.found.inputs.insert(at + len(made), spec)
                self.found.constants[path] = value
                made[node.target] = proxy.node
        for node in constants:
            given = made[node.target]
            if _leads_out(node):  # what the caller gets is fresh, as what the program made
                with graph.inserting_before(min(node.users)):
                    given = graph.call_function(aten.clone.default, (given,), name="clone")
                given.meta = dict(node.meta)
            node.replace_all_uses_with(given)
            graph.erase_node(node)
        self._in_order(before)

    def _in_order(self, before: Node) -> None:
        """Has constants stand as the program uses them, before a node, without those that it does not use."""
        found, nodes = self.found, {n.name: n for n in self.found.graph.nodes}
        specs = [s for s in found.inputs if s.kind is InputKind.CONSTANT_TENSOR]
        if not specs:
            return
        used = [s for s in specs if nodes[s.arg.name].users]
        used.sort(key=lambda s: _first_use(nodes[s.arg.name]))
        at = next(i for i, s in enumerate(found.inputs) if s.kind is InputKind.CONSTANT_TENSOR)
        rest = [s for s in found.inputs if s.kind is not InputKind.CONSTANT_TENSOR]
        found.inputs = [*rest[:at], *used, *rest[at:]]
        for spec in used:
            before.prepend(nodes[spec.arg.name])
        kept = [found.constants[s.target] for s in used if s.target is not None]
        for spec in specs:
            if spec not in used:
                found.graph.erase_node(nodes[spec.arg.name])
        held = found.constants.items()
        found.constants = {k: v for k, v in held if any(v is c for c in kept)}


def _first_use(node: Node) -> tuple[Node, int]:
    """The first node that a value goes to, and where it stands there."""
    user = min(node.users)
    return user, user.all_input_nodes.index(node)


def _copied_whole(root: Node, value: Node) -> Node:
    """What an input becomes: what is copied over all of it, if that has its type and shape."""
    if value.target is not aten.copy.default or not isinstance(value.args[1], Node):
        return value
    source, old = value.args[1], root.meta.get("val")
    new = source.meta.get("val")
    if new is None or old is None or new.dtype != old.dtype or new.shape != old.shape:
        return value
    value.replace_all_uses_with(source)
    return source


def _leads_out(node: Node) -> bool:
    """Whether the output has a value's memory: the value itself or a view of it."""

    def passes(user: Node) -> bool:
        if user.target is operator.getitem:
            return True
        returns = getattr(getattr(user.target, "_schema", None), "returns", ())
        return any(r.alias_info is not None for r in returns)

    return any(u.op == "output" or (passes(u) and _leads_out(u)) for u in node.users)


def _drop_lifts(graph: Graph) -> None:
    """Takes calls out that give their argument: new tensors of numbers, which a graph copies."""
    for node in graph.nodes:
        name = getattr(getattr(node.target, "overloadpacket", None), "__name__", "")
        if name == "lift_fresh":
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


def trace(
    model: Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    table: Mapping[Any, Callable[..., Any]] | None = None,
    preserved: Iterable[str] = (),
    of: dict[str, ModuleCallSignature] | None = None,
    report: DraftExportReport | None = None,
) -> Traced:
    """The operators that a call of a model comes down to.

    Args:
        preserved: the modules whose calls' signatures are noted.
        of: the signatures of a program, if the model is the module of one.
        report: notes values that are read, which are refused without it.
    """
    state = _Trace(model, table, report)
    # a trace runs the model, which may write its buffers, its inputs, and draw random numbers
    with torchlike.no_grad():
        copies: dict[int, Any] = {}
        args, kwargs = pytree.tree_map_only(
            Tensor, lambda t: copies.setdefault(id(t), _copied(t)), (args, kwargs)
        )
        buffers = [(b, b.detach().clone()) for b in model.buffers()]
    state.name_inputs(args, kwargs)
    state.add_state()
    state.add_inputs(args, kwargs)
    try:
        with exporting(), torchlike.random.fork_rng(devices=()), torchlike.no_grad(), state.mode:
            if of is None:
                result = state.call(preserved, args, kwargs)
            else:
                result = state.replay(of, args, kwargs)
        state.finish(result)
    finally:
        with torchlike.no_grad():
            for buffer, before in buffers:
                if not buffer.is_meta and not torchlike.equal(buffer, before):
                    buffer.copy_(before)
    return state.found


def _copied(tensor: Any) -> Any:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)
