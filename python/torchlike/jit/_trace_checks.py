"""What `jit.trace` takes and gives, and the checks of a finished trace: it is made again, run, and compared."""

from __future__ import annotations

import ast
import difflib
import textwrap
import warnings
from typing import TYPE_CHECKING, Any

import torchlike
from torchlike.jit import _types
from torchlike.jit._errors import indented
from torchlike.jit._traced_sizes import Size
from torchlike.jit._watch import TracerWarning
from torchlike.utils import _pytree as pytree

if TYPE_CHECKING:
    from collections.abc import Callable

    from torchlike.jit._function import Function

Tensor = torchlike.Tensor
_RESULTS = "Only tensors, lists, tuples of tensors, or dictionary of tensors can be output from traced functions"


class TracingCheckError(Exception):
    """A trace is another one when it is made again: what is traced depends on more than its inputs."""

    def __init__(
        self,
        graph_diff_error: str | None,
        tensor_compare_error: str | None,
        extra_msg: str | None = None,
    ) -> None:
        parts = ["Tracing failed sanity checks!"]
        if extra_msg is not None:
            parts.append(extra_msg)
        if graph_diff_error is not None:
            parts += ["ERROR: Graphs differed across invocations!", indented(graph_diff_error)]
        if tensor_compare_error is not None:
            parts += [
                "ERROR: Tensor-valued Constant nodes differed in value across invocations. This often "
                "indicates that the tracer has encountered untraceable code.",
                indented(tensor_compare_error),
            ]
        self.message = "\n".join(parts) + "\n"
        super().__init__(self.message)


# Inputs and results


def kinds_of_inputs(inputs: tuple[Any, ...]) -> list[str]:
    """The types of inputs.

    Raises:
        RuntimeError: for what is no tensor, nor a container of tensors.
    """
    try:
        kinds = [_kind_of_input(v) for v in inputs]
    except _types.UnknownType as e:
        raise RuntimeError(f"Tracer cannot infer type of {inputs}\n:{e}") from None
    if not all(map(_is_traceable, kinds)):
        raise RuntimeError(
            f"Type 'Tuple[{', '.join(kinds)}]' cannot be traced. Only Tensors and (possibly nested) Lists, Dicts, "
            "and Tuples of Tensors can be traced"
        )
    return kinds


def _kind_of_input(value: Any) -> str:
    if isinstance(value, dict):
        if not value:
            raise _types.UnknownType("Dictionary inputs must have entries")
        keys = {_kind_of_input(k) for k in value}
        items = {_kind_of_input(v) for v in value.values()}
        if len(keys) > 1 or len(items) > 1:
            raise _types.UnknownType(
                "Dictionary inputs to traced functions must have consistent type"
            )
        return f"Dict[{keys.pop()}, {items.pop()}]"
    if isinstance(value, list):
        if not value:
            raise _types.UnknownType("List trace inputs must have elements")
        found = list(dict.fromkeys(_kind_of_input(v) for v in value))
        if len(found) > 1:
            raise _types.UnknownType(
                "List inputs to traced functions must have consistent element type. Found "
                f"{found[0]} and {found[1]}"
            )
        return f"List[{found[0]}]"
    if isinstance(value, tuple) and value:  # a named one counts as the tuple that it is
        return f"Tuple[{', '.join(map(_kind_of_input, value))}]"
    return _types.of_value(value, lambda k: None)


def _is_traceable(kind: str) -> bool:
    if kind.startswith(("List[", "Tuple[")):
        return all(map(_is_traceable, _types.parts_of(kind)))
    if kind.startswith("Dict["):
        return _is_traceable(_types.parts_of(kind)[1])
    return kind == "Tensor"


def check_result(value: Any, strict: bool) -> None:
    """Checks what a traced function gives.

    Raises:
        RuntimeError: for what a trace cannot give, and for a dictionary where `strict` holds.
    """
    if value is None:
        raise RuntimeError(
            "The traced function didn't return any values! Side-effects are not captured in traces, so "
            "it would be a no-op."
        )
    if isinstance(value, dict):
        if not all(_is_flat(v) for v in value.values()):
            raise RuntimeError(
                f"output 1 ({value}) of traced region cannot be understood by the tracer, only outputs matching "
                "dict[Union[str, Tensor], Union[Tensor, Tuple[Tensor, ...]]] can be a dictionary output of a "
                "traced function"
            )
        if strict:
            raise RuntimeError(_varies("dict"))
    elif not _is_result(value):
        raise RuntimeError(_RESULTS)
    elif strict and any(isinstance(v, list) for v in _inside(value)):
        warnings.warn(_varies("list"), TracerWarning, stacklevel=4)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor | Size)


def _is_flat(value: Any) -> bool:
    return _is_tensor(value) or (isinstance(value, tuple) and all(map(_is_tensor, value)))


def _is_result(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_result, value))
    return all(map(_is_tensor, value)) if isinstance(value, list) else _is_tensor(value)


def _inside(value: Any) -> list[Any]:
    """A value and those in it."""
    return (
        [value, *(v for part in value for v in _inside(part))]
        if type(value) in (tuple, list)
        else [value]
    )


