"""Reads archives of programs. They are data: names are looked up in tables, and nothing is executed."""

from __future__ import annotations

import math
import os
import re
import zipfile
from typing import Any

import torchlike
from torchlike import CheckpointError
from torchlike._ops import OpOverload, OpOverloadPacket
from torchlike._subclasses.fake_tensor import FakeTensorMode
from torchlike.export import _pt2_schema as schema
from torchlike.export._expressions import Expr
from torchlike.export._pt2_archive import Archive
from torchlike.export._symbols import parse as parse_expression
from torchlike.export.dynamic_shapes import Place, Variable
from torchlike.export.exported_program import (
    ExportedProgram,
    ModuleCallEntry,
    ModuleCallSignature,
    _Sizes,
)
from torchlike.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torchlike.fx.graph import Graph
from torchlike.fx.node import Node
from torchlike.nn import Module, Parameter
from torchlike.utils import _pytree as pytree

_TARGET = re.compile(r"torch\.ops\.(\w+)\.(\w+)\.(\w+)$")
_MAX = (1 << 63) - 1
# operators that reach for what is not theirs
_REFUSED = ("from_file",)
# Operators of Python that are operators of PyTorch too.
_OPERATORS = ("__and__", "__or__", "__xor__", "__lshift__", "__rshift__")


def _one(data: Any) -> tuple[str, Any]:
    """The kind and the value of a choice, which has one entry."""
    if not isinstance(data, dict) or len(data) != 1:
        raise CheckpointError(f"one value expected, not {str(data)[:60]}")
    return next(iter(data.items()))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise CheckpointError(f"a name expected, not {str(value)[:60]}")
    return value


def _whole(value: Any) -> int:
    if type(value) is not int or abs(value) > _MAX:
        raise CheckpointError(f"a whole number expected, not {str(value)[:60]}")
    return value


def _argument_name(target: Any, name: Any) -> str:
    """A name among the parameters of an operator."""
    operators = getattr(target, "_schema", None)
    if operators is None or name not in [a.name for a in operators.arguments]:
        raise CheckpointError(f"{target} has no parameter {str(name)[:60]!r}")
    return _text(name)


