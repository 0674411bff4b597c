"""A program as the modules that it was exported from: each with its own graph, parameters and buffers."""

from __future__ import annotations

import abc
import contextlib
import copy
import logging
from typing import TYPE_CHECKING, Any

import torchlike
from torchlike.export._frames import Call, Cutter, calls_of
from torchlike.export._inputs import check_call
from torchlike.export._writes import write_in_place
from torchlike.export.graph_signature import InputKind
from torchlike.fx._symbolic_trace import is_fx_symbolic_tracing
from torchlike.fx.graph import Graph
from torchlike.fx.graph_module import GraphModule
from torchlike.fx.interpreter import Interpreter
from torchlike.fx.node import Node
from torchlike.nn import Module, Parameter
from torchlike.utils import _pytree as pytree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torchlike.export.exported_program import ExportedProgram

__all__ = [
    "FlatArgsAdapter",
    "InterpreterModule",
    "InterpreterModuleDispatcher",
    "UnflattenedModule",
    "unflatten",
]

log = logging.getLogger(__name__)
RUN_WITH_INTERPRETER = True


@contextlib.contextmanager
def _disable_interpreter() -> Iterator[None]:
    """Modules that are made inside run as generated code."""
    global RUN_WITH_INTERPRETER
    before, RUN_WITH_INTERPRETER = RUN_WITH_INTERPRETER, False
    try:
        yield
    finally:
        RUN_WITH_INTERPRETER = before


class FlatArgsAdapter(abc.ABC):
    """Makes arguments of another structure those that a program takes."""

    @abc.abstractmethod
    def adapt(
        self,
        target_spec: pytree.TreeSpec,
        input_spec: pytree.TreeSpec,
        input_args: list[Any],
        metadata: dict[str, Any] | None = None,
        obj: Any | None = None,
    ) -> list[Any]:
        """The leaves of `target_spec`, made of those of `input_spec`."""

    def get_flat_arg_paths(self) -> list[str]:
        """Names of the arguments that are used."""
        return []


class _SubmoduleBase(Module):
    """A module that runs a graph, whose names are those of its own attributes.

    Another call of the same module has a graph of its own, but takes what the graph names from its owner.
    """

    def __init__(self, graph: Graph | None, ty: str | None = None) -> None:
        super().__init__()
        self.graph = graph
        self._ty = ty
        self._run_with_interpreter = RUN_WITH_INTERPRETER
        self._owner: tuple[Module, ...] = ()  # in a tuple, as it is no part of this module
        self._code: tuple[Callable[..., Any], ...] = ()

    def type_name(self) -> str | None:
        """The path of the original module's class."""
        return self._ty

    @property
    def graph_module(self) -> GraphModule:
        """The graph with what it names as a module of generated code."""
        assert self.graph is not None
        owner = self._owner[0] if self._owner else self
        return GraphModule(owner, self.graph, type(self).__name__)

    def finalize(self) -> None:
        """Takes the graph as it is now."""
        assert self.graph is not None
        self.graph.lint()
        self._code = ()

    def _run(self, *args: Any) -> Any:
        assert self.graph is not None
        owner = self._owner[0] if self._owner else self
        if self._run_with_interpreter:
            return Interpreter(owner, graph=self.graph).run(*args, enable_io_processing=False)
        if not self._code:
            self._code = (type(self.graph_module).forward,)
        return self._code[0](owner, *args)

    def _graphs(self) -> list[GraphModule]:
        """All graphs that it runs."""
        return [self.graph_module]

    def print_readable(
        self,
        print_output: bool = True,
        include_stride: bool = False,
        include_device: bool = False,
        colored: bool = False,
    ) -> str:
        """Its graphs as source with shapes."""
        shown = (print_output, include_stride, include_device, colored)
        return "\n".join(m.print_readable(*shown) for m in self._graphs())


