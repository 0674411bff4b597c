"""A program with its state, signature and the sizes that it is valid for."""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from torchlike.export._inputs import check_guards
from torchlike.export._writes import write_in_place
from torchlike.export.dynamic_shapes import Place, UserError, Variable
from torchlike.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    ModuleCallSignature,
)
from torchlike.fx._codegen import _PyTreeCodeGen, _PyTreeInfo
from torchlike.fx.graph_module import GraphModule, _assign_attr
from torchlike.nn import Module
from torchlike.utils import _pytree as pytree

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchlike.fx.graph import Graph

__all__ = ["ExportedProgram", "ModuleCallEntry", "ModuleCallSignature", "ValueRanges"]


_UNBOUNDED = (1 << 63) - 1


class Symbol(str):
    """The name of a size that varies, or what it is of others; shown without quotes."""

    def __repr__(self) -> str:
        return str(self)


class ValueRanges(NamedTuple):
    """The least and the greatest size."""

    lower: int
    upper: int

    def __repr__(self) -> str:
        upper = "int_oo" if self.upper >= _UNBOUNDED else self.upper
        return f"VR[{self.lower}, {upper}]"


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
    symbols: dict[str, str] = field(default_factory=dict)
    """Names of symbols, by variable."""

    def ranges(self) -> dict[Symbol, ValueRanges]:
        """The bounds of the sizes that vary, also of those that follow from others."""
        found = {
            Symbol(self.symbols[n]): ValueRanges(v.low, v.high) for n, v in self.variables.items()
        }
        for place in self.places:
            name, bounds = self.symbols[place.variable], self.variables[place.variable]
            if (place.factor, place.offset) == (1, 0):
                continue
            shown = name if place.factor == 1 else f"{place.factor}*{name}"
            if place.offset:
                shown += f" {'+' if place.offset > 0 else '-'} {abs(place.offset)}"
            low, high = (
                b if b >= _UNBOUNDED else b * place.factor + place.offset
                for b in (bounds.low, bounds.high)
            )
            found[Symbol(shown)] = ValueRanges(low, high)
        return found


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
        self._report: Any = None
        self._aliases: dict[str, str] = {}  # other paths of modules, with their first

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
    def range_constraints(self) -> dict[Symbol, ValueRanges]:
        """The sizes that vary, with their bounds."""
        return self._sizes.ranges()

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
        """The inputs that the program was traced with, or others of their structure."""
        return self._example_inputs

    @example_inputs.setter
    def example_inputs(self, value: Any) -> None:
        if value is not None:
            pair = isinstance(value, tuple) and len(value) == 2
            if not pair or type(value[0]) is not tuple or type(value[1]) is not dict:
                raise ValueError(
                    "Example inputs should be a tuple containing example arguments (as a tuple), "
                    "and example kwargs (as a dictionary)."
                )
            order = self._signature().in_spec.children_specs[1].context
            if set(value[1]) != set(order):
                raise ValueError(
                    "Ran into a kwarg keyword mismatch: Got the following keywords "
                    f"{list(value[1])} but expected {order}"
                )
            self._leaves(*value)
        self._example_inputs = value

    @property
    def dialect(self) -> str:
        """The operators in the graph: ATen's."""
        return "ATEN"

    def _signature(self) -> ModuleCallSignature:
        found = self._module_call_graph[0].signature
        assert found is not None
        return found

    def _signatures(self) -> dict[str, ModuleCallSignature]:
        return {e.fqn: e.signature for e in self._module_call_graph if e.signature is not None}

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
            value = self._value(spec.target)
            if spec.kind is InputKind.CONSTANT_TENSOR and value.requires_grad:
                warnings.warn(
                    f"A model attribute `{spec.target}` requires gradient. but it's not properly registered as a "
                    "parameter. torch.export will detach it and treat it as a constant tensor but please register it "
                    "as parameter instead.",
                    stacklevel=2,
                )
                value = value.detach()
            _assign_attr(value, root, spec.target)
            with graph.inserting_before(node):
                fetched = graph.create_node("get_attr", spec.target)
            fetched.meta = {**node.meta, "input": node.name}
            node.replace_all_uses_with(fetched)
            graph.erase_node(node)
            nodes[spec.arg.name] = fetched
        write_in_place(graph, self.graph_signature, nodes)
        names = signature.forward_arg_names or [n.name for n in graph.find_nodes(op="placeholder")]
        info = _PyTreeInfo(names, signature.in_spec, signature.out_spec)
        graph._codegen = _PyTreeCodeGen(info)
        made = GraphModule(root, graph)
        for spec in self.graph_signature.input_specs:
            unsaved = spec.kind in (InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
            if unsaved and not spec.persistent and spec.target is not None:
                above, _, name = spec.target.rpartition(".")
                made.get_submodule(above)._non_persistent_buffers_set.add(name)
        for name in ("train", "eval"):  # the class is that of this module alone
            setattr(type(made), name, _no_switch(name))
        if check_guards:
            made.register_forward_pre_hook(self._check, with_kwargs=True)
        return made

    def _check(self, module: Any, args: Any, kwargs: Any) -> None:
        """Refuses inputs for which the program is not valid.

        Raises:
            ValueError: for another structure.
            AssertionError: for sizes and values that it was not traced for.
        """
        leaves = self._leaves(args, kwargs)
        check_guards(self.graph_signature, self.graph, self._sizes, leaves)

    def _leaves(self, args: Any, kwargs: Any) -> list[Any]:
        """The leaves of arguments that have the structure of the program's."""
        wanted = self._signature().in_spec
        if set(kwargs) != set(wanted.children_specs[1].context):
            raise ValueError(
                "Ran into a kwarg keyword mismatch: Got the following keywords "
                f"{list(kwargs)} but expected {wanted.children_specs[1].context}"
            )
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
        return leaves

    def run_decompositions(self, decomp_table: Any = None, **_: Any) -> ExportedProgram:
        """The program with operators replaced by what a table says; traced again.

        Args:
            decomp_table: functions by operator; without it, `default_decompositions()`.
        """
        from torchlike.export import _export, default_decompositions

        if self._example_inputs is None:
            raise UserError("run_decompositions needs the example inputs of the program")
        args, kwargs = self._example_inputs
        table = default_decompositions() if decomp_table is None else decomp_table
        module = self.module(check_guards=False)
        return _export(module, args, kwargs, self._sizes, table, self)


def _no_switch(name: str) -> Any:
    """A method for modules of programs, which were traced in one mode."""

    def switch(self: Any, *mode: Any) -> Any:
        raise NotImplementedError(f"Calling {name}() is not supported yet.")

    switch.__name__ = name
    switch.__doc__ = "Refused: the program was traced in one mode."
    return switch


def arg_names(model: Any, args: Any, kwargs: Any) -> list[str]:
    """Names of the arguments of the program's function."""
    import inspect

    signature = inspect.signature(model.forward)
    names: list[str] = []
    for name, value in signature.bind(*args, **kwargs).arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            names += [f"{name}_{i}" for i in range(len(value))]
        else:
            names += list(value) if kind is inspect.Parameter.VAR_KEYWORD else [name]
    return names
