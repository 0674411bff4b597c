"""What calls mean for tensors with masks, above gradients (`above`) and below (`below`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike import Tensor

if TYPE_CHECKING:
    from torchlike.masked.maskedtensor.core import MaskedTensor

_UNARY_NAMES = """
    abs absolute acos arccos acosh arccosh angle asin arcsin asinh arcsinh atan arctan atanh arctanh bitwise_not
    ceil clamp clip conj_physical cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1 fix floor frac lgamma
    log log10 log1p log2 logit i0 isnan nan_to_num neg negative positive pow rad2deg reciprocal relu round rsqrt
    sigmoid sign sgn signbit sin sinc sinh sqrt square tan tanh trunc clone detach alias _to_copy to contiguous
    ones_like zeros_like empty_like full_like threshold_backward
"""
_UNARY = frozenset(_UNARY_NAMES.split())
_BINARY_NAMES = """
    add atan2 arctan2 bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift div divide
    floor_divide fmod logaddexp logaddexp2 logical_and logical_or logical_xor mul multiply nextafter remainder
    sub subtract rsub true_divide eq ne le ge greater greater_equal gt less_equal lt less maximum minimum fmax
    fmin not_equal sigmoid_backward tanh_backward
"""
_BINARY = frozenset(_BINARY_NAMES.split())
_PASSED_ON_NAMES = """
    select transpose split split_with_sizes chunk unbind t permute slice slice_backward select_backward index
    expand view _unsafe_view _reshape_alias reshape cat unsqueeze squeeze unfold unfold_backward im2col col2im
    stack index_select flip roll diagonal narrow
