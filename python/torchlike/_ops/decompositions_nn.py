"""Functions of networks that PyTorch makes of other operators."""

from __future__ import annotations

import math
from typing import Any

from torchlike import _C
from torchlike._limits import finfo
from torchlike._ops import modes, ops
from torchlike._ops.decompositions import as_rows, batched, matmul, of, reshape
from torchlike.compiler import is_exporting

aten: Any = ops.aten
_N = "nn.functional."


@of(_N + "linear")
def linear(input: Any, weight: Any, bias: Any = None) -> Any:
    """`t`, then one product; rows that lie together become a matrix, others are multiplied as they are."""
    if weight.dim() == 1:
        return NotImplemented
    if input.dim() == 2:
        turned = aten.t(weight)
        return aten.mm(input, turned) if bias is None else aten.addmm(bias, input, turned)
    sizes = [*input.shape[:-1], weight.shape[0]]
    if bias is not None and input.is_contiguous():
        rows = as_rows(input)
        return aten.view(aten.addmm(bias, rows, aten.t(weight)), sizes)
    turned = aten.t(weight)
    if input.dim() > 2 and modes.tracked(weight):
        made = aten._unsafe_view(aten.mm(as_rows(input), turned), sizes)
    else:
        made = matmul(input, turned)
    return made if bias is None else aten.add.Tensor(made, bias)


def _mask(input: Any, p: float, mask: Any) -> Any:
    aten.bernoulli_.float(mask, 1 - p)
    return aten.mul.Tensor(input, aten.div_.Scalar(mask, 1 - p))


@of(_N + "dropout", "dropout")
def dropout(input: Any, p: float = 0.5, training: Any = None, train: Any = None, **how: Any) -> Any:
    """A mask of draws, scaled."""
    on = train if training is None else training
    if is_exporting() and not how.get("inplace"):
        # A program keeps the call, or the copy that it is in evaluation.
        return aten.native_dropout.default(input, p, True)[0] if on else aten.clone(input)
    if on and p == 1 and not how.get("inplace"):
        return _nothing(input)
    if p in (0, 1) or not on:
        return NotImplemented
    if not input.numel():
        return input
    if how.get("inplace"):
        mask = aten.bernoulli_.float(aten.empty_like(input), 1 - p)
        return aten.mul_.Tensor(input, aten.div_.Scalar(mask, 1 - p))
    return _mask(input, p, aten.empty_like(input))


def _nothing(input: Any) -> Any:
    none = aten.zeros([], dtype=input.dtype, layout=_C.strided, device=input.device)
    return aten.mul.Tensor(input, none)


@of("feature_alpha_dropout", _N + "feature_alpha_dropout")
def feature_alpha_dropout(
    input: Any, p: float = 0.5, training: Any = None, inplace: bool = False, train: Any = None
) -> Any:
    """Where all is dropped, a product with zero."""
    if p == 1 and not inplace and (train if training is None else training):
        return _nothing(input)
    return NotImplemented


@of(_N + "dropout1d", _N + "dropout2d", _N + "dropout3d", "feature_dropout")
def feature_dropout(
    input: Any,
    p: float = 0.5,
    training: Any = True,
    inplace: bool = False,
    train: Any = None,
    name: str = "",
) -> Any:
    """A mask of one draw a channel, scaled."""
    if inplace or p == 0 or not (training if train is None else train):
        return NotImplemented
    if not input.numel():
        return input
    if p == 1:
        return _nothing(input)
    alone = input.dim() == {"1d": 2, "3d": 4}.get(name[-2:])
    x = aten.unsqueeze(input, 0) if alone else input
    shape = [*x.shape[:2], *[1] * (x.dim() - 2)]
    made = _mask(x, p, aten.new_empty(x, shape))
    return aten.squeeze.dim(made, 0) if alone else made


@of(_N + "layer_norm", "layer_norm")
def layer_norm(
    input: Any,
    normalized_shape: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    **_: Any,
) -> Any:
    """The first result of the operator that also gives mean and deviation."""
    return aten.native_layer_norm(input, list(normalized_shape), weight, bias, eps)[0]


@of(_N + "group_norm", "group_norm")
def group_norm(
    input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, **_: Any
) -> Any:
    """The first result of the operator that also gives mean and deviation."""
    n, channels = input.shape[:2]
    rest = input.numel() // (n * channels) if n * channels else 0
    return aten.native_group_norm(input, weight, bias, n, channels, rest, num_groups, eps)[0]


