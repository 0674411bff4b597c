"""How tensors are printed: the text of PyTorch, made from the Python values of the elements that are shown."""

from __future__ import annotations

import contextlib
import sys
from math import ceil, inf, isfinite
from typing import TYPE_CHECKING, Any

from torchlike import _C
from torchlike.context import no_grad

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PROFILES: dict[str, dict[str, Any]] = {
    "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 80},
    "full": {"precision": 4, "threshold": inf, "edgeitems": 3, "linewidth": 80},
}


class _Options:
    """What `set_printoptions` sets."""

    __slots__ = ("edgeitems", "linewidth", "precision", "sci_mode", "threshold")

    def __init__(self) -> None:
        self.sci_mode: bool | None = None
        self.update(_PROFILES["default"])

    def update(self, values: dict[str, Any]) -> None:
        for name, value in values.items():
            setattr(self, name, value)

    def values(self) -> dict[str, Any]:
        names = ("precision", "threshold", "edgeitems", "linewidth", "sci_mode")
        return {name: getattr(self, name) for name in names}

    precision: int
    threshold: float
    edgeitems: int
    linewidth: int


PRINT_OPTS = _Options()
_MORE = object()  # stands for the elements left out


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Sets how tensors are printed.

    `precision` is the number of digits, `threshold` the number of elements above which only `edgeitems` are
    shown at each end of a dimension, `linewidth` the width of a line, `profile` one of default, short and full,
    and `sci_mode` switches scientific notation on or off; None (the default) decides by the values.
    """
    if profile is not None:
        PRINT_OPTS.update(_PROFILES.get(profile, {}))
    given = {
        "precision": precision,
        "threshold": threshold,
        "edgeitems": edgeitems,
        "linewidth": linewidth,
    }
    PRINT_OPTS.update({name: value for name, value in given.items() if value is not None})
    PRINT_OPTS.sci_mode = sci_mode


def get_printoptions() -> dict[str, Any]:
    """The options in force, as keyword arguments of `set_printoptions`."""
    return PRINT_OPTS.values()


@contextlib.contextmanager
def printoptions(**kwargs: Any) -> Iterator[None]:
    """Sets printing options for a while."""
    before = get_printoptions()
    set_printoptions(**kwargs)
    try:
        yield
    finally:
        PRINT_OPTS.update(before)


def _shown(t: Any, edge: int) -> Any:
    """The values of a tensor as nested lists; with `edge` >= 0 only that many at the ends of each dimension."""
    if edge < 0 or t.ndim == 0:
        return t.tolist()
    size = t.shape[0]
    if size <= 2 * edge:
        if t.ndim == 1:
            return t.tolist()
        return [_shown(t.select(0, i), edge) for i in range(size)]
    if edge == 0:
        return [_MORE]
    if t.ndim == 1:
        return t.narrow(0, 0, edge).tolist() + [_MORE] + t.narrow(0, size - edge, edge).tolist()
    first = [_shown(t.select(0, i), edge) for i in range(edge)]
    last = [_shown(t.select(0, i), edge) for i in range(size - edge, size)]
    return first + [_MORE] + last


def _flat(values: Any) -> list[Any]:
    if not isinstance(values, list):
        return [] if values is _MORE else [values]
    if values and not isinstance(values[0], list):
        return [v for v in values if v is not _MORE]
    return [v for part in values for v in _flat(part)]


def _float_formatter(values: list[float]) -> tuple[int, Callable[[float], str]]:
    """The width of an element and what writes one, for the floats that are shown."""
    digits = PRINT_OPTS.precision
    counted = [v for v in values if v != 0 and isfinite(v)]
    if not counted:
        return 1, lambda v: f"{v:.0f}." if isfinite(v) else f"{v:.0f}"
    whole = all(v == ceil(v) for v in counted)
    sci = PRINT_OPTS.sci_mode
    if sci is None:
        largest, smallest = max(map(abs, counted)), min(map(abs, counted))
        sci = largest / smallest > 1000.0 or largest > 1.0e8 or (not whole and smallest < 1.0e-4)
    if sci:
        width = max(len(f"{v:.{digits}e}") for v in counted)
        return width, lambda v: f"{v:{width}.{digits}e}"
    if whole:
        width = max(len(f"{v:.0f}") for v in counted) + 1
        return width, lambda v: (f"{v:.0f}." if isfinite(v) else f"{v:.0f}").rjust(width)
    width = max(len(f"{v:.{digits}f}") for v in counted)
    return width, lambda v: f"{v:.{digits}f}".rjust(width)


def _formatter(values: list[Any]) -> tuple[int, Callable[[Any], str]]:
    """The width of an element and what writes one."""
    first = values[0] if values else 0
    if isinstance(first, float):
        return _float_formatter(values)
    if isinstance(first, complex):
        real_width, real = _float_formatter([v.real for v in values])
        imag_width, imag = _float_formatter([v.imag for v in values])

        def both(value: complex) -> str:
            second = imag(value.imag).lstrip()
            return real(value.real) + ("" if second[0] in "+-" else "+") + second + "j"

        return real_width + imag_width + 1, both
    width = max((len(str(v)) for v in values), default=1)
    return width, lambda value: str(value).rjust(width)


def _lines(values: Any, depth: int, indent: int, width: int, write: Callable[[Any], str]) -> str:
    """The text of nested lists; `depth` dimensions lie inside, `indent` columns before."""
    if depth == 0:
        return write(values)
    if depth == 1:
        per_line = max(1, (PRINT_OPTS.linewidth - indent) // (width + 2))
        alone = len(values) == 1
        words = [("..." if alone else " ...") if v is _MORE else write(v) for v in values]
        lines = [", ".join(words[i : i + per_line]) for i in range(0, len(words), per_line)]
        return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"
    parts = [
        "..." if v is _MORE else _lines(v, depth - 1, indent + 1, width, write) for v in values
    ]
    return "[" + ("," + "\n" * (depth - 1) + " " * (indent + 1)).join(parts) + "]"


def _add_suffixes(text: str, suffixes: list[str], indent: int, on_a_new_line: bool) -> str:
    column = len(text) - text.rfind("\n") + 1
    for suffix in suffixes:
        # lines break where PyTorch breaks them, although our name is longer
        length = len(suffix.replace("torchlike.", "torch.", 1))
        if on_a_new_line or column + length + 2 > PRINT_OPTS.linewidth:
            text += ",\n" + " " * indent + suffix
            column = indent + length
            on_a_new_line = False
        else:
            text += ", " + suffix
            column += length + 2
    return text + ")"


def _tensor_str(t: Any, indent: int) -> str:
    """The elements of a dense tensor that begin at a column."""
    if t.numel() == 0:
        return "[]"
    formatter = _formatter
    if t.dtype == _C.float4_e2m1fn_x2:  # the two halves of a byte are not told apart
        t, formatter = t.view(_C.uint8), _float_formatter
    summarise = t.numel() > PRINT_OPTS.threshold
    values = _shown(t, PRINT_OPTS.edgeitems if summarise else -1)
    return _lines(values, t.ndim, indent, *formatter(_flat(values)))


_COMPRESSED = {
    "sparse_csr": ("crow_indices", "col_indices"),
    "sparse_bsr": ("crow_indices", "col_indices"),
    "sparse_csc": ("ccol_indices", "row_indices"),
    "sparse_bsc": ("ccol_indices", "row_indices"),
}


def _sparse(t: Any, indent: int, hollow: bool) -> str:
    """The indices and values of a sparse tensor, a line or more each."""
    if t.is_sparse:
        parts = {"indices": t._indices(), "values": t._values()}
    else:
        names = _COMPRESSED[str(t.layout).rpartition(".")[2]]
        parts = {**{name: getattr(t, name)() for name in names}, "values": t.values()}
    texts = []
    for name, part in parts.items():
        first = f"{name}=tensor("
        text = "..." if hollow else _tensor_str(part, indent + len(first))
        size = f", size={tuple(part.shape)}" if hollow or part.numel() == 0 else ""
        texts.append(f"{first}{text}{size})")
    return (",\n" + " " * indent).join(texts)


def _quantizer(t: Any) -> list[str]:
    """What PyTorch says of a quantised tensor after its elements."""
    scheme = t.qscheme()
    said = [f"size={tuple(t.shape)}", f"dtype={t.dtype}", f"quantization_scheme={scheme}"]
    if str(scheme).rpartition(".")[2].startswith("per_tensor"):
        return [*said, f"scale={t.q_scale()}", f"zero_point={t.q_zero_point()}"]
    scales, zeros = t.q_per_channel_scales(), t.q_per_channel_zero_points()
    return [*said, f"scale={scales}", f"zero_point={zeros}", f"axis={t.q_per_channel_axis()}"]


def _nested(t: Any) -> str:
    """The components of a nested tensor."""
    texts = (str(part).replace("\n", "\n  ") for part in t.unbind())
    return "[\n" + ",\n".join(f"  {text}" for text in texts) + "\n]"


def _str(self: Any, *, tensor_contents: str | None = None) -> str:
    """The text of a tensor; dispatch modes do not see how it is made."""
    modes = sys.modules.get("torchlike._ops.modes")
    if modes is None or not modes.stack():
        return _str_intern(self, tensor_contents=tensor_contents)
    with modes.without():
        return _str_intern(self, tensor_contents=tensor_contents)


def _tangent(self: Any) -> Any:
    """The tangent of a dual tensor."""
    if not _C._is_fwd_grad_enabled():
        return None
    from torchlike.autograd.forward_ad import unpack_dual

    return unpack_dual(self).tangent


def _batch_text(self: Any, levels: list[int], whole: Any) -> str:
    """The text of an example of a batch: all examples, and what levels they are of, the innermost around the others."""
    text = _str_intern(whole)
    for level in levels:
        inner = "\n".join("    " + line if line else line for line in text.split("\n"))
        text = f"BatchedTensor(lvl={_C._batch_depth(level)}, bdim=0, value=\n{inner}\n)"
    return text


def _str_intern(self: Any, *, tensor_contents: str | None = None) -> str:
    """The text of a tensor."""
    levels, whole = _C._batch_whole(self)
    if levels:
        return _batch_text(self, levels, whole)
    cls = type(self)
    with no_grad():  # a view that must not be used with its history can be shown
        t = self.detach() if _C._is_fwd_grad_enabled() or self.requires_grad else self
    hollow = t.is_meta or _C._is_fake(self)
    if cls is not _C.Tensor and not hollow:
        t = t.as_subclass(_C.Tensor)
    from torchlike.nn.parameter import Parameter

    plain = cls is _C.Tensor or cls is Parameter
    prefix = "tensor(" if plain else f"{cls.__name__}("
    if plain and t.is_nested:
        prefix = "nested_tensor("
    indent = len(prefix)
    device, dtype, default = t.device, t.dtype, _C.get_default_dtype()
    of_default = _C.complex128 if default == _C.float64 else _C.complex64
    usual = dtype in (default, of_default, _C.int64, _C.bool)
    sparse = t.is_sparse or str(t.layout).rpartition(".")[2] in _COMPRESSED
    suffixes = [f"device='{device}'"] if device.type != "cpu" else []
    contents = tensor_contents
    if t.is_nested:
        contents = _nested(t) if contents is None else contents
    elif sparse:
        suffixes.append(f"size={tuple(t.shape)}")
        if not hollow:
            suffixes.append(f"nnz={t._nnz()}")
        if not usual:
            suffixes.append(f"dtype={dtype}")
        contents = _sparse(t, indent, hollow) if contents is None else contents
        suffixes.append(f"layout={t.layout}")
    elif t.is_quantized:
        suffixes += _quantizer(t)
        if contents is None:
            contents = "..." if hollow else _tensor_str(t.dequantize(), indent)
    elif hollow:
        suffixes.append(f"size={tuple(t.shape)}")
        if dtype != default:
            suffixes.append(f"dtype={dtype}")
        contents = "..." if contents is None else contents
    elif t.numel() == 0:
        if t.ndim != 1:
            suffixes.append(f"size={tuple(t.shape)}")
        if dtype != default:
            suffixes.append(f"dtype={dtype}")
        contents = "[]" if contents is None else contents
    else:
        if contents is None:
            if PRINT_OPTS.edgeitems == 0:
                suffixes.append(f"size={tuple(t.shape)}")
            contents = _tensor_str(t, indent)
        if not usual:
            suffixes.append(f"dtype={dtype}")
    try:
        node = self.grad_fn
        made_by = None if node is None else type(node).__name__
    except RuntimeError:
        made_by = "Invalid"
    if made_by is not None:
        suffixes.append(f"grad_fn=<{made_by}>")
    elif self.requires_grad:
        suffixes.append("requires_grad=True")
    tangent = _tangent(self)
    if tangent is not None:
        suffixes.append(f"tangent={tangent}")
    text = _add_suffixes(prefix + contents, suffixes, indent, t.is_sparse)
    return text if plain or not isinstance(self, Parameter) else f"Parameter({text})"
