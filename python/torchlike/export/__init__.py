"""Programs that run without the code that they were written in.

`export` traces a model to a graph of operators, with its state as inputs. Sizes that are to vary are found by tracing
at several sizes: what differs has to be an expression of the sizes, and all else the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchlike._decomp import core_aten_decompositions
from torchlike.export._draft_export import DraftExportReport, log
from torchlike.export._probe import probed
from torchlike.export._trace import state_of
from torchlike.export.decomp_utils import CustomDecompTable
from torchlike.export.dynamic_shapes import (
    AdditionalInputs,
    Dim,
    ShapesCollection,
    UserError,
    dims,
    specs_of,
    symbols_of,
    variables_of,
)
from torchlike.export.exported_program import (
    ExportedProgram,
    ModuleCallEntry,
    ModuleCallSignature,
    _Sizes,
    arg_names,
)
from torchlike.export.graph_signature import ExportBackwardSignature, ExportGraphSignature
from torchlike.export.unflatten import FlatArgsAdapter, UnflattenedModule, unflatten
from torchlike.jit._module import ScriptModule
from torchlike.nn import Module
from torchlike.utils import _pytree

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "AdditionalInputs",
    "CustomDecompTable",
    "Dim",
    "ExportBackwardSignature",
    "ExportGraphSignature",
    "ExportedProgram",
    "FlatArgsAdapter",
    "ModuleCallEntry",
    "ModuleCallSignature",
    "ShapesCollection",
    "UnflattenedModule",
    "UserError",
    "default_decompositions",
    "dims",
    "draft_export",
    "export",
    "load",
    "register_dataclass",
    "save",
    "unflatten",
]


def export(
    mod: Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    strict: bool = False,
    preserve_module_call_signature: tuple[str, ...] = (),
    prefer_deferred_runtime_asserts_over_guards: bool = False,
) -> ExportedProgram:
    """A model as a program of operators.

    Args:
        mod: the model.
        args: example inputs.
        kwargs: example inputs by name.
        dynamic_shapes: for each input which of its sizes vary: `{"x": {0: Dim("batch")}}`.
        strict: accepted; programs are always traced by running them.
        preserve_module_call_signature: paths of modules that `unflatten` gives back with their own arguments.

    Raises:
        UserError: if the program is another one at other sizes, or decides by values.
    """
    return _exported(mod, args, kwargs, dynamic_shapes, preserve_module_call_signature)


def draft_export(
    mod: Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    preserve_module_call_signature: tuple[str, ...] = (),
    strict: bool = False,
    prefer_deferred_runtime_asserts_over_guards: bool = False,
) -> ExportedProgram:
    """A program in any case: what cannot be exported becomes constant, and `_report` of the program says what.

    Args:
        mod: the model.
        args: example inputs.
        kwargs: example inputs by name.
        dynamic_shapes: for each input which of its sizes vary, where the program lets them.
    """
    report = DraftExportReport()
    made = _exported(mod, args, kwargs, dynamic_shapes, preserve_module_call_signature, report)
    made._report = report
    if not report.successful():
        log.warning("%s", report)
    return made


def _exported(
    mod: Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
    preserved: tuple[str, ...],
    report: DraftExportReport | None = None,
) -> ExportedProgram:
    """Checks what `export` is given, and traces."""
    if not isinstance(mod, Module):
        raise ValueError(f"Expected `mod` to be an instance of `torch.nn.Module`, got {type(mod)}.")
    if isinstance(mod, ScriptModule):
        raise ValueError(
            "Exporting a ScriptModule is not supported. Maybe try converting your ScriptModule to an ExportedProgram "
            "using `TS2EPConverter(mod, args, kwargs).convert()` instead."
        )
    if not isinstance(args, tuple):
        raise UserError(
            f"Expecting `args` to be a tuple of example positional inputs, got {type(args)}"
        )
    named = dict(kwargs or {})
    specs = specs_of(mod, args, named, dynamic_shapes)
    leaves = _pytree.tree_leaves((args, named))
    variables, places = variables_of(leaves, specs)
    sizes = _Sizes(variables, places, symbols_of(mod, args, named, places))
    return _export(mod, args, named, sizes, preserved=preserved, report=report)


def _rename_input(graph: Any, signature: ExportGraphSignature, old: str, new: str) -> None:
    """Gives an input of a graph the name that it had in another one."""
    node = next(n for n in graph.nodes if n.op == "placeholder" and n.name == old)
    node._rename(new)
    node.target = node.name
    signature.replace_all_uses(old, node.name)


def _export(
    mod: Any,
    args: Any,
    kwargs: dict[str, Any],
    sizes: _Sizes,
    table: Any = None,
    of: ExportedProgram | None = None,
    preserved: tuple[str, ...] = (),
    report: DraftExportReport | None = None,
) -> ExportedProgram:
    """Traces a model; `of` is the program that it is a module of."""
    known = None if of is None else of._signatures()
    traced, variables, places = probed(
        mod, args, kwargs, sizes.variables, sizes.places, table, preserved, known, report
    )
    signature = ExportGraphSignature(traced.inputs, traced.outputs)
    state = state_of(mod) if of is None else of.state_dict
    constants = dict(traced.constants)
    named = mod.named_buffers(remove_duplicate=False)
    kept = [name for name, _ in named] if of is None else list(of.constants)
    for name in kept:
        if name not in state:
            constants[name] = mod.get_buffer(name)
    for spec in signature.input_specs:
        # a module of a program has only buffers: what they were, the program knows
        if of is not None and spec.target in of.constants:
            before = {s.target: s for s in of.graph_signature.input_specs}[spec.target]
            spec.kind, spec.persistent = before.kind, before.persistent
            _rename_input(traced.graph, signature, spec.arg.name, before.arg.name)
    names = arg_names(mod, args, kwargs) if of is None else of._signature().forward_arg_names
    call = ModuleCallSignature([], [], traced.in_spec, traced.out_spec, names)
    modules = [(n, m) for n, m in mod.named_modules(remove_duplicate=False) if n]
    paths = [n for n, _ in modules] if of is None else [e.fqn for e in of.module_call_graph[1:]]
    paths += [name for name in traced.signatures if name not in paths]
    entries = [ModuleCallEntry("", call)]
    entries += [ModuleCallEntry(path, traced.signatures.get(path)) for path in paths]
    example = (args, kwargs)
    found = _Sizes(variables, places, sizes.symbols)
    made = ExportedProgram(
        Module(), traced.graph, signature, state, found, entries, example, constants
    )
    firsts = {id(m): n for n, m in reversed(modules)}
    made._aliases = {n: firsts[id(m)] for n, m in modules if firsts[id(m)] != n}
    if of is not None:
        made._aliases = of._aliases
    return made


def save(
    ep: ExportedProgram,
    f: Any,
    *,
    extra_files: dict[str, Any] | None = None,
    opset_version: dict[str, int] | None = None,
    pickle_protocol: int = 2,
) -> None:
    """Writes a program as an archive that PyTorch reads, too.

    Args:
        f: a path, or a file that can be written.
        extra_files: texts and bytes that the archive also holds, by name.
    """
    from torchlike.export._pt2 import write

    if not isinstance(ep, ExportedProgram):
        raise TypeError(
            "The 'ep' parameter must be an instance of 'ExportedProgram', "
            f"got '{type(ep).__name__}' instead."
        )
    write(ep, f, extra_files or {})


def load(
    f: Any,
    *,
    extra_files: dict[str, Any] | None = None,
    expected_opset_version: dict[str, int] | None = None,
) -> ExportedProgram:
    """Reads a program of an archive. Nothing in it is executed.

    Args:
        f: a path, or a file that can be read.
        extra_files: filled with what the archive holds under these names.

    Raises:
        CheckpointError: if it is no such archive, or contradicts itself.
        NotImplementedError: for operators and values that are not known.
    """
    from torchlike.export._pt2_read import read

    return read(f, extra_files)


def register_dataclass(cls: type[Any], *, serialized_type_name: str | None = None) -> None:
    """Makes a dataclass a container of inputs and outputs."""
    _pytree.register_dataclass(cls)


def default_decompositions() -> CustomDecompTable:
    """The functions that make core operators of all others, by operator."""
    return CustomDecompTable(core_aten_decompositions())