"""
_PASSED_ON = frozenset(_PASSED_ON_NAMES.split())
_REDUCTIONS = [
    "sum",
    "mean",
    "amin",
    "amax",
    "argmin",
    "argmax",
    "prod",
    "all",
    "norm",
    "var",
    "std",
]


def _class() -> type[MaskedTensor]:
    from torchlike.masked.maskedtensor import core

    return core.MaskedTensor


def _made(data: Any, mask: Any) -> Any:
    if isinstance(data, list | tuple):
        return type(data)(_made(d, m) for d, m in zip(data, mask, strict=True))
    return _class()._made(data, mask)


def _each(value: Any, part: Callable[[MaskedTensor], Any]) -> Any:
    """The value with a part of every masked tensor in its place."""
    if isinstance(value, list | tuple):
        return type(value)(_each(v, part) for v in value)
    return part(value) if isinstance(value, _class()) else value


def _data(value: Any) -> Any:
    return _each(value, lambda t: t._masked_data)


def _mask(value: Any) -> Any:
    return _each(value, lambda t: t._masked_mask)


def _unary(func: Any, args: Any, kwargs: Any) -> Any:
    if any(isinstance(a, Tensor) for a in args[1:]) and func.overloadpacket.__name__ == "pow":
        return _binary(func, args, kwargs)
    made = func(*_data(args), **kwargs)
    if func.overloadpacket.__name__.endswith("_"):
        return args[0]
    return _made(made, args[0]._masked_mask)


def _check_masks(first: Any, second: Any) -> None:
    both = isinstance(first, _class()) and isinstance(second, _class())
    if both and not torch.equal(first._masked_mask, second._masked_mask):
        raise ValueError(
            "Input masks must match. If you need support for this, please open an issue on Github."
        )


def _binary(func: Any, args: Any, kwargs: Any) -> Any:
    _check_masks(args[0], args[1])
    made = func(*_data(args), **kwargs)
    if func.overloadpacket.__name__.endswith("_"):
        return args[0]
    holder = args[0] if isinstance(args[0], _class()) else args[1]
    return _made(made, holder._masked_mask.expand_as(made))


def _passed_on(func: Any, args: Any, kwargs: Any) -> Any:
    return _made(func(*_data(args), **kwargs), func(*_mask(args), **kwargs))


def _where(func: Any, args: Any, kwargs: Any) -> Any:
    condition, *sides = args
    mine = [
        s if isinstance(s, _class()) else _made(s, torch.ones_like(s, dtype=torch.bool))
        for s in sides
    ]
    data, mask = [s._masked_data for s in mine], [s._masked_mask for s in mine]
    return _made(func(condition, *data), func(condition, *mask))


def _softmax(func: Any, args: Any, kwargs: Any) -> Any:
    masked, *rest = args
    held = ~masked._masked_mask
    data = masked._masked_data.masked_fill(held, float("-inf"))
    # A line without any element that counts has no softmax.
    return _made(func(data, *rest, **kwargs).masked_fill(held, 0), masked._masked_mask)


def _softmax_backward(func: Any, args: Any, kwargs: Any) -> Any:
    grad, output, *rest = args
    _check_masks(grad, output)
    mask = grad._masked_mask
    data = [t._masked_data.masked_fill(~mask, 0) for t in (grad, output)]
    return _made(func(*data, *rest, **kwargs), mask)


def _copy(func: Any, args: Any, kwargs: Any) -> Any:
    _check_masks(args[0], args[1])
    func(*_data(args[:2]))
    return args[0]


def _number(func: Any, args: Any, kwargs: Any) -> Any:
    return func(*_data(args), **kwargs)


def _is_any_true(func: Any, args: Any, kwargs: Any) -> Any:
    (given,) = args
    if given.dtype is not torch.bool:
        raise ValueError(f"__torch_dispatch__, {func.overloadpacket}: expected a boolean tensor")
    return _made(func(given._masked_data & given._masked_mask), torch.tensor(True))


_OTHERS: dict[str, Callable[..., Any]] = {
    "where": _where,
    "_softmax": _softmax,
    "_softmax_backward_data": _softmax_backward,
    "copy_": _copy,
    "is_same_size": _number,
    "_is_any_true": _is_any_true,
    "_local_scalar_dense": _number,
    "item": _number,
}


def below(func: Any) -> Callable[..., Any] | None:
    """What answers a call below gradients, if anything does."""
    name: str = func.overloadpacket.__name__
    if name in _OTHERS:
        return _OTHERS[name]
    bare = name.removesuffix("_") if not name.endswith("__") else name
    if bare in _UNARY:
        return _unary
    if bare in _BINARY:
        return _binary
    if name in _PASSED_ON:
        return _passed_on
    return _reduced_below if name in _REDUCTIONS else None


def _reduced_below(func: Any, args: Any, kwargs: Any) -> Any:
    return _reduction(func.overloadpacket.__name__)(*args, **kwargs)


def _any(mask: Tensor, dim: Any, keepdim: bool) -> Tensor:
    """Where along dimensions anything counts."""
    if dim is None:
        return mask.any()
    for d in sorted([dim] if isinstance(dim, int) else dim, reverse=True):
        mask = mask.any(d, keepdim=keepdim)
    return mask


@cache
def _reduction(name: str) -> Callable[..., Any]:
    def reduce(
        input: MaskedTensor,
        dim: Any = None,
        keepdim: bool = False,
        dtype: Any = None,
        **options: Any,
    ) -> Any:
        mask = input.get_mask()
        if name == "all":
            filled = input._elements().masked_fill(~mask, True)
            made = torch.all(filled) if dim is None else torch.all(filled, dim, keepdim=keepdim)
        else:
            of_masked: Any = getattr(torch.masked, name)
            # PyTorch's functions take a tensor by its elements where they reduce all of them.
            given: dict[str, Any] = {} if dim is None else {"keepdim": keepdim, "dtype": dtype}
            if name == "norm":
                order = options.pop("p", 2.0)
                options.setdefault("ord", 2.0 if order in ("fro", None) else order)
            if name in ("var", "std"):
                options.setdefault("unbiased", None)
            made = of_masked(input, dim=dim, mask=mask, **given, **options)
        return _class()._from_values(made, _any(mask, dim, keepdim))

    return reduce


def _where_above(condition: Tensor, input: Any, other: Any) -> Any:
    """`where`, whose gradients are held back where the other side was chosen."""
    return _Where.apply(condition, input, other)


class _Where(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, condition: Tensor, input: Any, other: Any) -> Any:
        ctx.save_for_backward(condition)
        return torch.ops.aten.where.self(condition, input, other)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (condition,) = ctx.saved_tensors
        nothing = _made(grad._masked_data, torch.zeros_like(grad._masked_mask))
        where = torch.ops.aten.where.self
        return None, where(condition, grad, nothing), where(condition, nothing, grad)


@cache
def _above() -> dict[Any, Callable[..., Any]]:
    table: dict[Any, Callable[..., Any]] = {torch.where: _where_above, Tensor.where: _chosen}
    for name in _REDUCTIONS:
        table[getattr(torch, name)] = table[getattr(Tensor, name)] = _reduction(name)
    return table


def _chosen(input: Any, condition: Tensor, other: Any) -> Any:
    return _where_above(condition, input, other)


def above(func: Any) -> Callable[..., Any] | None:
    """What answers a call above gradients, if anything does."""
    return _above().get(func)