def _float(value: Any) -> float:
    named = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}
    if isinstance(value, str) and value in named:
        return named[value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise CheckpointError(f"a number expected, not {str(value)[:60]}")
    return float(value)


def _device(data: Any) -> Any:
    index = data["index"]
    return torchlike.device(_text(data["type"]), *(() if index is None else (_whole(index),)))


class _Reader:
    """Makes a graph of data."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data
        self.module = data["graph_module"]
        self.graph = Graph()
        self.nodes: dict[str, Node] = {}
        self.symbols: dict[str, int] = {}
        self.fakes = FakeTensorMode(allow_non_fake_inputs=True)
        self.tensors = self.module["graph"]["tensor_values"]
        self.stack: dict[str, tuple[str, str]] = {}

    # values

    def size(self, data: Any, exact: bool = False) -> tuple[Any, int]:
        """A size, and its value in the example; that alone for an expression that is not known, unless `exact`."""
        kind, value = _one(data)
        if kind == "as_int":
            return _whole(value), value
        if kind != "as_expr":
            raise NotImplementedError(f"a size of the kind {kind!r} is not supported")
        hint = value.get("hint")
        example = _whole(_one(hint)[1]) if hint else 2
        try:
            return parse_expression(_text(value["expr_str"])), example
        except NotImplementedError:
            if exact or not hint:
                raise
            return example, example

    def describe(self, name: str, node: Node, exact: bool = False) -> None:
        """Notes what the value of a node looks like."""
        data = self.tensors.get(name)
        if data is None:
            raise CheckpointError(f"nothing says what {name!r} looks like")
        sizes = [self.size(s, exact) for s in data["sizes"]]
        strides = [self.size(s) for s in data["strides"]]
        dtype = schema.DTYPES.get(data["dtype"])
        if dtype is None or data["layout"] != schema.STRIDED or len(sizes) != len(strides):
            raise NotImplementedError(f"the type or layout of {name!r} is not supported")
        if any(n < 0 for _, n in sizes) or math.prod(n for _, n in sizes) > _MAX:
            raise CheckpointError(f"{name!r} has impossible sizes")
        device = _device(data["device"])
        with self.fakes:
            node.meta["val"] = torchlike.empty_strided(
                [n for _, n in sizes], [n for _, n in strides], dtype=dtype, device=device
            )
        node.meta["sizes"] = [s for s, _ in sizes]
        node.meta["strides"] = [s for s, _ in strides]
        node.meta["device"] = str(device)

    def node(self, name: Any) -> Node:
        """The node of a name."""
        found = self.nodes.get(_text(name))
        if found is None:
            raise CheckpointError(f"there is no value {name!r}")
        return found

    def value(self, data: Any) -> Any:
        """An argument."""
        kind, value = _one(data)
        if kind == "as_tensor":
            return self.node(value["name"])
        if kind in ("as_sym_int", "as_sym_bool", "as_sym_float"):
            inner, name = _one(value)
            if inner == "as_name":
                return self.node(name)
            return _float(name) if kind == "as_sym_float" else _whole(name)
        if kind == "as_none":
            return None
        if kind == "as_bool" and isinstance(value, bool):
            return value
        simple = {"as_int": _whole, "as_float": _float, "as_string": _text, "as_device": _device}
        if kind in simple:
            return simple[kind](value)
        tables: dict[str, Any] = {
            "as_scalar_type": schema.DTYPES,
            "as_memory_format": schema.FORMATS,
        }
        if kind in tables and value in tables[kind]:
            return tables[kind][value]
        if kind == "as_layout" and value == schema.STRIDED:
            return torchlike.strided
        if kind == "as_complex":
            return complex(_float(value["real"]), _float(value["imag"]))
        return self.items(kind, value)

    def items(self, kind: str, value: Any) -> list[Any]:
        """An argument that is a list."""
        if kind in ("as_ints", "as_floats", "as_strings", "as_bools"):
            one = {"as_ints": "as_int", "as_floats": "as_float", "as_strings": "as_string"}
            return [self.value({one.get(kind, "as_bool"): v}) for v in value]
        if kind == "as_tensors":
            return [self.node(v["name"]) for v in value]
        if kind == "as_optional_tensors":
            return [self.value(v) for v in value]
        if kind == "as_sym_ints":
            return [self.value({"as_sym_int": v}) for v in value]
        raise NotImplementedError(f"an argument of the kind {kind!r} is not supported")

    # nodes

    def make(self, op: str, target: Any, args: Any, kwargs: Any, name: str) -> Node:
        """A node, under its name."""
        if not name.isidentifier() or name in self.nodes:
            raise CheckpointError(f"{name[:60]!r} is no name of a value, or there twice")
        node = self.graph.create_node(op, target, args, kwargs, name)
        if self.stack:
            node.meta["nn_module_stack"] = self.stack
        self.nodes[name] = node
        return node

    def call(self, data: Any) -> None:
        """A call of an operator."""
        if data["target"] in schema.CHECKS:
            return
        target = self.target(_text(data["target"]))
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for given in data["inputs"]:
            value = self.value(given["arg"])
            if given.get("kind", 1) == 2 or kwargs:
                kwargs[_argument_name(target, given["name"])] = value
            else:
                args.append(value)
        outputs = data["outputs"]
        kind, found = _one(outputs[0]) if len(outputs) == 1 else ("", None)
        result: Any = found
        if kind == "as_tensor":
            self.describe(
                result["name"],
                self.make("call_function", target, tuple(args), kwargs, result["name"]),
            )
            return
        if kind in ("as_sym_bool", "as_sym_float"):
            # A question about sizes, or a number in a tensor.
            name = _text(_one(result)[1])
            self.make("call_function", target, tuple(args), kwargs, name)
            return
        if kind == "as_sym_int":
            name = _text(_one(result)[1])
            node = self.make("call_function", target, tuple(args), kwargs, name)
            expression, _ = self.size(self.module["graph"]["sym_int_values"][name])
            node.meta["expr"] = expression if isinstance(expression, Expr) else Expr((), expression)
            return
        fallback = str(data.get("name") or f"call_{len(self.nodes)}")
        node = self.make("call_function", target, tuple(args), kwargs, fallback)
        self.results(node, result if kind == "as_tensors" else [_one(o)[1] for o in outputs])

    def results(self, node: Node, outputs: list[Any]) -> None:
        """A node for each of several results."""
        import operator

        values: list[Any] = []
        for i, out in enumerate(outputs):
            if not isinstance(out, dict):
                values.append(None)
                continue
            name = _text(out["name"])
            item = self.make("call_function", operator.getitem, (node, i), {}, name)
            self.describe(name, item)
            values.append(item.meta["val"])
        node.meta["val"] = tuple(values)

    def target(self, name: str) -> Any:
        """The operator of a name."""
        if name in schema.SIZE_FUNCTIONS:
            return schema.SIZE_FUNCTIONS[name]
        match = _TARGET.match(name)
        space, packet, overload = match.groups() if match else ("", "", "")
        plain = "__" not in space + overload and ("__" not in packet or packet in _OPERATORS)
        if not packet or not plain or packet in _REFUSED:
            raise NotImplementedError(f"a call of {name[:80]!r} is not supported")
        found = getattr(getattr(torchlike.ops, space), packet, None)
        if isinstance(found, OpOverloadPacket):
            found = getattr(found, overload, None)
        if not isinstance(found, OpOverload):
            raise NotImplementedError(f"there is no operator {name[:80]!r}")
        return found

    def read(self) -> tuple[ExportGraphSignature, _Sizes]:
        """The whole graph."""
        data = self.module["graph"]
        signature = self.module["signature"]
        specs = [self.input_spec(s) for s in signature["input_specs"]]
        if len(specs) != len(data["inputs"]):
            raise CheckpointError("the graph has other inputs than its signature")
        for spec in specs:
            node = self.make("placeholder", spec.arg.name, (), {}, spec.arg.name)
            if isinstance(spec.arg, TensorArgument):
                self.describe(spec.arg.name, node, exact=True)
        for call in data["nodes"]:
            notes = call.get("metadata") or {}
            self.stack = _stack(notes.get("nn_module_stack"))
            self.call(call)
            made = self.nodes.get(call.get("name"))
            if made is not None and notes.get("writes") in self.nodes:
                made.meta["writes"] = notes["writes"]
        self.graph.output(tuple(self.value(v) for v in data["outputs"]))
        outputs = [self.output_spec(s) for s in signature["output_specs"]]
        if len(outputs) != len(data["outputs"]):
            raise CheckpointError("the graph has other outputs than its signature")
        self.graph.eliminate_dead_code()
        sizes = self.sizes(specs)
        # the graph has other names where these are builtins'
        for arg in (*(s.arg for s in specs), *(s.arg for s in outputs)):
            if arg.name in self.nodes:
                arg.name = self.nodes[arg.name].name
        return ExportGraphSignature(specs, outputs), sizes

    def input_spec(self, data: Any) -> InputSpec:
        """What an input is."""
        kind, spec = _one(data)
        if kind == "constant_input":
            value = self.value(spec["value"])
            return InputSpec(
                InputKind.USER_INPUT, ConstantArgument(_text(spec["name"]), value), None
            )
        if kind == "user_input":
            inner, arg = _one(spec["arg"])
            if inner != "as_tensor":
                raise NotImplementedError(f"an input of the kind {inner!r} is not supported")
            return InputSpec(InputKind.USER_INPUT, TensorArgument(_text(arg["name"])), None)
        named: dict[str, Any] = {
            "parameter": (InputKind.PARAMETER, "parameter_name"),
            "buffer": (InputKind.BUFFER, "buffer_name"),
            "tensor_constant": (InputKind.CONSTANT_TENSOR, "tensor_constant_name"),
        }
        if kind not in named:
            raise NotImplementedError(f"an input of the kind {kind!r} is not supported")
        found, key = named[kind]
        arg = TensorArgument(_text(spec["arg"]["name"]))
        return InputSpec(found, arg, _text(spec[key]), spec.get("persistent"))

    def output_spec(self, data: Any) -> OutputSpec:
        """What an output is."""
        kind, spec = _one(data)
        if kind == "user_output":
            value = self.value(spec["arg"])
            arg: Any = ConstantArgument("", value)
            if isinstance(value, Node):
                arg = TensorArgument(value.name)
            return OutputSpec(OutputKind.USER_OUTPUT, arg, None)
        named: dict[str, Any] = {
            "buffer_mutation": (OutputKind.BUFFER_MUTATION, "buffer_name"),
            "user_input_mutation": (OutputKind.USER_INPUT_MUTATION, "user_input_name"),
        }
        if kind not in named:
            raise NotImplementedError(f"an output of the kind {kind!r} is not supported")
        found, key = named[kind]
        return OutputSpec(
            found, TensorArgument(self.node(spec["arg"]["name"]).name), _text(spec[key])
        )

    def sizes(self, specs: list[InputSpec]) -> _Sizes:
        """The sizes of the caller's inputs that vary."""
        found = _Sizes()
        ranges = self.data.get("range_constraints", {})
        users = [s for s in specs if s.kind is InputKind.USER_INPUT]
        for i, spec in enumerate(users):
            node = self.nodes[spec.arg.name]
            for dim, size in enumerate(node.meta.get("sizes", ())):
                if not isinstance(size, Expr):
                    continue
                if len(size.terms) != 1 or len(size.terms[0][0]) != 1 or size.quotient:
                    raise NotImplementedError(f"the size {dim} of {spec.arg.name} is not supported")
                (name,), factor = size.terms[0]
                example = (node.meta["val"].shape[dim] - size.constant) // factor
                bounds = ranges.get(name) or {}
                low, high = bounds.get("min_val"), bounds.get("max_val")
                low = 0 if low is None else _whole(low)
                high = _MAX if high is None else _whole(high)
                found.variables.setdefault(name, Variable(name, low, high, example))
                found.symbols[name] = name
                found.places.append(Place(i, dim, name, factor, size.constant))
        return found


def _stack(text: Any) -> dict[str, tuple[str, str]]:
    """The calls of modules that a node was made in."""
    found = {}
    for row in _text(text).split(";") if text else ():
        key, path, kind = row.split(",", 2)
        found[key] = (path, kind)
    return found


def _tensors(archive: Archive, folder: str, config: str) -> dict[str, Any]:
    """The tensors of a group by name; those of one record share their memory."""
    found: dict[str, Any] = {}
    shared: dict[str, Any] = {}
    known: dict[str, Any] = {}
    if not archive.has(f"{folder}/{config}"):
        return found
    for name, entry in archive.json(f"{folder}/{config}")["config"].items():
        path = _text(entry["path_name"])
        if entry.get("use_pickle") or "/" in path or path.startswith("."):
            raise NotImplementedError(f"{name!r} is stored as {path!r}, which is not supported")
        alike = repr((path, entry.get("is_param"), entry["tensor_meta"]))
        if alike in known:
            found[name] = known[alike]
            continue
        meta = entry["tensor_meta"]
        dtype = schema.DTYPES.get(meta["dtype"])
        if dtype is None or meta["layout"] != schema.STRIDED:
            raise NotImplementedError(f"the type or layout of {name!r} is not supported")
        sizes = [_whole(_one(s)[1]) for s in meta["sizes"]]
        strides = [_whole(_one(s)[1]) for s in meta["strides"]]
        offset = _whole(_one(meta["storage_offset"])[1])
        if len(sizes) != len(strides) or any(n < 0 for n in (*sizes, *strides, offset)):
            raise CheckpointError(f"{name!r} has impossible sizes")
        if path not in shared:
            data = bytearray(archive.bytes(f"{folder}/{path}"))
            empty = torchlike.empty(0, dtype=torchlike.uint8)
            shared[path] = torchlike.frombuffer(data, dtype=torchlike.uint8) if data else empty
        flat = shared[path]
        last = offset + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True)) + 1
        if 0 not in sizes and last * dtype.itemsize > flat.numel():
            raise CheckpointError(f"{name!r} needs more bytes than its record has")
        if 0 in sizes:
            tensor = torchlike.empty(sizes, dtype=dtype)
        else:
            whole = flat.numel() // dtype.itemsize * dtype.itemsize
            tensor = flat[:whole].view(dtype).as_strided(sizes, strides, offset)
        if entry.get("is_param"):
            tensor = Parameter(tensor, requires_grad=bool(meta.get("requires_grad")))
        found[name] = known[alike] = tensor
    return found


