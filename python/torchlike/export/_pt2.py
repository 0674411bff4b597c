"""Writes programs as archives: JSON for the graph, plain bytes for tensors."""

from __future__ import annotations

import io
import json
import math
from typing import TYPE_CHECKING, Any

import torchlike
from torchlike import _zip_writer
from torchlike.export import _pt2_schema as schema
from torchlike.export._expressions import Expr
from torchlike.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torchlike.fx.node import Node
from torchlike.utils import _pytree as pytree

if TYPE_CHECKING:
    from torchlike._zip_writer import Writer
    from torchlike.export.exported_program import ExportedProgram

Tensor = torchlike.Tensor


class _Graph:
    """A graph as data."""

    def __init__(self, program: ExportedProgram) -> None:
        self.program = program
        self.symbols = program._sizes.symbols
        self.base: dict[str, int] = {}
        for name, variable in program._sizes.variables.items():
            self.base[name] = variable.example
        self.tensors: dict[str, Any] = {}
        self.sizes: dict[str, Any] = {}

    def integer(self, value: Any, example: int) -> dict[str, Any]:
        """A size: a number, or an expression with an example."""
        if not isinstance(value, Expr):
            return {"as_int": int(value)}
        return {"as_expr": {"expr_str": value.sympy(self.symbols), "hint": {"as_int": example}}}

    def tensor_data(self, value: Any, meta: dict[str, Any]) -> dict[str, Any]:
        """What a tensor looks like."""
        sizes = meta.get("sizes", list(value.shape))
        strides = meta.get("strides", list(value.stride()))
        return {
            "dtype": schema.DTYPE_NUMBERS[value.dtype],
            "sizes": [self.integer(s, n) for s, n in zip(sizes, value.shape, strict=True)],
            "requires_grad": bool(meta.get("requires_grad", False)),
            "device": schema.device_data(torchlike.device(meta.get("device", "cpu"))),
            "strides": [self.integer(s, n) for s, n in zip(strides, value.stride(), strict=True)],
            "storage_offset": {"as_int": 0},
            "layout": schema.STRIDED,
        }

    def note(self, name: str, value: Any, meta: dict[str, Any]) -> dict[str, Any]:
        """Notes what a tensor looks like, under its name."""
        self.tensors[name] = self.tensor_data(value, meta)
        return {"name": name}

    def value(self, value: Any) -> dict[str, Any]:
        """An argument."""
        if isinstance(value, Node):
            if "expr" in value.meta:
                return {"as_sym_int": {"as_name": value.name}}
            return {"as_tensor": {"name": value.name}}
        for kind, key in ((bool, "as_bool"), (int, "as_int"), (str, "as_string")):
            if isinstance(value, kind):
                return {key: value}
        if value is None:
            return {"as_none": True}
        if isinstance(value, float):
            return {"as_float": _number(value)}
        if isinstance(value, torchlike.dtype):
            return {"as_scalar_type": schema.DTYPE_NUMBERS[value]}
        if isinstance(value, torchlike.device):
            return {"as_device": schema.device_data(value)}
        if isinstance(value, torchlike.memory_format):
            return {"as_memory_format": schema.FORMAT_NUMBERS[value]}
        if value is torchlike.strided:
            return {"as_layout": schema.STRIDED}
        if isinstance(value, complex):
            return {"as_complex": {"real": value.real, "imag": value.imag}}
        if isinstance(value, list | tuple):
            return self.items(list(value))
        raise NotImplementedError(f"export.save: an argument of type {type(value).__name__}")

    def items(self, values: list[Any]) -> dict[str, Any]:
        """An argument that is a list."""
        nodes = [v for v in values if isinstance(v, Node)]
        if nodes and all("expr" not in n.meta for n in nodes):
            if len(nodes) == len(values):
                return {"as_tensors": [{"name": n.name} for n in nodes]}
            return {"as_optional_tensors": [self.value(v) for v in values]}
        if nodes:
            sizes = [{"as_name": v.name} if isinstance(v, Node) else {"as_int": v} for v in values]
            return {"as_sym_ints": sizes}
        for kind, key in ((bool, "as_bools"), (int, "as_ints"), (str, "as_strings")):
            if all(isinstance(v, kind) for v in values) and (values or kind is int):
                return {key: values}
        if all(isinstance(v, int | float) for v in values):
            return {"as_floats": [_number(float(v)) for v in values]}
        raise NotImplementedError("export.save: a list of several types among the arguments")

    def node(self, node: Node) -> dict[str, Any]:
        """A call."""
        if node.target in schema.SIZE_NAMES:
            target, names = schema.SIZE_NAMES[node.target], ("a", "b")
            pairs = list(zip(names, node.args, strict=False))
            inputs = [{"name": n, "arg": self.value(v), "kind": 1} for n, v in pairs]
        else:
            target, inputs = self.call(node)
        return {
            "target": target,
            "inputs": inputs,
            "outputs": self.outputs(node),
            "metadata": _metadata(node),
            "is_hop_single_tensor_return": None,
            "name": node.name,
        }

    def call(self, node: Node) -> tuple[str, list[Any]]:
        """The name and the arguments of an operator."""
        operators = getattr(node.target, "_schema", None)
        if operators is None:
            raise NotImplementedError(f"export.save: a call of {node.target}")
        arguments = operators.arguments
        pairs = list(zip([a.name for a in arguments], node.args, strict=False))
        inputs = [{"name": n, "arg": self.value(v), "kind": 1} for n, v in pairs]
        inputs += [{"name": n, "arg": self.value(v), "kind": 2} for n, v in node.kwargs.items()]
        space = operators.name.partition("::")[0]
        packet, overload = node.target.overloadpacket.__name__, node.target._overloadname
        return f"torch.ops.{space}.{packet}.{overload}", inputs

    def outputs(self, node: Node) -> list[Any]:
        """The results of a call; those of several have the names of the nodes that take them."""
        if "expr" in node.meta:
            example = node.meta["expr"].at(self.base)
            self.sizes[node.name] = self.integer(node.meta["expr"], example)
            return [{"as_sym_int": {"as_name": node.name}}]
        value = node.meta.get("val")
        if isinstance(value, Tensor):
            return [{"as_tensor": self.note(node.name, value, node.meta)}]
        if not isinstance(value, list | tuple):
            raise NotImplementedError(f"export.save: the result of {node.format_node()}")
        takers = {user.args[1]: user for user in node.users}
        found: list[Any] = []
        for i, item in enumerate(value):
            taker = takers.get(i)
            if taker is not None:
                found.append(self.note(taker.name, taker.meta["val"], taker.meta))
            elif isinstance(item, Tensor):
                found.append(self.note(f"{node.name}_unused_{i}", item, {}))
            else:
                found.append(None)
        if node.target._schema.returns[0].is_list:
            return [{"as_tensors": found}]
        return [{"as_none": True} if f is None else {"as_tensor": f} for f in found]

    def data(self) -> dict[str, Any]:
        """The graph."""
        inputs, nodes, outputs = [], [], []
        specs = {s.arg.name: s.arg for s in self.program.graph_signature.input_specs}
        for node in self.program.graph.nodes:
            if node.op == "placeholder":
                arg = specs[node.name]
                if isinstance(arg, ConstantArgument):
                    inputs.append(self.value(arg.value))
                    continue
                meta = {**node.meta, "requires_grad": _wants_gradient(node)}
                inputs.append({"as_tensor": self.note(node.name, node.meta["val"], meta)})
            elif node.op == "output":
                outputs = [self.value(v) for v in node.args[0]]
            elif not _takes_item(node):
                nodes.append(self.node(node))
        return {
            "inputs": inputs,
            "outputs": outputs,
            "nodes": nodes,
            "tensor_values": self.tensors,
            "sym_int_values": self.sizes,
            "sym_bool_values": {},
            "is_single_tensor_return": False,
            "custom_obj_values": {},
            "sym_float_values": {},
        }