def _varies(kind: str) -> str:
    return (
        f"Encountering a {kind} at the output of the tracer might cause the trace to be incorrect, this is only valid "
        "if the container structure does not change based on the module's inputs. Consider using a constant container "
        "instead (e.g. for `list`, use a `tuple` instead. for `dict`, use a `NamedTuple` instead). If you absolutely "
        "need this and know the side effects, pass strict=False to trace() to allow this behavior."
    )


# Checks of a finished trace


def apply(function: Any, inputs: Any) -> Any:
    """Calls a function with a tuple of inputs, or with inputs by name."""
    return function(**inputs) if isinstance(inputs, dict) else function(*inputs)


def cloned(inputs: Any) -> Any:
    """Inputs whose tensors are copies, as what is traced may write to them."""
    return pytree.tree_map(_copy, inputs)


def _copy(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    return value.detach().clone().requires_grad_(value.requires_grad)


def check_trace(
    function: Any,
    traced: Any,
    code: Function,
    again: Callable[[Any], tuple[Any, Function]],
    inputs: Any,
    tolerance: float,
) -> None:
    """Traces once more and runs both traces and the function, on copies of the inputs.

    Raises:
        TracingCheckError: if the traces differ.
    """
    repeated, other = again(cloned(inputs))
    with torchlike.no_grad(), torchlike.random.fork_rng(devices=[]):
        found = _run(traced, inputs, "trace", code, other)
        wanted = _run(function, inputs, "Python function", code, other)
        if _compare(found, wanted, "Python function", code, tolerance):
            wanted = _run(repeated, inputs, "repeated trace", code, other)
            _compare(found, wanted, "repeated trace", code, tolerance)
    differences = _differences(code, other)
    if any(differences):
        raise TracingCheckError(*differences)


def _run(function: Any, inputs: Any, what: str, code: Function, other: Function) -> list[Any]:
    try:
        out = apply(function, cloned(inputs))
    except Exception as e:
        text = f"encountered an exception while running the {what} with test inputs.\nException:\n{indented(str(e))}"
        raise TracingCheckError(*_differences(code, other), extra_msg=text) from e
    values = out if isinstance(out, tuple) else (out,)
    return [v for v in values if isinstance(v, Tensor)]


def _compare(
    found: list[Any], wanted: list[Any], what: str, code: Function, tolerance: float
) -> bool:
    """Whether results are alike; warns of those that are not."""
    same = True
    for i, (a, b) in enumerate(zip(found, wanted, strict=False)):
        if a.is_meta:
            continue
        try:
            torchlike.testing.assert_close(
                a.double() if not a.is_complex() else a,
                b.double() if not b.is_complex() else b,
                rtol=tolerance,
                atol=1e-5,
                equal_nan=True,
            )
        except AssertionError as e:
            if same:
                _warn_of_random(code)
            same = False
            warnings.warn(
                f"Output nr {i + 1}. of the traced function does not match the corresponding output of the {what}. "
                f"Detailed error:\n{e}",
                TracerWarning,
                stacklevel=5,
            )
    return same


def _warn_of_random(code: Function) -> None:
    lines = [ast.unparse(s) for s in code.tree.body if any(map(_is_random, ast.walk(s)))]
    if lines:
        shown = "\n".join(map(indented, lines[:20]))
        warnings.warn(
            "Trace had nondeterministic nodes. Did you forget call .eval() on your model? Nodes:\n"
            f"{shown}\nThis may cause errors in trace checking. To disable trace checking, pass check_trace=False to "
            "torch.jit.trace()",
            TracerWarning,
            stacklevel=6,
        )


def _is_random(node: ast.AST) -> bool:
    """True for a call of an operator that draws numbers."""
    function = node.func if isinstance(node, ast.Call) else None
    if not isinstance(function, ast.Attribute):
        return False
    packet = getattr(torchlike.ops.aten, function.attr, None)
    if packet is None:
        return False
    overloads = [getattr(packet, o, None) for o in packet.overloads()]
    return any(torchlike.Tag.nondeterministic_seeded in getattr(o, "tags", ()) for o in overloads)


def _differences(code: Function, other: Function) -> tuple[str | None, str | None]:
    """How the texts of two traces differ, and how the tensors that they hold do."""
    one, two = (textwrap.dedent(f.text).splitlines(keepends=True) for f in (code, other))
    graphs = None
    if one != two:
        graphs = "Graph diff:\n" + indented("".join(difflib.ndiff(one, two))) + "\n"
    pairs = zip(code.unit.constants, other.unit.constants, strict=False)
    tensors = next((t for i, (a, b) in enumerate(pairs) if (t := _difference(i, a, b))), None)
    return graphs, tensors


def _difference(number: int, a: Any, b: Any) -> str | None:
    """How a constant of a trace differs from that of another."""
    if a.is_meta or b.is_meta:
        return None
    try:
        torchlike.testing.assert_close(a, b, equal_nan=True)
    except AssertionError as e:
        place = indented(f"CONSTANTS.c{number}")
        return f"Node:\n{place}\nComparison exception: {indented(str(e))}"
    return None
