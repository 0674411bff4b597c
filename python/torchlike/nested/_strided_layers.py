"""What layers call with nested tensors of the strided layout: products, norms, sums, embeddings and attention."""

from __future__ import annotations

from typing import Any

import torchlike as torch
import torchlike.nn.functional as F
from torchlike import Tensor
from torchlike.nested._internal.nested_tensor import wrapped
from torchlike.nested._strided import StridedNestedTensor, dense_parts, from_list
from torchlike.nested._strided_calls import _both, _is, _parts, answers


def _printed(rows: list[tuple[int, ...]]) -> str:
    """A matrix of sizes, or one column of them, as PyTorch's core prints a tensor."""
    width = max((len(str(s)) for row in rows for s in row), default=0) + 1
    lines = ["".join(f"{s:>{width}}" for s in row) for row in rows]
    return "\n".join([*lines, "[ torch.LongTensor{"])


def _column(sizes: list[int]) -> str:
    return f"{_printed([(s,) for s in sizes])}{len(sizes)}}} ]"


def _matrix(rows: list[tuple[int, ...]]) -> str:
    return f"{_printed(rows)}{len(rows)},{len(rows[0])}}} ]"


@answers("linear")
def _linear(input: StridedNestedTensor, weight: Tensor, bias: Any = None) -> StridedNestedTensor:
    if input.dim() != 3 or weight.dim() != 2:
        raise RuntimeError(
            f"Linear requires nested_tensor.dim == 3 and dense_matrix.dim == 2. Nested tensor dim: {input.dim()}. "
            f"Dense tensor dim: {weight.dim()}"
        )
    if not input.is_contiguous():
        raise RuntimeError("for now linear only supports contiguous nested tensor")
    lasts = [p.size[-1] for p in input._parts]
    if len(set(lasts)) > 1:
        raise RuntimeError(
            "Expected all tensors in nested tensor to have the same trailing dimension, instead last dimension equals: "
            f"{_column(lasts)}"
        )
    last = input.size(-1)
    if last != weight.shape[1]:
        raise RuntimeError(
            "Shape mismatch for NestedTensor Linear: Expected input's (a nested tensor) 'last_dim' to equal "
            f"'weight.size(1), but got: last_dim = {last}, and weight.size(1) = {weight.shape[1]}"
        )
    made = F.linear(input._buffer.view(-1, last), weight, bias)
    parts = dense_parts([(*p.size[:-1], weight.shape[0]) for p in input._parts])
    return StridedNestedTensor(made.reshape(-1), parts, input.dim())


def _check_products(input: StridedNestedTensor, other: StridedNestedTensor) -> None:
    """Refuses what is no batch of pairs of matrices, or of batches of them."""
    for which, t in (("1st", input), ("2nd", other)):
        if t.dim() < 3:
            raise RuntimeError(
                "matmul: For nested tensors, only inputs with >= 3 dims are currently supported. "
                f"{which} input has rank: {t.dim()}"
            )
    if input.dim() != other.dim():
        raise RuntimeError("matmul: both inputs must have the same rank")
    first, second = ([p.size for p in t._parts] for t in (input, other))
    if len(first) != len(second):
        raise RuntimeError(
            f"matmul: Expected size for the 1st dimension of 2nd input tensor to be: {len(first)} but got: "
            f"{len(second)}."
        )
    if [s[:-2] for s in first] != [s[:-2] for s in second]:
        raise RuntimeError(
            "matmul: For nested tensors, batch dimensions must have the same sizes, no broadcasting is currently "
            f"performed. Got batch shapes for self {_matrix([s[:-2] for s in first])} and batch shapes for mat2 "
            f"{_matrix([s[:-2] for s in second])}"
        )
    lasts, befores = [s[-1] for s in first], [s[-2] for s in second]
    if lasts != befores:
        raise RuntimeError(
            "matmul: Nested tensors cannot be matrix multiplied, last dimension of self has sizes"
            f"{_column(lasts)}second last dimension of mat2 has sizes{_column(befores)}"
        )


@answers("matmul")
def _matmul(input: Any, other: Any) -> StridedNestedTensor:
    if _is(input) and not _is(other) and input.dim() == 4 and other.dim() == 2:
        return _parts(input, lambda p: torch.matmul(p, other))
    _both(input, other, "both")
    _check_products(input, other)
    pairs = zip(input.unbind(), other.unbind(), strict=True)
    return from_list([torch.matmul(a, b) for a, b in pairs])


@answers("__rmatmul__")
def _rmatmul(input: Any, other: Any) -> StridedNestedTensor:
    return _matmul(other, input)


@answers("bmm")
def _bmm(input: Any, mat2: Any) -> StridedNestedTensor:
    for name, t in (("batch1", input), ("batch2", mat2)):
        if t.dim() != 3:
            raise RuntimeError(f"{name} must be a 3D tensor")
    first, second = (t.unbind() for t in (input, mat2))
    if len(first) != len(second):
        raise RuntimeError(
            f"Expected size for the 1st dimension of batch2 tensor to be: {len(first)} but got: {len(second)}."
        )
    for i, (a, b) in enumerate(zip(first, second, strict=True)):
        if a.shape[1] != b.shape[0]:
            raise RuntimeError(
                f"{i}-th nested matrices in batch cannot be multiplied ({a.shape[0]}x{a.shape[1]} and "
                f"{b.shape[0]}x{b.shape[1]})"
            )
    return from_list([torch.mm(a, b) for a, b in zip(first, second, strict=True)])