def _metadata(node: Node) -> dict[str, str]:
    """The calls of modules that a node was made in, key, path and class of each, and the input that it writes."""
    found = {}
    stack = node.meta.get("nn_module_stack")
    if stack:
        rows = (",".join((key, path, kind)) for key, (path, kind) in stack.items())
        found["nn_module_stack"] = ";".join(rows)
    if "writes" in node.meta:
        found["writes"] = node.meta["writes"]
    return found


def _takes_item(node: Node) -> bool:
    import operator

    return node.target is operator.getitem


def _wants_gradient(node: Node) -> bool:
    real = node.meta.get("real")
    return real is not None and real.requires_grad


def _number(value: float) -> Any:
    if math.isfinite(value):
        return value
    return "NaN" if value != value else ("Infinity" if value > 0 else "-Infinity")


def _signature(program: ExportedProgram, graph: _Graph) -> dict[str, Any]:
    inputs: list[Any] = []
    for spec in program.graph_signature.input_specs:
        arg = {"name": spec.arg.name}
        if spec.kind is InputKind.PARAMETER:
            inputs.append({"parameter": {"arg": arg, "parameter_name": spec.target}})
        elif spec.kind is InputKind.BUFFER:
            buffer = {"arg": arg, "buffer_name": spec.target, "persistent": bool(spec.persistent)}
            inputs.append({"buffer": buffer})
        elif spec.kind is InputKind.CONSTANT_TENSOR:
            constant = {"arg": arg, "tensor_constant_name": spec.target}
            inputs.append({"tensor_constant": constant})
        elif isinstance(spec.arg, ConstantArgument):
            value = graph.value(spec.arg.value)
            inputs.append({"constant_input": {"name": spec.arg.name, "value": value}})
        else:
            inputs.append({"user_input": {"arg": {"as_tensor": arg}}})
    outputs: list[Any] = []
    values = program.graph.output_node().args[0]
    for out, value in zip(program.graph_signature.output_specs, values, strict=True):
        arg = {"name": out.arg.name}
        if out.kind is OutputKind.BUFFER_MUTATION:
            outputs.append({"buffer_mutation": {"arg": arg, "buffer_name": out.target}})
        elif out.kind is OutputKind.USER_INPUT_MUTATION:
            outputs.append({"user_input_mutation": {"arg": arg, "user_input_name": out.target}})
        else:
            outputs.append({"user_output": {"arg": graph.value(value)}})
    return {"input_specs": inputs, "output_specs": outputs}