@of("rms_norm", _N + "rms_norm")
def rms_norm(input: Any, normalized_shape: Any, weight: Any = None, eps: Any = None) -> Any:
    """The reciprocal root of the mean square, in single precision at least."""
    if not (input.is_complex() or input.is_floating_point()):
        return NotImplemented
    wide = input.dtype not in (_C.float16, _C.bfloat16)
    x = input if wide else aten._to_copy(input, dtype=_C.float32)
    dims = [input.dim() - 1 - i for i in range(len(normalized_shape))]
    least = finfo(x.dtype).eps if eps is None else eps
    mean = aten.mean.dim(aten.pow.Tensor_Scalar(x, 2), dims, True)
    made = aten.mul.Tensor(x, aten.rsqrt(aten.add_.Scalar(mean, least)))
    if weight is not None:
        made = aten.mul.Tensor(made, weight)
    return (
        made
        if wide
        else aten._to_copy(made, dtype=input.dtype, layout=_C.strided, device=input.device)
    )


@of(_N + "batch_norm", "batch_norm")
def batch_norm(
    input: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    **_: Any,
) -> Any:
    """The first result of the operator that also gives what backward needs; its reserve is made first."""
    aten.empty.memory_format([0], dtype=_C.uint8, layout=_C.strided, device=input.device)
    return aten.native_batch_norm(
        input, weight, bias, running_mean, running_var, training, momentum, eps
    )[0]


@of("_nn.batch_norm_train")
def batch_norm_by_the_batch(
    input: Any, weight: Any, bias: Any, mean: Any, var: Any, stats: Any, eps: float
) -> Any:
    """The operator without running statistics, and what those are brought on with."""
    made = aten.native_batch_norm(input, weight, bias, None, None, True, 0.0, eps)
    others = [d for d in range(input.dim()) if d != 1]
    spread = aten.var.correction(input, others, correction=1)
    return *made, spread if spread.dtype == stats else aten._to_copy(spread, dtype=stats)


@of("_nn.batch_norm_eval")
def batch_norm_by_running(
    input: Any, mean: Any, var: Any, weight: Any, bias: Any, eps: float
) -> Any:
    """The first result of the operator."""
    return aten.native_batch_norm(input, weight, bias, mean, var, False, 0.0, eps)[0]


@of("_nn.update_running_")
def update_running(self: Any, batch: Any, momentum: float) -> Any:
    """What the operator does to running statistics besides."""
    return aten.add_.Tensor(aten.mul_.Scalar(self, 1 - momentum), batch, alpha=momentum)


@of("softmax", _N + "softmax", "log_softmax", _N + "log_softmax")
def softmax(self: Any, dim: Any = None, dtype: Any = None, name: str = "", **_: Any) -> Any:
    """In another dtype after a conversion."""
    if dim is None:
        return NotImplemented
    if dtype is not None and dtype != self.dtype:
        self = aten._to_copy(self, dtype=dtype, layout=_C.strided, device=self.device)
    made = aten._log_softmax if "log" in name else aten._softmax
    return made(self, dim, False)


@of("_grad.gelu_backward#tanh")
def gelu_backward(grad_output: Any, self: Any) -> Any:
    """The operator, told which."""
    return aten.gelu_backward(grad_output, self, approximate="tanh")


@of("_grad.elu_backward#input", "_grad.elu_backward#result")
def elu_backward(
    grad_output: Any,
    alpha: float,
    scale: float,
    input_scale: float,
    self: Any = None,
    result: Any = None,
) -> Any:
    """The operator, told which."""
    by_result = self is None
    given = result if by_result else self
    return aten.elu_backward(grad_output, alpha, scale, input_scale, by_result, given)


@of("_nn.glu")
def glu(self: Any, gate: Any) -> Any:
    """The operator, which takes both halves as one tensor."""
    return aten.glu(aten.cat(aten.broadcast_tensors([self, gate]), -1), -1)


@of("_grad.prelu_backward#self", "_grad.prelu_backward#weight")
def prelu_backward(grad_output: Any, self: Any, weight: Any = None) -> Any:
    """The gradient by one operand: PyTorch has an operator for both together alone."""
    by_self = weight is not None
    made = aten._prelu_kernel_backward(grad_output, self, weight if by_self else self)
    return made[0 if by_self else 1]


@of("_grad.glu_backward#self", "_grad.glu_backward#gate")
def glu_backward(grad_output: Any, gate: Any, self: Any = None) -> Any:
    """The gradient by one half: PyTorch has an operator for both together alone."""
    if self is None:
        return aten.glu(aten.cat(aten.broadcast_tensors([grad_output, gate]), -1), -1)
    grad_output, self, gate = aten.broadcast_tensors([grad_output, self, gate])
    made = aten.glu_backward(grad_output, aten.cat([self, gate], -1), -1)
    half = aten.slice.Tensor(made, -1, gate.shape[-1])
    return aten.clone(half, memory_format=_C.contiguous_format)