def _calls(reader: _Reader) -> list[ModuleCallEntry]:
    def argument(data: Any) -> Any:
        value = reader.value(data)
        if isinstance(value, Node):
            return TensorArgument(value.name)
        return ConstantArgument("", value)

    found = []
    for entry in reader.module["module_call_graph"]:
        signature = entry.get("signature")
        made = None
        if signature is not None:
            names = signature.get("forward_arg_names")
            made = ModuleCallSignature(
                [argument(a) for a in signature["inputs"]],
                [argument(a) for a in signature["outputs"]],
                pytree.treespec_loads(_text(signature["in_spec"])),
                pytree.treespec_loads(_text(signature["out_spec"])),
                None if names is None else [_identifier(n) for n in names],
            )
        found.append(ModuleCallEntry(_text(entry["fqn"]), made))
    if not found or found[0].signature is None:
        raise CheckpointError("the archive does not say how the program is called")
    return found


def _identifier(name: Any) -> str:
    if not _text(name).isidentifier():
        raise CheckpointError(f"{name[:60]!r} is no name of an argument")
    return name


def _program(archive: Archive) -> ExportedProgram:
    if archive.bytes("archive_format", 16) != b"pt2":
        raise CheckpointError("the archive holds no program")
    data = archive.json("models/model.json")
    if data["schema_version"]["major"] != schema.MAJOR:
        raise NotImplementedError(f"version {data['schema_version']} of archives is not supported")
    reader = _Reader(data)
    signature, sizes = reader.read()
    state = _tensors(archive, "data/weights", "model_weights_config.json")
    constants = _tensors(archive, "data/constants", "model_constants_config.json")
    for spec in signature.input_specs:
        if spec.target is None:
            continue
        value = state.get(spec.target, constants.get(spec.target))
        expected = reader.nodes[spec.arg.name].meta["val"]
        if value is None or value.shape != expected.shape or value.dtype != expected.dtype:
            raise CheckpointError(f"{spec.target!r} is not in the archive as its graph says")
    example = None
    if archive.has("data/sample_inputs/model.pt"):
        import io

        record = io.BytesIO(archive.bytes("data/sample_inputs/model.pt"))
        example = torchlike.load(record, weights_only=True)
    calls = _calls(reader)
    return ExportedProgram(
        Module(), reader.graph, signature, state, sizes, calls, example, constants
    )


def read(f: Any, extra: dict[str, Any] | None) -> ExportedProgram:
    """The program of an archive, a path or a file.

    Raises:
        CheckpointError: if the archive is damaged or contradicts itself.
    """
    source = os.fspath(f) if isinstance(f, str | os.PathLike) else f
    try:
        with zipfile.ZipFile(source) as file:
            archive = Archive(file)
            program = _program(archive)
            for name in extra if extra is not None else ():
                assert extra is not None
                extra[name] = archive.bytes(f"extra/{name}").decode()
            return program
    except (zipfile.BadZipFile, KeyError, IndexError, TypeError, ValueError, AttributeError) as e:
        raise CheckpointError(f"not a program, or a damaged one: {type(e).__name__}: {e}") from e
    except (RecursionError, AssertionError, EOFError, zipfile.LargeZipFile) as e:
        raise CheckpointError(f"not a program, or a damaged one: {e}") from e
