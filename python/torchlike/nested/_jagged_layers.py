"""What layers call with jagged tensors: products, norms, embeddings, dropout and attention."""

from __future__ import annotations

from typing import Any

import torchlike as torch
import torchlike.nn.functional as F
from torchlike import _C, Tensor
from torchlike._symbolic import SymInt
from torchlike.nested import _padded
from torchlike.nested._calls import answers, same_sequences
from torchlike.nested._internal.nested_tensor import NestedTensor
from torchlike.nested._jagged_sums import to_padded


@answers("linear", of="linear_default(input: jt, weight: t, bias: t?)")
def _linear(input: NestedTensor, weight: Tensor, bias: Any = None) -> NestedTensor:
    return input._like(F.linear(input._values, weight, bias))


def _bilinear(a: Any, b: Any) -> Tensor:
    """A product with a batch of matrices, by padded sequences."""
    t = a if isinstance(a, NestedTensor) else b
    padded = to_padded(t, 0.0)
    made = torch.matmul(padded, b) if t is a else torch.matmul(a, padded)
    total = t._values.shape[t._ragged_idx - 1]
    values = _padded.packed(made, t._offsets, t._ragged_idx, total)
    return t._like(values)


@answers("matmul")
def _matmul(input: Any, other: Any) -> Any:
    left, right = isinstance(input, NestedTensor), isinstance(other, NestedTensor)
    if left and not right and input._ragged_idx < input.dim() - 1:
        if 3 <= input.dim() == other.dim():
            return _bilinear(input, other)
        if other.dim() == 2 < input.dim():
            return input._like(torch.matmul(input._values, other))
    if right and not left and other._ragged_idx >= 2:
        if 3 <= other.dim() == input.dim():
            return _bilinear(input, other)
        if input.dim() == 2 < other.dim():
            return other._like(torch.matmul(input, other._values))
    if left and right:
        if input.dim() > 3 and other.dim() > 3 and same_sequences(input, other._size):
            return input._like(torch.matmul(input._values, other._values))
        meet = input.dim() == other.dim() == 3 and (input._ragged_idx, other._ragged_idx) == (2, 1)
        if meet and input._size[2] == other._size[1]:
            pairs = zip(input.unbind(), other.unbind(), strict=True)
            return torch.stack([torch.matmul(a, b) for a, b in pairs])
    first = input._size if left else input.shape
    raise RuntimeError(
        f"matmul(): not supported between inputs of shapes {first} and {other.shape}"
    )


@answers("__rmatmul__")
def _rmatmul(input: Any, other: Any) -> Any:
    return _matmul(other, input)


@answers("bmm")
def _bmm(input: Any, mat2: Any) -> Any:
    for t, name in ((input, "input"), (mat2, "mat2")):
        if t.dim() != 3:
            raise ValueError(f"bmm(): {name} must be 3D")
    return _matmul(input, mat2)


def _norm_padded(t: NestedTensor, eps: float) -> NestedTensor:
    """Each sequence normalised as a whole."""
    padded = to_padded(t._like(t._values.flatten(1)), 0.0)
    mask = to_padded(t._like(t._values.new_ones((t._values.shape[0], 1))), 0.0)
    count = t._offsets.diff().view(-1, 1, 1) * padded.shape[2]
    centred = (padded - padded.sum((1, 2), keepdim=True) / count) * mask
    made = centred / torch.sqrt(centred.square().sum((1, 2), keepdim=True) / count + eps)
    values = _padded.packed(made, t._offsets, 1, t._values.shape[0])
    return t._like(values.reshape(t._values.shape))


@answers("layer_norm")
def _layer_norm(
    input: NestedTensor,
    normalized_shape: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> NestedTensor:
    if input.dim() <= 2:
        raise RuntimeError(
            "layer_norm(): not supported for NestedTensor objects with 2 or fewer dimensions"
        )
    if len(normalized_shape) >= input.dim():
        raise RuntimeError(
            "layer_norm(): not supported when normalizing over the batch dimension for NestedTensor"
        )
    if not any(isinstance(s, SymInt) for s in normalized_shape):
        made = F.layer_norm(input._values, tuple(normalized_shape), weight, bias, eps)
        return input._like(made)
    if input._lengths is not None:
        raise RuntimeError(
            "layer_norm(): not supported where lengths is not None if operating on the ragged dimension "
            "for NestedTensor"
        )
    return _norm_padded(input, eps)


@answers("rms_norm")
def _rms_norm(
    input: NestedTensor, normalized_shape: Any, weight: Any = None, eps: Any = None
) -> NestedTensor:
    if len(normalized_shape) > input.dim() - input._ragged_idx - 1:
        raise ValueError(
            "rms_norm(): Normalization over the ragged dim not supported for nested tensors"
        )
    return input._like(F.rms_norm(input._values, tuple(normalized_shape), weight, eps))


@answers("embedding")
def _embedding(*args: Any, **kwargs: Any) -> NestedTensor:
    first, second = (*args, *kwargs.values())[:2]
    # The function takes the indices first, the operator the weights.
    if isinstance(first, NestedTensor):
        return first._like(F.embedding(first._values, second, *args[2:], **kwargs))
    return second._like(torch.embedding(first, second._values, *args[2:], **kwargs))


@answers("embedding_bag")
def _embedding_bag(
    input: Any, weight: Any, offsets: Any = None, *args: Any, **kwargs: Any
) -> Tensor:
    """Each sequence is a bag; `input` and the weights of its elements are taken by their values."""
    names = "max_norm norm_type scale_grad_by_freq mode sparse per_sample_weights include_last_offset padding_idx"
    given = {**dict(zip(names.split(), args, strict=False)), **kwargs}
    each = given.pop("per_sample_weights", None)
    if each is not None and input.shape != each.shape:
        raise ValueError(
            f"embedding_bag: If per_sample_weights ({each.shape}) is not None, "
            f"then it must have the same shape as the input ({input.shape})"
        )
    if not isinstance(input, NestedTensor):
        raise NotImplementedError("aten.embedding_bag.default")
    if weight.dim() != 2:
        raise ValueError(
            f"weight has to be a 2D Tensor, but got Tensor of dimension {weight.dim()}"
        )
    if input.dim() != 2:
        raise ValueError(
            f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.dim()}"
        )
    input = input.contiguous()
    given["include_last_offset"] = True
    if each is not None:
        given["per_sample_weights"] = each.contiguous().values()
    return F.embedding_bag(input.values(), weight, input.offsets(), **given)