class InterpreterModule(_SubmoduleBase):
    """A module that runs its graph, and says at which node something fails."""

    graph: Graph

    @property
    def arg_names(self) -> list[str]:
        """Names of the arguments."""
        return [n.target for n in self.graph.nodes if n.op == "placeholder"]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The value of the graph."""
        names = self.arg_names[len(args) :]
        if len(args) > len(self.arg_names) or sorted(names) != sorted(kwargs):
            raise TypeError(
                f"{self._ty or type(self).__name__} takes the arguments {self.arg_names}, but was "
                f"given {len(args)} of them and {list(kwargs)}"
            )
        return self._run(*args, *(kwargs[name] for name in names))


class InterpreterModuleDispatcher(_SubmoduleBase):
    """A module whose calls differ: each runs the graph of the next one, in a circle.

    Args:
        attrs: names of what the first call's module has, and this one gets.
        call_modules: a module for each call.
    """

    def __init__(self, attrs: set[str], call_modules: list[InterpreterModule]) -> None:
        if not call_modules:
            raise AssertionError("call_modules must not be empty")
        super().__init__(None, call_modules[0]._ty)
        for name in attrs:
            setattr(self, name, getattr(call_modules[0], name))
        self._call_modules = (tuple(call_modules),)
        self._num_calls = 0

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The value of the next call's graph."""
        calls = self.call_modules()
        called = calls[self._num_calls]
        self._num_calls = (self._num_calls + 1) % len(calls)
        return called(*args, **kwargs)

    def call_modules(self) -> list[InterpreterModule]:
        """The modules of the calls, in order."""
        return list(self._call_modules[0])

    def _graphs(self) -> list[GraphModule]:
        return [m.graph_module for m in self.call_modules()]