@answers("layer_norm")
def _layer_norm(
    input: StridedNestedTensor,
    normalized_shape: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> StridedNestedTensor:
    if weight is None or bias is None:
        raise ValueError("NestedTensor layer_norm requires weight and bias")
    shape = tuple(normalized_shape)
    if len({p.size[-len(shape) :] for p in input._parts}) > 1:
        raise RuntimeError(
            "normalized_shape extends into irregular dimensions for the nested tensor"
        )
    for p in input._parts:
        for d, size in enumerate(shape):
            if p.size[len(p.size) - len(shape) + d] != size:
                raise RuntimeError(
                    f"The shape at dimension {d}of normalized_shape doesn't match the input"
                )
    if not input.is_contiguous():
        return _parts(input, lambda p: F.layer_norm(p, shape, weight, bias, eps))
    made = F.layer_norm(input._buffer.view(-1, *shape), shape, weight, bias, eps)
    return input._like(made.reshape(-1))


@answers("softmax", "_softmax")
def _softmax(
    input: StridedNestedTensor, dim: Any = None, _stacklevel: int = 3, dtype: Any = None, **_: Any
) -> StridedNestedTensor:
    if isinstance(dim, list | tuple):
        kind = type(dim).__name__
        raise TypeError(f"softmax(): argument 'dim' (position 1) must be int, not {kind}")
    if not input._parts:
        return input._like(input._buffer.clone())
    at = wrapped(input.dim(), 0 if dim is None else dim)
    if at == 0:
        raise RuntimeError("Cannot apply softmax across nested dimension 0")
    options = {} if dtype is None else {"dtype": dtype}
    return _parts(input, lambda p: torch.softmax(p, at - 1, **options))


@answers("softmin")
def _softmin(
    input: StridedNestedTensor, dim: Any = None, _stacklevel: int = 3, dtype: Any = None
) -> StridedNestedTensor:
    return _softmax(-input, dim, _stacklevel, dtype)


@answers("sum")
def _sum(
    input: StridedNestedTensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> StridedNestedTensor:
    if dim is None:
        raise input._refused("sum", (input,), {})
    dims = list(dim) if isinstance(dim, list | tuple) else [dim]
    if len(dims) != 1:
        raise RuntimeError("NestedTensor only allows reduction of a single dimension for now.")
    at = wrapped(input.dim(), dims[0])
    if at != input.dim() - 1:
        raise RuntimeError(
            f"NestedTensor can only be reduced across the last dimension for now got dimension {dims[0]} instead."
        )
    if not keepdim:
        raise RuntimeError("NestedTensor always requires keepdim=True for now.")
    return _parts(input, lambda p: p.sum(-1, keepdim=True, dtype=dtype))


@answers("all")
def _all(input: StridedNestedTensor, dim: Any = None, keepdim: bool = False) -> StridedNestedTensor:
    if dim is None:
        raise input._refused("all", (input,), {})
    at = wrapped(input.dim(), dim)
    if at == 0:
        raise RuntimeError("Cannot apply all across nested dimension 0")
    return _parts(input, lambda p: p.all(at - 1, keepdim=keepdim))


@answers("where")
def _where(condition: Any, input: Any = None, other: Any = None) -> StridedNestedTensor:
    if not _is(condition):
        raise RuntimeError("condition must be nested")
    if not _is(other):
        raise RuntimeError("other must be nested")
    if _is(input):
        raise RuntimeError("self must not be nested")
    pairs = zip(condition.unbind(), other.unbind(), strict=True)
    return from_list([torch.where(c, input, o) for c, o in pairs])


@answers("embedding")
def _embedding(*args: Any, **kwargs: Any) -> StridedNestedTensor:
    weight_first = _is(args[1])
    indices, weight = (args[1], args[0]) if weight_first else (args[0], args[1])
    if indices.dim() >= 3:
        raise RuntimeError(
            "Expected indices.dim() < 3 to be true, but got false.  (Could this error message be improved?  If so, "
            "please report an enhancement request to PyTorch.)"
        )
    if not indices.is_contiguous():
        raise RuntimeError(
            "Expected nested_tensor_impl_is_contiguous(nt_indices) to be true, but got false.  (Could this error "
            "message be improved?  If so, please report an enhancement request to PyTorch.)"
        )
    function = torch.embedding if weight_first else F.embedding
    given = (weight, indices._buffer) if weight_first else (indices._buffer, weight)
    made = function(*given, *args[2:], **kwargs)
    parts = dense_parts([(*p.size, weight.shape[1]) for p in indices._parts])
    return StridedNestedTensor(made.reshape(-1), parts, indices.dim() + 1)


@answers("dropout", "dropout_")
def _dropout(
    input: StridedNestedTensor,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    train: bool | None = None,
) -> StridedNestedTensor:
    made = F.dropout(input._buffer, p, training if train is None else train, inplace)
    return input if inplace else input._like(made)


@answers("native_dropout")
def _native_dropout(input: StridedNestedTensor, p: float, train: bool | None) -> Any:
    return tuple(input._like(v) for v in torch.native_dropout(input._buffer, p, train))


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
) -> StridedNestedTensor:
    start = "scaled_dot_product_attention: Nested tensors for query / key are not supported when"
    if attn_mask is not None:
        raise RuntimeError(f"S{start[1:]} an explicit attn_mask is set")
    if any(_is(t) and not t.is_contiguous() for t in (query, key, value)):
        raise RuntimeError(
            "scaled_dot_product_attention: If inputs are nested tensors they must be contiguous"
        )
    if is_causal:
        raise RuntimeError(f"_{start} is_causal=True")
    parts = zip(*(t.unbind() for t in (query, key, value)), strict=True)
    options: dict[str, Any] = {"dropout_p": dropout_p, "scale": scale, "enable_gqa": enable_gqa}
    return from_list([F.scaled_dot_product_attention(q, k, v, **options) for q, k, v in parts])
