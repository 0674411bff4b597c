"""The families of functions that nested tensors answer alike, by name."""

from __future__ import annotations

from typing import Any

from torchlike import _C, ops

# Functions of single elements that are composed of others here, or go by other names than their rows.
_COMPOSED = """
    absolute arccos arccosh arcsin arcsinh arctan arctan2 arctanh fix negative multiply subtract divide true_divide
    not_equal greater greater_equal less less_equal rsub clamp clip conj_physical conj float_power ldexp positive
    polygamma mvlgamma i0 igamma igammac logit masked_fill isclose isfinite isinf isreal signbit square
    bitwise_left_shift bitwise_right_shift __lshift__ __rshift__ __and__ __or__ __xor__ __iand__ __ior__ __ixor__
    __ilshift__ __irshift__
    relu6 elu selu celu gelu silu mish leaky_relu hardtanh hardswish hardsigmoid hardshrink softplus softshrink softsign
    tanhshrink logsigmoid threshold prelu sigmoid tanh relu rrelu erf erfc erfinv exp2 expm1 gammaln lgamma digamma psi
    multigammaln round sinc xlogy xlog1py expit log1p logical_not resolve_conj resolve_neg real imag view_as_real
    nan_to_num special_logit
"""
_SLOTS = {
    "__eq__": "eq", "__ne__": "ne", "__lt__": "lt", "__le__": "le", "__gt__": "gt", "__ge__": "ge",
    "__floordiv__": "floor_divide", "__mod__": "remainder", "__rsub__": "rsub", "__neg__": "neg", "__abs__": "abs",
    "__invert__": "bitwise_not", "__pos__": "positive", "__add__": "add", "__sub__": "sub", "__mul__": "mul",
    "__truediv__": "div", "__pow__": "pow", "__matmul__": "matmul", "__radd__": "add", "__rmul__": "mul",
    "__iadd__": "add_", "__isub__": "sub_", "__imul__": "mul_", "__itruediv__": "div_",
}  # fmt: skip
# Functions whose argument list writes no tensor, or draws numbers: no function of an element.
_OTHERS = """
    bernoulli cauchy copy exponential fill geometric log_normal normal rand rand_like randint randint_like randn
    randn_like random uniform zero where update_running glu mse bce huber smooth_l1
"""
_EXTRA = "__rpow__ __rdiv__ __rtruediv__ __rfloordiv__ __rmod__ __rlshift__ __rrshift__"


def _of_rows() -> frozenset[str]:
    names = set()
    for row in _C._op_pointwise():
        space, _, name = row.partition("#")[0].rpartition(".")
        if not row.startswith("_"):
            names.add(name)
            if space == "special":
                names.add(f"special_{name}")
    return frozenset((names | set(_COMPOSED.split()) | set(_EXTRA.split())) - set(_OTHERS.split()))


EACH = _of_rows()
"""Functions of single elements: those of pointwise rows, and those composed of them."""

_LOSSES = """
    l1_loss mse_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits kl_div
"""
LOSSES = frozenset(_LOSSES.split())
"""Losses that compare element by element, with a reduction."""

_CONVERSIONS = """
    to type type_as float double half bfloat16 long int short char byte bool cfloat cdouble chalf cpu cuda _to_copy
"""
CONVERSIONS = frozenset(_CONVERSIONS.split())
"""Changes of dtype and device."""

_OF_ONE = """
    element_size is_floating_point is_complex is_signed is_inference is_conj is_neg get_device data_ptr dtype device
    untyped_storage storage new_tensor is_pinned is_set_to itemsize __dlpack_device__
"""
OF_ONE_TENSOR = frozenset(_OF_ONE.split())
"""What is answered by the tensor of all elements."""

GRADIENTS = frozenset(["grad", "backward"])
"""Functions of the tape."""


def plain(name: str) -> str:
    """The name of a function as the tables have it: operators' and overloads' names are those of methods."""
    head = name.partition(".")[0]
    if head.startswith("special_") and head not in EACH:
        head = head.removeprefix("special_")
    return _SLOTS.get(head, head)


_CALLED = {
    "pad": "constant_pad_nd",
    "norm": "norm.ScalarOpt_dim",
    "index": "index.Tensor",
    "var": "var.correction",
    "std": "std.correction",
}


def operator(name: str, args: Any, kwargs: Any) -> Any:
    """The overload of aten that a call comes down to, or its name."""
    from torchlike._ops import binding

    name = _CALLED.get(name, name)
    packet = getattr(ops.aten, name, None) if "." not in name else None
    if packet is None:
        return f"aten.{name}" if "." in name else f"aten.{name}.default"
    try:
        kwargs = {"self" if k == "input" else k: v for k, v in kwargs.items()}
        return binding.choose(packet, args, kwargs)
    except (RuntimeError, TypeError, AttributeError):
        overloads = packet.real()
        return overloads[0] if overloads else f"aten.{name}.default"