class UnflattenedModule(_SubmoduleBase):
    """What `unflatten` gives: a module like the one that was exported, called as it was."""

    graph: Graph

    def __init__(
        self, export_module: ExportedProgram, flat_args_adapter: FlatArgsAdapter | None = None
    ) -> None:
        root = _Builder(self, export_module)
        entry = export_module.module_call_graph[0]
        super().__init__(None)
        self.graph_signature = export_module.graph_signature
        self.module_call_graph = copy.copy(export_module.module_call_graph)
        self.range_constraints = export_module.range_constraints
        self.equality_constraints: list[Any] = []
        self.flat_args_adapter = flat_args_adapter
        self.adapted = False
        self.check_input_constraints = True
        self.meta = {**export_module.graph_module.meta, "unflattened_module": self}
        self._call_signature = entry.signature
        self._sizes = export_module._sizes
        root.build()
        self.graph = root.graph
        self._ty = root.kind
        self.input_placeholders = [n for n in self.graph.nodes if n.op == "placeholder"]
        self.finalize()

    def process_forward_inputs(self, *args: Any, **kwargs: Any) -> list[Any]:
        """The leaves of the arguments, checked.

        Raises:
            ValueError: for other keywords.
            TypeError: for another structure, if no adapter is there.
            RuntimeError: for sizes that the program is not valid for.
        """
        signature = self._call_signature
        assert signature is not None
        wanted = signature.in_spec
        order = wanted.children_specs[1].context
        if kwargs:
            if set(kwargs) != set(order):
                raise ValueError(
                    "Ran into a kwarg keyword mismatch: "
                    f"Got the following keywords {list(kwargs)} but expected {order}"
                )
            kwargs = {k: kwargs[k] for k in order}
        leaves, spec = pytree.tree_flatten((args, kwargs))
        if is_fx_symbolic_tracing():
            return leaves
        if spec != wanted:
            leaves = self._adapt_flat_args(leaves, spec, (args, kwargs))
        elif self.check_input_constraints:
            check_call(self.graph_signature, self.graph, self._sizes, leaves, wanted)
        return leaves

    def _adapt_flat_args(self, flat_args: list[Any], in_spec: Any, input: Any) -> list[Any]:
        signature = self._call_signature
        assert signature is not None
        wanted = signature.in_spec
        log.info("inputs have the structure %s, the program's is %s", in_spec, wanted)
        if self.flat_args_adapter is None:
            raise TypeError(
                "There is no flat args adapter specified. "
                "Are you sure you are calling this with the right arguments? "
            )
        if not self.adapted:
            self.adapted = True
        flat_args = self.flat_args_adapter.adapt(
            target_spec=wanted,
            input_spec=in_spec,
            input_args=flat_args,
            metadata=self.meta,
            obj=input,
        )
        if len(flat_args) != wanted.num_leaves:
            raise TypeError(
                f"Flat args adaption failed, number of mismatch Adapted: {len(flat_args)} \n"
                f"Signature: {wanted.num_leaves}"
            )
        return flat_args

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the program gives."""
        leaves = self.process_forward_inputs(*args, **kwargs)
        assert self._call_signature is not None
        return pytree.tree_unflatten(self._run(*leaves), self._call_signature.out_spec)


# what modules of graphs are given beside the original's names
_OWN = frozenset(
    (
        *vars(Module),
        *vars(_SubmoduleBase),
        *vars(UnflattenedModule),
        *("graph", "meta", "adapted", "module_call_graph", "graph_signature", "range_constraints"),
        *(
            "equality_constraints",
            "flat_args_adapter",
            "check_input_constraints",
            "input_placeholders",
        ),
        *("arg_names", "call_modules", "_ty", "_owner", "_code", "_run_with_interpreter", "_sizes"),
    )
)


class _Builder:
    """Makes the modules of a program below a root."""

    def __init__(self, root: Module, program: ExportedProgram) -> None:
        self.root, self.program = root, program
        self.flat = copy.deepcopy(program.graph)
        for node in self.flat.nodes:
            node.meta = {k: v for k, v in node.meta.items() if k != "real"}
        self.graph = Graph()
        self.kind: str | None = None
        self.specs = {s.arg.name: s for s in program.graph_signature.input_specs}
        self.alike: dict[Node, Node] = {}
        self.placed: dict[tuple[str, str], Node] = {}

    def build(self) -> None:
        """Makes them, with their state."""
        program = self.program
        inputs = {n.name: n for n in self.flat.nodes if n.op == "placeholder"}
        write_in_place(self.flat, program.graph_signature, inputs)
        known = [e.fqn for e in program.module_call_graph if e.fqn and "@" not in e.fqn]
        call = calls_of(self.flat, set(known))
        stacks = (
            n.meta["nn_module_stack"] for n in self.flat.nodes if n.meta.get("nn_module_stack")
        )
        self.kind = next((next(iter(s.values()))[1] for s in stacks), None)
        users = [
            n
            for n in self.flat.nodes
            if n.op == "placeholder" and self.specs[n.name].kind is InputKind.USER_INPUT
        ]
        cut = Cutter(self.flat, call, users, self._paths(), self._place, program._signatures())
        self.graph = call.graph
        self._modules(known, [c for c in call.calls() if c is not call], cut.kept)
        self._state()
        for path, specs in cut.specs.items():
            for name, spec in specs.items():
                setattr(self.root.get_submodule(path), name, spec)

    def _paths(self) -> dict[Node, list[str]]:
        """For each input that is state all its paths."""
        state = {**self.program.state_dict, **self.program.constants}
        places: dict[int, list[str]] = {}
        for path, value in state.items():
            places.setdefault(id(value), []).append(path)
        found = {}
        for node in self.flat.nodes:
            spec = self.specs[node.name] if node.op == "placeholder" else None
            if spec is not None and spec.target is not None:
                mine = places[id(state[spec.target])]
                found[node] = [] if self._is_lifted(node) else mine
        return found

    def _is_lifted(self, node: Node) -> bool:
        spec = self.specs[node.name]
        return spec.kind is InputKind.CONSTANT_TENSOR and "." not in (spec.target or "")

    def _place(self, node: Node, path: str) -> str | None:
        """A name for a constant of the program in the module that uses it."""
        if not self._is_lifted(node):
            return None
        node = self._first_alike(node)
        name = self.specs[node.name].target
        assert name is not None
        self.placed[path, name] = node
        return name

    def _first_alike(self, node: Node) -> Node:
        """The first constant of this value: calls that make it anew do the same."""
        if node not in self.alike:
            others = (n for n in self.alike.values() if self._same(n, node))
            self.alike[node] = next(others, node)
        return self.alike[node]

    def _same(self, a: Node, b: Node) -> bool:
        one, other = (self.program.constants[self.specs[n.name].target or ""] for n in (a, b))
        if one.is_meta or (one.dtype, one.device) != (other.dtype, other.device):
            return False
        return torchlike.equal(one, other)

    def _modules(self, known: list[str], calls: list[Call], kept: set[str]) -> None:
        """Puts a module at each path; further calls of one with another graph beside it."""
        made: dict[str, list[tuple[Call, InterpreterModule]]] = {}
        seen: set[str] = set()
        for call in sorted(calls, key=lambda c: c.number):
            if call.name in seen:
                continue
            seen.add(call.name)
            module = InterpreterModule(call.graph, call.kind)
            made.setdefault(call.path, []).append((call, module))
        for path in known:
            here = [m for _, m in made.get(path, [])]
            first: Module = here[0] if here else Module()
            if len(here) > 1 and path in kept:
                first = InterpreterModuleDispatcher(set(), here)
            if path in self.program._aliases:
                first = self.root.get_submodule(self.program._aliases[path])
            self._put(path, first)
            for call, module in made.get(path, []):
                if module is not first:
                    module._owner = (first,)
                    if path not in kept:
                        self._put(call.name, module)

    def _put(self, path: str, module: Module) -> None:
        above, name = self._place_of(path)
        above.add_module(name, module)

    def _place_of(self, path: str) -> tuple[Module, str]:
        """The module that a path leads to, and the name in it.

        Raises:
            RuntimeError: for a name that modules of graphs have themselves, and for a way that is none.
        """
        above, _, name = path.rpartition(".")
        try:
            module = self.root.get_submodule(above)
        except AttributeError as e:
            raise RuntimeError(f"unflatten: there is no module {above!r} for {path!r}") from e
        if name in _OWN or not name:
            raise RuntimeError(
                f"unflatten: {path!r} has the name of an attribute that modules of graphs have"
            )
        return module, name

    def _state(self) -> None:
        """Puts parameters, buffers and constants at all their paths; what was one tensor is one here too."""
        program, made = self.program, dict[int, Any]()
        buffers = {
            s.target: s.persistent for s in self.specs.values() if s.kind is InputKind.BUFFER
        }
        for path, value in {**program.state_dict, **program.constants}.items():
            if id(value) not in made:
                copied = value.detach().clone()
                if isinstance(value, Parameter):
                    copied = Parameter(copied, requires_grad=value.requires_grad)
                made[id(value)] = copied
            new = made[id(value)]
            module, name = self._place_of(path)
            if isinstance(value, Parameter):
                module.register_parameter(name, new)
            elif path in program.state_dict or path in buffers:
                module.register_buffer(name, new, persistent=path in program.state_dict)
            elif "." in path:
                setattr(module, name, new)
        for (above, name), node in self.placed.items():
            target = self.specs[node.name].target
            assert target is not None
            module, name = self._place_of(f"{above}.{name}" if above else name)
            setattr(module, name, made[id(program.constants[target])])


def unflatten(
    module: ExportedProgram, flat_args_adapter: FlatArgsAdapter | None = None
) -> UnflattenedModule:
    """The modules that a program was exported from, with the graphs of their calls.

    Args:
        flat_args_adapter: makes arguments of another structure those that the program takes.
    """
    return UnflattenedModule(module, flat_args_adapter)
