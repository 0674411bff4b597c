"""From a call in the core to the operators that PyTorch would come down to, for those who watch dispatch."""

from __future__ import annotations

import functools
import sys
from typing import Any

from torchlike import _C
from torchlike._ops import OpOverload, OpOverloadPacket, modes, ops
from torchlike._ops.binding import spelled
from torchlike._ops.schema import REDUCTIONS, closing, filled, fits, split

# Operators of PyTorch under another name than the row, where the arguments are the same by name or place.
NAMES = {
    "nn.functional.pad": "constant_pad_nd",
    "bitwise_left_shift": "__lshift__",
    "bitwise_right_shift": "__rshift__",
    "multiply": "mul",
    "subtract": "sub",
    "divide": "div",
    "true_divide": "div",
    "negative": "neg",
    "absolute": "abs",
    "greater": "gt",
    "less": "lt",
    "greater_equal": "ge",
    "less_equal": "le",
    "not_equal": "ne",
    "swapaxes": "transpose",
    "swapdims": "transpose",
    "concat": "cat",
    "concatenate": "cat",
    "clip": "clamp",
    "split#sizes": "split_with_sizes",
    "_nn.nll_loss": "nll_loss_forward",
    "_nn.prelu": "_prelu_kernel",
    "_clamp": "clamp",
    "_dropped": "native_dropout_backward",
    "_grad.embedding": "embedding_dense_backward",
    "_nn.multilabel_margin_loss": "multilabel_margin_loss_forward",
    "nn.functional.cross_entropy": "cross_entropy_loss",
}

# The same of four dimensions, where it is another operator.
OF_IMAGES = {"_nn.nll_loss": "nll_loss2d_forward"}

# Those that have an operator of Python's to themselves, which neither writes nor begins with a number.
OPERATORS = frozenset(("bitwise_left_shift", "bitwise_right_shift"))

# Rows that get whole numbers where these were said, and fractions where those were.
AS_GIVEN = frozenset(("linalg.vector_norm",))

# Questions about a tensor, which are no operators to those who watch.
SILENT = frozenset(("numel", "is_same_size", "is_complex", "is_floating_point"))

# Operators whose second operand may be a number where the schema says Tensor.
NUMBERS = frozenset(
    ("add", "sub", "mul", "div", "add_", "sub_", "mul_", "div_", "floor_divide", "floor_divide_")
)

# Composites that PyTorch writes in Python, where a number beside a tensor is seen as a tensor; in C++ it is not.
PYTHON = frozenset(
    "nn.functional." + name
    for name in (
        "gaussian_nll_loss",
        "gumbel_softmax",
        "kl_div",
        "local_response_norm",
        "lp_pool1d",
        "lp_pool2d",
        "lp_pool3d",
        "multilabel_soft_margin_loss",
        "softsign",
        "tanhshrink",
        "triplet_margin_with_distance_loss",
    )
)

aten: Any = ops.aten

_SPACES = ("linalg.", "fft.", "special.")


@functools.cache
def _schemas() -> dict[str, str]:
    return {name: schema for name, schema, _, _ in _C._op_table()}


@functools.cache
def _parameters(row: str) -> dict[str, str]:
    """The parameters of a row, and their defaults as the schema spells them."""
    text = _schemas()[row]
    start = text.index("(")
    inside = text[start + 1 : closing(text, start)]
    halves = [p.partition("=") for p in split(inside) if p != "*"]
    return {head.split()[-1]: default for head, _, default in halves}


def _packet(row: str, form: str, of_tensor: bool) -> OpOverloadPacket | None:
    name = row.partition("#")[0]
    own = name in OPERATORS and (form != "" or not of_tensor)
    found = None if own else NAMES.get(row) or NAMES.get(name)
    if found is None:
        if name.startswith(_SPACES):
            found = name.replace(".", "_")
        else:
            found = name.rpartition(".")[2]
    return getattr(ops.aten, found + ("_" if form == "_" else ""), None)