@of("_grad.convolution_input", "_grad.convolution_weight")
def convolution_backward(
    grad_output: Any, input: Any, weight: Any, name: str = "", **named: Any
) -> Any:
    """One result of the operator for all of them."""
    by_input = name.endswith("input")
    mask = [by_input, not by_input, False]
    made = aten.convolution_backward(grad_output, input, weight, None, *named.values(), mask)
    return made[0 if by_input else 1]


@of("_nn.gelu#tanh")
def gelu(self: Any) -> Any:
    """The operator, which is told how."""
    return aten.gelu(self, approximate="tanh")


@of(_N + "logsigmoid", "_nn.log_sigmoid")
def logsigmoid(self: Any) -> Any:
    """The first result of the operator that also gives what backward needs."""
    return aten.log_sigmoid_forward(self)[0]


@of("_nn.rrelu")
def drawn_rrelu(self: Any, lower: float, upper: float, generator: Any = None) -> Any:
    """The operator as it is in training, and the slopes."""
    noise = aten.empty_like(self, memory_format=_C.contiguous_format)
    return aten.rrelu_with_noise(self, noise, lower, upper, True, generator), noise


@of("rrelu", _N + "rrelu")
def rrelu(
    self: Any,
    lower: float = 0.125,
    upper: float = 1 / 3,
    training: bool = False,
    generator: Any = None,
    inplace: bool = False,
) -> Any:
    """The operator, which also keeps the slopes."""
    operator = aten.rrelu_with_noise_ if inplace else aten.rrelu_with_noise
    noise = aten.empty_like(self, memory_format=_C.contiguous_format)
    return operator(self, noise, lower, upper, training, generator)


@of("rrelu_", _N + "rrelu_")
def rrelu_in_place(**given: Any) -> Any:
    """As `rrelu`, over its input."""
    return rrelu(**given, inplace=True)


@of(_N + "softsign")
def softsign(input: Any = None, self: Any = None, **_: Any) -> Any:
    """x / (1 + |x|)."""
    x = self if input is None else input
    return aten.div.Tensor(x, aten.add.Tensor(aten.abs(x), 1))


@of(_N + "relu6")
def relu6(self: Any = None, inplace: bool = False, input: Any = None) -> Any:
    """Between 0 and 6."""
    x = input if self is None else self
    return aten.hardtanh_(x, 0, 6) if inplace else aten.hardtanh(x, 0, 6)


@of(_N + "prelu", "prelu")
def prelu(self: Any, weight: Any) -> Any:
    """A slope a channel, in the tensor's dimensions."""
    if weight.dim() != self.dim():
        shape = [1] * self.dim()
        if self.dim() > 1:
            shape[1] = weight.numel()
        weight = aten.view(weight, shape)
    return aten._prelu_kernel(self, weight)


@of(_N + "embedding")
def embedding(
    input: Any,
    weight: Any,
    padding_idx: Any = None,
    max_norm: Any = None,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
    **_: Any,
) -> Any:
    """The operator, which takes the table first."""
    if max_norm is not None:
        return NotImplemented
    at = -1 if padding_idx is None else padding_idx
    return aten.embedding(weight, input, at, scale_grad_by_freq, sparse)


