"""A program with its state, signature and the sizes that it is valid for."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torchlike
from torchlike.export._trace import input_names
from torchlike.export.dynamic_shapes import Place, UserError, Variable
from torchlike.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    OutputKind,
)
from torchlike.fx._codegen import _PyTreeCodeGen, _PyTreeInfo
from torchlike.fx.graph_module import GraphModule, _assign_attr
from torchlike.nn import Module
from torchlike.utils import _pytree as pytree

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchlike.fx.graph import Graph

__all__ = ["ExportedProgram", "ModuleCallEntry", "ModuleCallSignature", "ValueRanges"]


class ValueRanges(NamedTuple):
    """The least and the greatest size."""

    lower: int
    upper: int

    def __repr__(self) -> str:
        upper = "int_oo" if self.upper >= (1 << 63) - 1 else self.upper
        return f"VR[{self.lower}, {upper}]"


@dataclass
class ModuleCallSignature:
    """How a module is called: the structures of its inputs and outputs."""

    inputs: list[Any]
    outputs: list[Any]
    in_spec: Any
    out_spec: Any
    forward_arg_names: list[str] | None = None


@dataclass
class ModuleCallEntry:
    """A module of the original program."""

    fqn: str
    signature: ModuleCallSignature | None = None


@dataclass
class _Sizes:
    """Which sizes of the inputs vary, and between which bounds."""

    variables: dict[str, Variable] = field(default_factory=dict)
    places: list[Place] = field(default_factory=list)

    @property
    def symbols(self) -> dict[str, str]:
        """Names of symbols, by variable."""
        return {name: f"s{i}" for i, name in enumerate(self.variables)}


class ExportedProgram:
    """What `torchlike.export` gives: `module()` makes it callable."""

    def __init__(
        self,
        root: Module,
        graph: Graph,
        graph_signature: ExportGraphSignature,
        state_dict: dict[str, Any],
        sizes: _Sizes,
        module_call_graph: list[ModuleCallEntry],
        example_inputs: Any = None,
        constants: dict[str, Any] | None = None,
    ) -> None:
        self._graph_module = GraphModule(root, graph)
        self._graph_signature = graph_signature
        self._state_dict = state_dict
        self._sizes = sizes
        self._module_call_graph = module_call_graph
        self._example_inputs = example_inputs
        self._constants = constants or {}

    @property
    def graph_module(self) -> GraphModule:
        """The graph as a module that takes the state as inputs."""
        return self._graph_module

    @property
    def graph(self) -> Graph:
        """The graph: parameters, buffers, constants and the caller's inputs come in, new buffers and results go out."""
        return self._graph_module.graph

    @property
    def graph_signature(self) -> ExportGraphSignature:
        """What inputs and outputs of the graph are."""
        return self._graph_signature

    @property
    def state_dict(self) -> dict[str, Any]:
        """Parameters and buffers by path."""
        return self._state_dict

    @property
    def constants(self) -> dict[str, Any]:
        """Tensors that belong to the program, and buffers that are not saved, by name."""
        return self._constants

    tensor_constants = constants

    @property
    def range_constraints(self) -> dict[str, ValueRanges]:
        """The sizes that vary, with their bounds."""
        symbols = self._sizes.symbols
        return {symbols[n]: ValueRanges(v.low, v.high) for n, v in self._sizes.variables.items()}

    @property
    def module_call_graph(self) -> list[ModuleCallEntry]:
        """The modules of the original program; the first says how the program is called."""
        return self._module_call_graph

    @property
    def call_spec(self) -> Any:
        """The structures of inputs and outputs."""
        return self._signature()

    @property
    def example_inputs(self) -> Any:
        """The inputs that the program was traced with."""
        return self._example_inputs

    @property
    def dialect(self) -> str:
        """The operators in the graph: ATen's."""
        return "ATEN"

    def _signature(self) -> ModuleCallSignature:
        found = self._module_call_graph[0].signature
        assert found is not None
        return found

    def parameters(self) -> Iterator[Any]:
        """The parameters."""
        for _, param in self.named_parameters():
            yield param

    def named_parameters(self) -> Iterator[tuple[str, Any]]:
        """The parameters with their paths."""
        for name in self.graph_signature.parameters:
            yield name, self.state_dict[name]

    def buffers(self) -> Iterator[Any]:
        """The buffers."""
        for _, buffer in self.named_buffers():
            yield buffer

    def named_buffers(self) -> Iterator[tuple[str, Any]]:
        """The buffers with their paths."""
        for name in self.graph_signature.buffers:
            yield name, self._value(name)

    def _value(self, name: str) -> Any:
        return self.state_dict[name] if name in self.state_dict else self.constants[name]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "Unable to call ExportedProgram directly. "
            "You should use `exported_program.module()` instead."
        )

    def __str__(self) -> str:
        source = self.graph_module.print_readable(print_output=False).replace("\n", "\n    ")
        return (
            f"ExportedProgram:\n    {source}\nGraph signature: {self.graph_signature}\n"
            f"Range constraints: {self.range_constraints}\n"
        )

    def validate(self) -> None:
        """Checks the graph."""
        self.graph.lint()

    def module(self, check_guards: bool = True) -> GraphModule:
        """The program as a module with its own state, called as the original.

        Args:
            check_guards: calls check that sizes are those that the program is valid for.
        """
        signature = self._signature()
        root = Module()
        graph = copy.deepcopy(self.graph)
        nodes = {n.name: n for n in graph.nodes}
        for spec in self.graph_signature.input_specs:
            node = nodes[spec.arg.name]
            if spec.kind is InputKind.USER_INPUT:
                continue
            assert spec.target is not None
            _assign_attr(self._value(spec.target), root, spec.target)
            with graph.inserting_before(node):
                fetched = graph.create_node("get_attr", spec.target)
            fetched.meta = node.meta
            node.replace_all_uses_with(fetched)
            graph.erase_node(node)
        self._write_back(graph, nodes)
        names = signature.forward_arg_names or [n.name for n in graph.find_nodes(op="placeholder")]
        info = _PyTreeInfo(names, signature.in_spec, signature.out_spec)
        graph._codegen = _PyTreeCodeGen(info)
        made = GraphModule(root, graph)
        made.train(False)
        if check_guards:
            made.register_forward_pre_hook(self._check, with_kwargs=True)
        return made

    def _write_back(self, graph: Graph, nodes: dict[str, Any]) -> None:
        """Writes what a call changes, and leaves the results."""
        output = graph.output_node()
        kept = []
        for spec, value in zip(self.graph_signature.output_specs, output.args[0], strict=True):
            if spec.kind is OutputKind.USER_OUTPUT:
                kept.append(value)
                continue
            with graph.inserting_before(output):
                target = None
                if spec.kind is OutputKind.USER_INPUT_MUTATION and spec.target is not None:
                    target = nodes[spec.target]
                if target is None:
                    assert spec.target is not None
                    target = graph.create_node("get_attr", spec.target)
                graph.call_function(torchlike.ops.aten.copy_.default, (target, value))
        output.args = (tuple(kept),)

    def _check(self, module: Any, args: Any, kwargs: Any) -> None:
        """Refuses inputs for which the program is not valid.

        Raises:
            ValueError: for another structure.
            AssertionError: for sizes and values that it was not traced for.
        """
        wanted = self._signature().in_spec
        if list(kwargs) != list(wanted.children_specs[1].context):
            order = wanted.children_specs[1].context
            kwargs = {k: kwargs[k] for k in order if k in kwargs} | kwargs
        leaves, spec = pytree.tree_flatten((args, kwargs))
        if spec != wanted:
            raise ValueError(
                "Trying to flatten user inputs with exported input tree spec: \n"
                f"{wanted}\nbut actually got inputs with tree spec of: \n{spec}.\n"
                "Please check that the inputs have the same number and type of args and kwargs as "
                "the ones you used when tracing."
            )
        check_inputs(self, leaves)

    def run_decompositions(self, decomp_table: Any = None, **_: Any) -> ExportedProgram:
        """The program with operators replaced by what a table says; traced again.

        Args:
            decomp_table: functions by operator.
        """
        from torchlike.export import _export

        if self._example_inputs is None:
            raise UserError("run_decompositions needs the example inputs of the program")
        args, kwargs = self._example_inputs
        module = self.module(check_guards=False)
        return _export(module, args, kwargs, self._sizes, decomp_table, self)