def _values(
    overload: OpOverload, given: dict[str, Any], outs: list[Any], numbers: bool
) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The arguments of an overload by name, from those of a row, and what is left; None if it does not fit."""
    schema = overload._schema
    out_names = [a.name for a in schema.arguments if a.kwarg_only and a.alias_info is not None]
    if len(out_names) != len(outs):
        return None
    values: dict[str, Any] = dict(zip(out_names, outs, strict=True))
    left = dict(given)
    places, known = list(given), {a.name for a in schema.arguments}
    for position, argument in enumerate(schema.arguments):
        name = argument.name
        if name in values:
            continue
        by_place = position < len(places) and not argument.kwarg_only
        place = places[position] if by_place else None
        # A switch of ours is no number of theirs.
        alike = isinstance(left.get(place or ""), bool) == (argument.base == "bool")
        if name not in left and place in left and place not in known and alike:
            name = place
        value = left.pop(name, argument.default_value)
        if value is None and argument.has_default:
            value = argument.default_value
        elif name not in given and not argument.has_default:
            return None
        if name == "reduction" and isinstance(value, str):
            value = REDUCTIONS.get(value, value)
        apart = isinstance(value, _C.Tensor) and argument.base != "Tensor"
        if apart or not fits(argument, value, numbers):
            return None
        values[argument.name] = filled(argument, value)
    return values, left


def _matter(row: str, left: dict[str, Any], outs: list[Any]) -> bool:
    """True if a value that the overload has no place for is more than the row's default, or than `out=` says."""
    defaults = _parameters(row)
    said = [v for t in outs for v in (t.dtype, t.device)]

    def is_plain(name: str, value: Any) -> bool:
        if value is None or value is _C.strided:
            return True
        if value is False and defaults[name]:
            return defaults[name] in ("False", "None")
        if isinstance(value, _C.Tensor):
            return False
        return str(value) == defaults[name].strip("'") or value in said

    return not all(is_plain(name, value) for name, value in left.items())


def _said(row: str, given: dict[str, Any], outs: list[Any], within: str | None) -> dict[str, Any]:
    """Arguments that PyTorch passes on otherwise: whole defaults, what `out=` says, what its binding fills in."""
    # A composite that says a fraction in its own signature passes one on.
    own = _parameters(within) if within in _schemas() else {}
    known = {} if row in AS_GIVEN else _parameters(row)
    whole = {n: d for n, d in known.items() if d.isdigit() and own.get(n, d) == d}
    said: dict[str, Any] = {
        n: int(d) for n, d in whole.items() if isinstance(given[n], float) and given[n] == int(d)
    }
    if outs and given.get("dtype", 0) is outs[0].dtype:
        said["dtype"] = None
    if "requires_grad" in given:
        # It is said of the result, once that is there.
        said["requires_grad"] = False
    if within is not None or modes.is_asked():
        return said | ({"pin_memory": None} if given.get("pin_memory") is False else {})
    return said | _bound(row, given)


def _bound(row: str, given: dict[str, Any]) -> dict[str, Any]:
    if row == "slice":
        ends = {"start": 0, "end": sys.maxsize}
        return {name: end for name, end in ends.items() if given.get(name, 0) is None}
    makes = "layout" in given and given.get("device", 0) is None
    if makes and "Tensor" not in _schemas()[row].partition("->")[0]:
        return {"device": _C.get_default_device()}
    return {}


def overload_of(
    row: str, form: str, values: tuple[Any, ...], outs: list[Any], within: str | None
) -> Any:
    """The overload that a call is, and its arguments by name; None if there is none."""
    given = dict(zip(_parameters(row), values, strict=True))
    given.update(_said(row, given, outs, within))
    base = row
    if row == "sub" and not isinstance(values[0], _C.Tensor):
        base, given = "rsub", {**given, "self": given["other"], "other": given["self"]}
    if row in OF_IMAGES and values[0].ndim == 4:
        base = OF_IMAGES[row]
    packet = _packet(base, form, bool(values) and isinstance(values[0], _C.Tensor))
    if packet is None:
        return None
    first = isinstance(values[0], _C.Tensor) if values else True
    of_python = within is None or within in PYTHON
    if not first and not of_python and row in ("add", "mul"):
        # As C++ turns a number times a tensor round.
        given, first = {**given, "self": given["other"], "other": given["self"]}, True
    numbers = packet._name in NUMBERS and (of_python or not first)
    found = None
    for overload in modes.chosen(packet.real()):
        fitted = _values(overload, given, outs, numbers)
        if fitted is not None and not _matter(row, fitted[1], outs):
            if not overload.implicit:
                return overload, fitted[0]
            found = found or (overload, fitted[0])
    return found


