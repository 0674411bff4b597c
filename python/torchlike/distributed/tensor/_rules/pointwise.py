"""Operators on each element alone: results are cut as operands are, and some keep what is partial."""

from __future__ import annotations

from functools import cache
from typing import Any

from torchlike import _C
from torchlike.distributed.tensor._rules import Call, Cut, P, R, Rows, has_rule, rule

_LINEAR: list[list[Any]] = [[P("sum"), P("sum")], [P("avg"), P("avg")]]
_ADDED: list[list[Any]] = [
    [P("sum"), P("sum"), P("sum")],
    [P("avg"), P("avg"), P("avg")],
    [P("avg"), P("avg"), R],
    [P("max"), P("max"), R],
    [P("min"), P("min"), R],
    [P("avg"), R, P("avg")],
]
_DIVIDED: list[list[Any]] = [[P("sum"), P("sum"), R], [P("avg"), P("avg"), R]]
_MULTIPLIED: list[list[Any]] = [*_DIVIDED, [P("sum"), R, P("sum")], [P("avg"), R, P("avg")]]
_RISING: list[list[Any]] = [[P("max"), P("max")], [P("min"), P("min")]]
_FALLING: list[list[Any]] = [[P("min"), P("max")], [P("max"), P("min")]]
_KEPT: list[list[Any]] = [[P(r), P(r)] for r in ("sum", "avg", "max", "min")]
_COPIED: list[list[Any]] = [[P(r), P(r), P(r)] for r in ("sum", "avg", "max", "min")]
_RISING_BOTH: list[list[Any]] = [
    [P("max"), P("max"), R],
    [P("max"), R, P("max")],
    [P("min"), P("min"), R],
    [P("min"), R, P("min")],
]
_ROWS: dict[str, list[list[Any]]] = {
    "add.Tensor add_.Tensor add.out sub.Tensor sub_.Tensor sub.out": _ADDED,
    "mul.Tensor mul_.Tensor mul.out": _LINEAR + _MULTIPLIED,
    "div.Tensor div_.Tensor div.out": _LINEAR + _DIVIDED,
    "mul.Scalar mul_.Scalar div.Scalar div_.Scalar": _LINEAR,
    "asinh atan ceil deg2rad erf exp exp2 expm1 floor rad2deg round sgn sigmoid sign sinh tanh trunc": _RISING,
    "nan_to_num hardshrink.default special_modified_bessel_i1.default threshold.default relu": _RISING,
    "erfc special_erfcx": _FALLING,
    "special_modified_bessel_k0 special_modified_bessel_k1": [[P("max"), P("min")]],
    "special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1": [[P("max"), P("min")]],
    "neg": _LINEAR + _FALLING,
    "special_xlog1py.default special_xlog1py.other_scalar": _DIVIDED,
    "positive.default to.dtype": _KEPT,
    "copy_.default": _COPIED,
    "complex": [[P(r), P(r), P(r)] for r in ("sum", "avg")],
    "logaddexp logaddexp2": _RISING_BOTH,
    "clamp_min.Tensor fmax maximum": [*_RISING_BOTH, [P("max")] * 3],
    "clamp_max.Tensor fmin minimum": [*_RISING_BOTH, [P("min")] * 3],
}
# Operators on each element that are no rows of that kind here, or have another name there.
_MORE = """
clone __iand__ __ilshift__ __ior__ __irshift__ __ixor__ __lshift__ __rshift__ addcdiv addcmul clamp clip conj_physical
_conj copysign dropout_backward fill float_power frexp gelu gelu_backward hardswish hardswish_backward leaky_relu
leaky_relu_backward elu elu_backward hardtanh_backward hardsigmoid_backward softplus softplus_backward mish_backward
softshrink softshrink_backward hardshrink_backward lerp logical_and logical_not logical_or logical_xor logit_backward
masked_fill mvlgamma native_dropout_backward polygamma rrelu_with_noise sigmoid_backward silu_backward
tanh_backward threshold_backward where xlogy glu_jvp celu complex polar __xor__ isclose isreal
log_sigmoid_forward log_sigmoid_backward ldexp _conj_physical _prelu_kernel_backward
fake_quantize_per_tensor_affine_cachemask _fake_quantize_per_tensor_affine_cachemask_tensor_qparams
"""


@cache
def _partial_rows() -> dict[str, list[list[Any]]]:
    found: dict[str, list[list[Any]]] = {}
    for names, rows in _ROWS.items():
        for name in names.split():
            found[name] = rows
            if "." not in name:
                found[name + "_"] = rows
    return found


def _aten(row: str) -> str:
    """The operator's name of a row."""
    name = row.partition("#")[0]
    for space in ("special.", "fft.", "linalg."):
        if name.startswith(space):
            return name.replace(".", "_")
    return name.rpartition(".")[2]


def shared(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape that these are broadcast to."""
    ndim = max(map(len, shapes), default=0)
    found = [1] * ndim
    for shape in shapes:
        for i, size in enumerate(shape, ndim - len(shape)):
            if size != 1:
                found[i] = size
    return tuple(found)


def _keeps_partial(call: Call) -> bool:
    """Whether arguments that are numbers leave an operator as its rows say."""
    if call.name in ("threshold", "threshold_"):
        return bool(call.args[2] <= call.args[1])  # else it falls at the threshold
    if call.name in ("div", "div_"):
        return hasattr(call.args[0], "placements")  # of a number by a tensor, nothing is linear
    return True


def pointwise(call: Call) -> Rows:
    """Cut along each dimension of the result, replicated where an operand is broadcast."""
    given = [a for a in call.args if hasattr(a, "placements")]
    whole = shared([s.shape for s in given])
    rows: list[list[Any]] = []
    for dim, size in enumerate(whole):
        row: list[Any] = [Cut(dim)] * call.results
        for spec in given:
            at = dim - (len(whole) - spec.ndim)
            row.append(Cut(at) if at >= 0 and spec.shape[at] == size else R)
        rows.append(row)
    partial = _partial_rows().get(f"{call.name}.{call.overload}") or _partial_rows().get(call.name)
    if not _keeps_partial(call):
        partial = None
    rows += [list(r) for r in partial or () if len(r) == call.results + len(given)]
    named = [name for name, v in call.kwargs.items() if hasattr(v, "placements")]
    rows = [row + [row[0] if n == "out" else R for n in named] for row in rows]
    return Rows(rows, uneven=True)


def _register() -> None:
    names = {_aten(row) for row in _C._op_pointwise()} | set(_MORE.split())
    names |= {n.partition(".")[0] for n in _partial_rows()}
    names -= {"fill", "fill_", "detach", "zero_", "glu", "rsub"}
    names |= {n + "_" for n in names} | {"rsub.Scalar"}
    rule(*(n for n in names if not has_rule(n)))(pointwise)


_register()