@answers("one_hot")
def _one_hot(input: NestedTensor, num_classes: int = -1) -> NestedTensor:
    return input._like(F.one_hot(input._values, num_classes))


@answers("dropout", "dropout_")
def _dropout(
    input: NestedTensor,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    train: bool | None = None,
) -> NestedTensor:
    values = F.dropout(input._values, p, training if train is None else train, inplace)
    return input if inplace else input._like(values)


@answers("native_dropout")
def _native_dropout(input: NestedTensor, p: float, train: bool | None) -> Any:
    return tuple(input._like(v) for v in torch.native_dropout(input._values, p, train))


@answers(
    "conv1d",
    "conv2d",
    "conv3d",
    of=(
        "convolution_default(input: jt, weight: t, bias: t?, stride: any, padding: any, dilation: any, "
        "transposed: any, output_padding: any, groups: any)"
    ),
)
def _convolution(input: NestedTensor, weight: Tensor, *args: Any, **kwargs: Any) -> NestedTensor:
    by_dims = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}
    return input._like(by_dims[weight.dim()](input._values, weight, *args, **kwargs))


def _lists(items: Any) -> str:
    *most, last = map(str, items)
    return f"{', '.join(most)}, and {last}"


def _check_attention(given: tuple[Any, Any, Any], mask: Any) -> None:
    """Checks what goes into attention, in PyTorch's words."""
    whole = "Expected query, key, and value to"
    names = ("query", "key", "value")

    def listed(what: str, values: Any) -> str:
        query, key, value = (f"{n}.{what}: {v}" for n, v in zip(names, values, strict=True))
        return f"but got {query}, {key}, and {value} instead."

    if not all(isinstance(t, NestedTensor) for t in given):
        raise ValueError(
            f"{whole} be nested tensors, {listed('is_nested', [t.is_nested for t in given])}"
        )
    if len({t.dtype for t in given}) > 1:
        raise ValueError(
            f"{whole} have the same dtype, {listed('dtype', [t.dtype for t in given])}"
        )
    if len({t.device for t in given}) > 1:
        said = listed("device", [t.device for t in given])
        raise ValueError(f"{whole} have the same device type, {said}")
    if any(t.dim() < 3 for t in given):
        query, key, value = (f"{n}.dim: {t.dim()}" for n, t in zip(names, given, strict=True))
        raise ValueError(
            f"{whole} all be at least 3 dimensional, but got {query}, {key} and {value} instead."
        )
    ragged = [t._ragged_idx for t in given]
    if len(set(ragged)) > 1:
        raise ValueError(
            f"{whole} all be ragged on the same dimension, but got ragged dims {_lists(ragged)}, respectively."
        )
    if mask is not None:
        raise ValueError("Masks are not yet supported!")


@answers("scaled_dot_product_attention")
def _attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> NestedTensor:
    query, key, value = _autocast(query), _autocast(key), _autocast(value)
    given = (query, key, value)
    _check_attention(given, attn_mask)
    options: dict[str, Any] = {
        "dropout_p": dropout_p,
        "is_causal": is_causal,
        "scale": scale,
        "enable_gqa": enable_gqa,
    }
    if query.dim() > 3 and query._ragged_idx == 1:
        # The second dimension of the batch is ragged, and the sequences are not.
        made = F.scaled_dot_product_attention(*(t._values for t in given), **options)
        return query._like(made)
    at = query._ragged_idx - 1
    parts = zip(*(t.unbind() for t in given), strict=True)
    outs = [F.scaled_dot_product_attention(q, k, v, **options) for q, k, v in parts]
    # PyTorch's values lie sequence by sequence, heads within.
    values = torch.cat([o.transpose(0, at) for o in outs]).transpose(0, at)
    return _over(query, values)


def _over(t: NestedTensor, values: Tensor) -> NestedTensor:
    """Values without holes for the sequences of a tensor."""
    if t._lengths is None and values.shape[t._ragged_idx - 1] == t._values.shape[t._ragged_idx - 1]:
        return t._like(values)
    offsets = torch.nn.functional.pad(torch.tensor(t._known_lengths()).cumsum(0), (1, 0))
    made = NestedTensor(
        values,
        offsets.to(values.device),
        _ragged_idx=t._ragged_idx,
        _metadata_cache=t._metadata_cache,
    )
    return made


def _autocast(t: Any) -> Any:
    """The tensor in the type of mixed precision, if that is on for its device."""
    kind = t.device.type
    if kind == "meta" or _C._is_fake(t) or not torch.is_autocast_enabled(kind):
        return t
    dtype = torch.get_autocast_dtype(kind)
    if not t.dtype.is_floating_point or t.dtype in (dtype, torch.float64):
        return t
    return t.to(dtype)