def check_inputs(program: ExportedProgram, leaves: list[Any]) -> None:
    """Checks sizes and constant values of the caller's inputs.

    Raises:
        AssertionError: with what does not hold.
    """
    specs = [s for s in program.graph_signature.input_specs if s.kind is InputKind.USER_INPUT]
    nodes = {n.name: n for n in program.graph.nodes if n.op == "placeholder"}
    sizes = program._sizes
    seen: dict[str, int] = {}
    for i, (spec, leaf) in enumerate(zip(specs, leaves, strict=True)):
        name = spec.arg.name
        if isinstance(spec.arg, ConstantArgument):
            if leaf != spec.arg.value:
                raise AssertionError(f"Guard failed: {name} == {spec.arg.value!r}")
            continue
        example = nodes[name].meta["val"]
        varying = {p.dim: p for p in sizes.places if p.leaf == i}
        if not isinstance(leaf, torchlike.Tensor) or leaf.dim() != example.dim():
            raise AssertionError(f"Guard failed: {name} is a tensor of {example.dim()} dimensions")
        for dim, size in enumerate(leaf.shape):
            shown = f"{name}.size()[{dim}]"
            place = varying.get(dim)
            if place is None:
                if size != example.shape[dim]:
                    raise AssertionError(f"Guard failed: {shown} == {example.shape[dim]}")
                continue
            value, rest = divmod(size - place.offset, place.factor)
            variable = sizes.variables[place.variable]
            if value > variable.high:
                raise AssertionError(f"Guard failed: {shown} <= {variable.high}")
            if value < variable.low:
                raise AssertionError(f"Guard failed: {shown} >= {variable.low}")
            if rest or seen.setdefault(place.variable, value) != value:
                known = (
                    seen[place.variable] * place.factor + place.offset if not rest else "a multiple"
                )
                raise AssertionError(f"Guard failed: {shown} == {known}")


def arg_names(model: Any, args: Any, kwargs: Any) -> list[str]:
    """Names of the arguments of the program's function."""
    import inspect

    bound = inspect.signature(model.forward).bind(*args, **kwargs).arguments
    names = list(bound)
    return names if len(names) == len(args) + len(kwargs) else input_names(model, args, kwargs)