def _calls(program: ExportedProgram, graph: _Graph) -> list[Any]:
    nodes = {n.name: n for n in program.graph.nodes}

    def argument(arg: Any) -> dict[str, Any]:
        return graph.value(arg.value if isinstance(arg, ConstantArgument) else nodes.get(arg.name))

    found = []
    for entry in program.module_call_graph:
        signature = None
        if entry.signature is not None:
            signature = {
                "inputs": [argument(a) for a in entry.signature.inputs],
                "outputs": [argument(a) for a in entry.signature.outputs],
                "in_spec": pytree.treespec_dumps(entry.signature.in_spec, 1),
                "out_spec": pytree.treespec_dumps(entry.signature.out_spec, 1),
                "forward_arg_names": entry.signature.forward_arg_names,
            }
        found.append({"fqn": entry.fqn, "signature": signature})
    return found


def program_data(program: ExportedProgram) -> dict[str, Any]:
    """The whole program without its tensors."""
    graph = _Graph(program)
    data = graph.data()
    variables, symbols = program._sizes.variables, graph.symbols
    ranges = {}
    for name, variable in variables.items():
        high = variable.high if variable.high < (1 << 63) - 1 else None
        ranges[symbols[name]] = {"min_val": variable.low, "max_val": high}
    return {
        "graph_module": {
            "graph": data,
            "signature": _signature(program, graph),
            "module_call_graph": _calls(program, graph),
            "metadata": {},
            "treespec_namedtuple_fields": {},
        },
        "opset_version": {"aten": 10},
        "range_constraints": ranges,
        "schema_version": {"major": schema.MAJOR, "minor": schema.MINOR},
        "verifiers": ["ATEN"],
        "torch_version": "2.13.0",
        "guards_code": [],
    }


class _Tensors:
    """A group of tensors: a record each, and one that says what they look like."""

    def __init__(self, archive: Writer, prefix: str, stem: str) -> None:
        self.archive, self.prefix, self.stem = archive, prefix, stem
        self.config: dict[str, Any] = {}
        self.known: dict[Any, str] = {}

    def add(self, name: str, tensor: Any) -> None:
        """Writes a tensor, unless another name has the same memory in the same layout."""
        if not _zip_writer.has_values(tensor):
            raise RuntimeError(
                f"export.save: {name!r} is on meta and has no values; torchlike.materialize the "
                "model before exporting it"
            )
        plain = tensor.detach()
        key = plain.untyped_storage()._cdata, plain.storage_offset(), plain.shape, plain.stride()
        path = self.known.get(key)
        if path is None:
            path = self.known[key] = f"{self.stem}_{len(self.known)}"
            self.archive.bytes(f"{self.prefix}/{path}", _zip_writer.elements(plain))
        device = torchlike.device("cpu") if plain.is_meta else plain.device
        self.config[name] = {
            "path_name": path,
            "is_param": isinstance(tensor, torchlike.nn.Parameter),
            "use_pickle": False,
            "tensor_meta": {
                "dtype": schema.DTYPE_NUMBERS[plain.dtype],
                "sizes": [{"as_int": s} for s in plain.shape],
                "requires_grad": tensor.requires_grad,
                "device": schema.device_data(device),
                "strides": [
                    {"as_int": s} for s in torchlike.empty(plain.shape, device="meta").stride()
                ],
                "storage_offset": {"as_int": 0},
                "layout": schema.STRIDED,
            },
        }

    def finish(self, name: str) -> None:
        """Writes what the tensors look like."""
        self.archive.text(f"{self.prefix}/{name}", json.dumps({"config": self.config}))


def _fill(archive: Writer, program: ExportedProgram, extra: Any) -> None:
    weights = _Tensors(archive, "data/weights", "weight")
    for name, tensor in program.state_dict.items():
        weights.add(name, tensor)
    weights.finish("model_weights_config.json")
    constants = _Tensors(archive, "data/constants", "tensor")
    for name, tensor in program.constants.items():
        constants.add(name, tensor)
    constants.finish("model_constants_config.json")
    archive.text("models/model.json", json.dumps(program_data(program), allow_nan=False))
    if program.example_inputs is not None:
        buffer = io.BytesIO()
        torchlike.save(program.example_inputs, buffer)
        archive.text("data/sample_inputs/model.pt", buffer.getvalue())
    for name, value in extra.items():
        archive.text(f"extra/{name}", value)
    small = {
        "archive_format": "pt2", "archive_version": "0", ".data/version": "6\n",
        "byteorder": "little",
    }  # fmt: skip
    for name, value in small.items():
        archive.text(name, value)


def write(program: ExportedProgram, f: Any, extra: dict[str, Any]) -> None:
    """Writes an archive to a path, which gets it whole or not at all, or to a file.

    Weights on meta that have a source are streamed from it: the largest one is all that is in memory.
    """
    with _zip_writer.writing(f) as archive:
        _fill(archive, program, extra)
