"""Calls of overloads: of our own operators by the public functions, of custom ones by what was registered."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike import _C
from torchlike._ops import binding, modes
from torchlike._ops.schema import REDUCTIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from torchlike._ops import OpOverload

WORDS = tuple(REDUCTIONS)
_BY_HAND: dict[str, Callable[..., Any]] = {}


def by_hand(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator: the function is the operator of its name (`_softmax`), which has no public one."""
    _BY_HAND[function.__name__] = function
    return function


def run(overload: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a call, as PyTorch's dispatcher gives it: tuples and lists without names."""
    values = binding.bind(overload._schema, args, kwargs)
    if overload.namespace != "aten":
        from torchlike._ops import custom

        return custom.run(overload, values)
    seen = not overload.implicit or torch.is_inference_mode_enabled()
    if seen and modes.wanted(values.values()):
        answer = modes.ask(overload, *binding.spelled(overload._schema, values))
        binding.check_results(overload._schema, answer)
        return answer
    function = _BY_HAND.get(overload._opname)
    if function is None:
        result = _public(overload, values)
    else:
        outs = {a.name for a in overload._schema.arguments if a.kwarg_only and a.alias_info}
        result = function(**{n: v for n, v in values.items() if n not in outs})
    returns = overload._schema.returns
    if len(returns) > 1 and isinstance(result, tuple | list):
        return tuple(result)
    if len(returns) == 1 and returns[0].is_list and isinstance(result, tuple):
        return list(result)
    return result


def _function(name: str) -> Any:
    for prefix in ("linalg", "fft", "special"):
        if name.startswith(prefix + "_"):
            found = getattr(getattr(torch, prefix), name[len(prefix) + 1 :], None)
            if found is not None:
                return found
    for space in (torch, torch.nn.functional):
        found = space.__dict__.get(name)
        if found is not None:
            return found
    return None


@cache
def _row(name: str) -> Any:
    """A row of the table that has no public name."""
    if all(name != row for row, *_ in _C._op_table()):
        return None

    def call(*args: Any, **kwargs: Any) -> Any:
        return _C._call_row(name, False, args, kwargs)

    return call


def _public(overload: OpOverload, values: dict[str, Any]) -> Any:
    """A call of the function or method that users call."""
    name = overload._opname
    arguments = overload._schema.arguments
    outs = [values[a.name] for a in arguments if a.kwarg_only and a.alias_info is not None]
    inputs = {a.name: values[a.name] for a in arguments if not (a.kwarg_only and a.alias_info)}
    args, kwargs = binding.spelled(_without_outs(overload), inputs)
    method = getattr(torch.Tensor, name, None)
    method = method if callable(method) else None
    usable = method is not None and not outs and args and isinstance(args[0], torch.Tensor)
    function: Any = method if usable else _function(name) or method or _row(name)
    if function is None:
        raise NotImplementedError(f"torchlike has no kernel for {overload.name()}")
    if "reduction" in inputs and function is torch.nn.functional.__dict__.get(name):
        args, kwargs = (inputs.pop("self"),), {**inputs, "reduction": WORDS[inputs["reduction"]]}
    if outs:
        kwargs["out"] = outs[0] if len(outs) == 1 else tuple(outs)
    return function(*args, **kwargs)


def _without_outs(overload: OpOverload) -> Any:
    from torchlike._ops.schema import FunctionSchema

    s = overload._schema
    inputs = [a for a in s.arguments if not (a.kwarg_only and a.alias_info)]
    return FunctionSchema(s.name, s.overload_name, inputs, s.returns, s.text)


F: Any = torch.nn.functional


@by_hand
def _softmax(self: Any, dim: int, half_to_float: bool) -> Any:
    return torch.softmax(self, dim)


@by_hand
def _log_softmax(self: Any, dim: int, half_to_float: bool) -> Any:
    return torch.log_softmax(self, dim)


@by_hand
def gelu(self: Any, approximate: str = "none") -> Any:
    return F.gelu(self, approximate=approximate)


@by_hand
def elu(self: Any, alpha: Any, scale: Any, input_scale: Any) -> Any:
    return (
        F.elu(self * input_scale, alpha) * scale
        if (scale, input_scale) != (1, 1)
        else F.elu(self, alpha)
    )


@by_hand
def embedding(
    weight: Any, indices: Any, padding_idx: int, scale_grad_by_freq: bool, sparse: bool
) -> Any:
    return F.embedding(indices, weight)


@by_hand
def where(condition: Any, self: Any = None, other: Any = None) -> Any:
    return torch.where(condition) if self is None else torch.where(condition, self, other)


@by_hand
def index(self: Any, indices: Any) -> Any:
    return self[tuple(slice(None) if i is None else i for i in indices)]


@by_hand
def index_put(self: Any, indices: Any, values: Any, accumulate: bool) -> Any:
    return torch.index_put(self, tuple(indices), values, accumulate)


@by_hand
def slice(self: Any, dim: int, start: Any, end: Any, step: int) -> Any:
    from builtins import slice as part

    return self[(part(None),) * (dim % self.dim()) + (part(start, end, step),)]


@by_hand
def sym_size(self: Any, dim: Any = None) -> Any:
    return self.size() if dim is None else self.size(dim)


@by_hand
def sym_stride(self: Any, dim: Any = None) -> Any:
    return self.stride() if dim is None else self.stride(dim)


@by_hand
def sym_numel(self: Any) -> Any:
    return self.numel()


@by_hand
def _local_scalar_dense(self: Any) -> Any:
    return self.item()


@by_hand
def scalar_tensor(s: Any, dtype: Any, layout: Any, device: Any, pin_memory: Any) -> Any:
    return torch.full((), s, dtype=dtype or torch.get_default_dtype(), device=device)


@by_hand
def _unsafe_view(self: Any, size: Any) -> Any:
    return self.view(size)


@by_hand
def alias(self: Any) -> Any:
    return self.view(self.shape)


@by_hand
def lift_fresh(self: Any) -> Any:
    return self


@by_hand
def _to_copy(
    self: Any,
    dtype: Any,
    layout: Any,
    device: Any,
    pin_memory: Any,
    non_blocking: bool,
    memory_format: Any,
) -> Any:
    kept = memory_format or torch.preserve_format
    return self.to(device or self.device, dtype or self.dtype, copy=True, memory_format=kept)


@by_hand
def nll_loss_forward(self: Any, target: Any, weight: Any, reduction: int, ignore_index: int) -> Any:
    how = WORDS[reduction]
    loss = F.nll_loss(self, target, weight, ignore_index=ignore_index, reduction=how)
    return loss, self.new_zeros(()) if weight is None else weight[target].sum()


@by_hand
def cross_entropy_loss(
    self: Any, target: Any, weight: Any, reduction: int, ignore_index: int, label_smoothing: float
) -> Any:
    return F.cross_entropy(
        self,
        target,
        weight,
        ignore_index=ignore_index,
        reduction=WORDS[reduction],
        label_smoothing=label_smoothing,
    )


@by_hand
def native_layer_norm(input: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    made = F.layer_norm(input, normalized_shape, weight, bias, eps)
    dims = list(range(input.dim() - len(normalized_shape), input.dim()))
    var, mean = torch.var_mean(input, dims, correction=0, keepdim=True)
    return made, mean, (var + eps).rsqrt()


@by_hand
def native_group_norm(
    input: Any, weight: Any, bias: Any, N: int, C: int, HxW: int, group: int, eps: float
) -> Any:
    made = F.group_norm(input, group, weight, bias, eps)
    var, mean = torch.var_mean(input.reshape(N, group, -1), 2, correction=0)
    return made, mean, (var + eps).rsqrt()


@by_hand
def native_batch_norm(
    input: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    made = F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    if not training:
        return made, input.new_empty(0), input.new_empty(0)
    dims = [d for d in range(input.dim()) if d != 1]
    var, mean = torch.var_mean(input, dims, correction=0)
    return made, mean, (var + eps).rsqrt()


@by_hand
def convolution(
    input: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Any:
    n = weight.dim() - 2
    if transposed:
        function = getattr(F, f"conv_transpose{n}d")
        return function(input, weight, bias, stride, padding, output_padding, groups, dilation)
    return getattr(F, f"conv{n}d")(input, weight, bias, stride, padding, dilation, groups)


@by_hand
def max_pool2d_with_indices(
    self: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> Any:
    return F.max_pool2d(
        self, kernel_size, stride or None, padding, dilation, ceil_mode, return_indices=True
    )


@by_hand
def _prelu_kernel(self: Any, weight: Any) -> Any:
    return torch.where(self > 0, self, self * weight)


@by_hand
def im2col(self: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    return F.unfold(self, kernel_size, dilation, padding, stride)


@by_hand
def upsample_nearest2d(self: Any, output_size: Any, *scales: Any, **_: Any) -> Any:
    return F.interpolate(self, size=list(output_size))


@by_hand
def copy(self: Any, src: Any, non_blocking: bool = False) -> Any:
    return src.to(self.dtype).expand(self.shape).clone()


@by_hand
def _safe_softmax(self: Any, dim: int, dtype: Any = None) -> Any:
    return torch.softmax(self, dim, dtype=dtype)


@by_hand
def _embedding_bag_forward_only(weight: Any, indices: Any, offsets: Any, **how: Any) -> Any:
    mode = ("sum", "mean", "max")[how["mode"]]
    made = F.embedding_bag(indices, weight, offsets, mode=mode)
    empty = indices.new_empty(0)
    return made, empty, empty, empty


@by_hand
def grid_sampler_2d(
    input: Any, grid: Any, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Any:
    how = ("bilinear", "nearest", "bicubic")[interpolation_mode]
    outside = ("zeros", "border", "reflection")[padding_mode]
    return F.grid_sample(input, grid, how, outside, align_corners)


@by_hand
def _cdist_forward(x1: Any, x2: Any, p: float, compute_mode: Any) -> Any:
    return torch.cdist(x1, x2, p)


@by_hand
def _adaptive_avg_pool2d(self: Any, output_size: Any) -> Any:
    return F.adaptive_avg_pool2d(self, output_size)


@by_hand
def constant_pad_nd(self: Any, pad: Any, value: Any) -> Any:
    return F.pad(self, pad, value=value)