def named(
    row: str, form: str, values: tuple[Any, ...], outs: list[Any], leaf: bool, within: str | None
) -> str | None:
    """The name of the operator that a call is, with that of its overload; None if there is none."""
    found = overload_of(row, form, values, outs, within)
    return None if found is None else found[0].name()


@functools.cache
def _texts() -> frozenset[str]:
    return frozenset(_C._op_texts())


def _is_recorded(row: str) -> bool:
    """Whether calls of a row are one node each, whatever they come down to."""
    return row in _texts()


def seen(
    row: str,
    form: str,
    values: tuple[Any, ...],
    outs: list[Any],
    leaf: bool,
    within: str | None = None,
    parted: bool = False,
) -> Any:
    """Shows a call, which a composite `within` may have made, to modes and arguments; NotImplemented passes it on, and
    `...` has a leaf that is `parted` show its parts.

    Outside of inference mode autograd takes composites apart, and answers `detach_` itself.
    """
    from torchlike._ops import decompositions

    apart = not _C.is_inference_mode_enabled()
    if row in SILENT or (apart and row == "detach#inplace"):
        return NotImplemented
    if apart and form != "out":
        known = dict(zip(_parameters(row), values, strict=True))
        with modes.apart(row, leaf or _is_recorded(row)) as first:
            made = decompositions.run(row, form, known) if first else NotImplemented
        if made is not NotImplemented:
            return made
    found = overload_of(row, form, values, outs, within)
    if found is None and leaf and modes.must_see((*values, *outs)):
        raise NotImplementedError(
            f"{row}: no operator of ops.aten to show to who has to see every call"
        )
    if found is None or (found[0].implicit and not leaf and apart):
        return NotImplemented
    if found[0].implicit and parted and apart and _C._dispatch_handlers(modes.tensors(values)):
        return ...
    if (
        not leaf
        and not _is_recorded(row)
        and modes.recorded((*values, *outs))
        # What gives no tensor has no history to keep.
        and any("Tensor" in r.spelled for r in found[0]._schema.returns)
    ):
        return NotImplemented
    overload, fitted = found
    if count := modes.opens(overload):
        first = count == 1 and form != "out"
        known = dict(zip(_parameters(row), values, strict=True))
        made = decompositions.run(row, form, known) if first else NotImplemented
        return ... if made is NotImplemented and parted and count == 1 else made
    args, kwargs = spelled(overload._schema, fitted)
    answer = modes.ask(overload, args, kwargs)
    several = "return_indices" in _parameters(row) and any(v is True for v in values)
    if (
        isinstance(answer, tuple)
        and len(answer) > 1
        and "->" not in _schemas()[row]
        and not several
    ):
        return answer[0]
    return answer


def value(t: Any) -> Any:
    """The number in a tensor of one element from those who watch, or NotImplemented."""
    if not modes.wanted((t,)):
        return NotImplemented
    return modes.ask(aten._local_scalar_dense.default, (t,), {})


def reading(t: Any) -> None:
    """Tells modes that make graphs that all elements of a tensor are read."""
    for mode in modes.stack():
        if hasattr(mode, "_reads"):
            mode._reads(t)


def decomposed(overload: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The call of an overload in other operators, or NotImplemented."""
    from torchlike._ops import calls, decompositions

    values = overload.bind(args, kwargs)
    made = decompositions.run(overload._opname, "", values)
    return calls.taken_apart(overload, values) if made is NotImplemented else made