@of(_N + "scaled_dot_product_attention", "_attention")
def attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Any = None,
    enable_gqa: bool = False,
) -> Any:
    """One operator on the host where it can be, else scaled products, a mask, a softmax, and products again.

    16-bit floats are computed in single precision, and the weights are cast back as well, which nobody needs.
    """
    if query.dim() < 2 or key.dim() < 2 or value.dim() < 2 or (is_causal and attn_mask is not None):
        return NotImplemented
    if attn_mask is not None and attn_mask.dtype == _C.bool:
        attn_mask = _as_numbers(attn_mask, query)
    if _fused(query, key, value, attn_mask, dropout_p, enable_gqa):
        how: Any = {n: v for n, v in (("attn_mask", attn_mask), ("scale", scale)) if v is not None}
        operator = aten._scaled_dot_product_flash_attention_for_cpu
        return operator(query, key, value, 0.0, is_causal, **how)[0]
    kind = query.dtype
    low = kind in (_C.float16, _C.bfloat16)
    if low:
        query, key, value = (aten._to_copy(t, dtype=_C.float32) for t in (query, key, value))
    heads = query.size(-3) if enable_gqa else 0
    if enable_gqa and not heads == key.shape[-3] == value.shape[-3]:
        key, value = (t.repeat_interleave(heads // t.shape[-3], -3) for t in (key, value))
    root = math.sqrt(1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    q = aten.mul.Scalar(query, root)
    if is_causal:
        shape = [query.shape[-2], key.shape[-2]]
        attn_mask = aten.tril(
            aten.ones(shape, dtype=_C.bool, layout=_C.strided, device=query.device)
        )
        attn_mask = _as_numbers(attn_mask, query)
    scores = batched(q, aten.mul.Scalar(aten.transpose.int(key, -2, -1), root))
    if attn_mask is not None:
        scores = aten.add.Tensor(scores, attn_mask)
    weights = aten._safe_softmax(scores, -1)
    del scores
    if dropout_p:
        weights = dropout(weights, dropout_p, True)
    if not low:
        return batched(weights, value)
    aten._to_copy(weights, dtype=kind)
    return aten._to_copy(batched(weights, value), dtype=kind)


def _fused(query: Any, key: Any, value: Any, mask: Any, dropout_p: float, grouped: bool) -> bool:
    """Whether PyTorch has one operator for this attention."""
    same = query.dtype == key.dtype == value.dtype and query.is_floating_point()
    heads = grouped or query.shape[:-2] == key.shape[:-2] == value.shape[:-2]
    sizes = query.shape[-1] == key.shape[-1] == value.shape[-1] and key.shape[-2] == value.shape[-2]
    masked = mask is None or (mask.dim() in (2, 4) and not mask.requires_grad)
    filled = query.numel() > 0 and key.numel() > 0
    on_host = query.device.type == "cpu" and query.dim() == 4
    return on_host and same and heads and sizes and masked and filled and not dropout_p


def _as_numbers(mask: Any, like: Any) -> Any:
    low = aten.scalar_tensor(-math.inf, dtype=like.dtype, device=like.device)
    zero = aten.scalar_tensor(0.0, dtype=like.dtype, layout=_C.strided, device=like.device)
    return aten.where.self(mask, zero, low)


@of(_N + "embedding_bag")
def embedding_bag(
    input: Any,
    weight: Any,
    offsets: Any = None,
    max_norm: Any = None,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: Any = None,
    **_: Any,
) -> Any:
    """The first result of the operator that also gives what backward needs."""
    if max_norm is not None or (input.dim() == 1) != (offsets is not None):
        return NotImplemented
    if input.dim() == 2:
        count, length = input.shape[0], input.shape[1]
        offsets = aten.arange.start_step(
            0, count * length, length, dtype=input.dtype, device=input.device
        )
        input = reshape(input, [-1])
        if per_sample_weights is not None:
            per_sample_weights = reshape(per_sample_weights, [-1])
    made = aten._embedding_bag if weight.requires_grad else aten._embedding_bag_forward_only
    number = ("sum", "mean", "max").index(mode)
    last = -1 if padding_idx is None else padding_idx
    how = (scale_grad_by_freq, number, sparse, per_sample_weights, include_last_offset, last)
    return made(weight, input, offsets, *how)[0]


@of("bilinear")
def bilinear(input1: Any, input2: Any, weight: Any, bias: Any = None) -> Any:
    """One operator of rows."""
    rows = [reshape(x, [-1, x.shape[-1]]) for x in (input1, input2)]
    made = trilinear(rows[0], weight, rows[1])
    made = aten.view(made, [*input1.shape[:-1], weight.shape[0]])
    return made if bias is None else aten.add.Tensor(made, bias)


@of("_nn.bounded")
def bounded(self: Any, min: float) -> Any:
    """A copy that is written."""
    return aten.clamp_(aten.clone(self), min)


@of("_nn.trilinear")
def trilinear(input1: Any, weight: Any, input2: Any) -> Any:
    """One operator, whatever the three are."""
    return aten._trilinear(input1, weight, input2, [1, 3], [0], [1, 2], [2, 3])


@of("_grad.bilinear_weight")
def bilinear_weight(grad_rows: Any, input1: Any, input2: Any) -> Any:
    """The same operator with the gradient in the place of the weight."""
    return aten._trilinear(input1, grad_rows, input2, [1, 3], [2, 3], [1, 2], [0])


@of("_grad.mish_backward")
def mish_backward(grad_output: Any, self: Any) -> Any:
    """By its parts where there are no elements; a kernel elsewhere."""
    if not self.is_meta:
        return NotImplemented
    tanh = aten.tanh(aten.softplus(self))
    sigmoid = aten.sigmoid(self)
    square = aten.mul.Tensor(tanh, tanh)
    rest = aten.fill_.Scalar(aten.empty_like(self, memory_format=_C.preserve_format), 1)
    rest = aten.sub_.Tensor(rest, square)
    steep = aten.mul.Tensor(aten.mul.Tensor(self, sigmoid), rest)
    return aten.mul.Tensor(grad_output, aten.add.Tensor(tanh, steep))
