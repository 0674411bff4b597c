"""Operators that PyTorch makes of others: what a dispatch mode sees instead of them."""

from __future__ import annotations

from typing import Any

from torchlike._ops import ops

aten: Any = ops.aten
_TABLE: dict[str, Any] = {}


def of(*names: str) -> Any:
    """A decorator: the function is what the operators of these names come down to."""

    def note(function: Any) -> Any:
        for name in names:
            _TABLE[name] = function
        return function

    return note


def run(name: str, values: dict[str, Any]) -> Any:
    """The result of an operator in other operators, or NotImplemented."""
    function = _TABLE.get(name)
    return NotImplemented if function is None else function(**values)


@of("nn.functional.linear")
def linear(input: Any, weight: Any, bias: Any = None) -> Any:
    """`t`, then one product; batches become rows."""
    if input.dim() == 2:
        turned = aten.t(weight)
        return aten.mm(input, turned) if bias is None else aten.addmm(bias, input, turned)
    if input.dim() == 1 or weight.dim() == 1:
        product = aten.matmul(input, aten.t(weight))
        return product if bias is None else aten.add(product, bias)
    sizes = [*input.shape[:-1], weight.shape[0]]
    if bias is None:
        turned = aten.t(weight)
        rows = aten.view(input, [-1, input.shape[-1]])
        return aten._unsafe_view(aten.mm(rows, turned), sizes)
    rows = aten.view(input, [-1, input.shape[-1]])
    return aten.view(aten.addmm(bias, rows, aten.t(weight)), sizes)


@of("nn.functional.dropout", "dropout")
def dropout(input: Any, p: float = 0.5, training: bool = True, **_: Any) -> Any:
    """A mask of draws, scaled."""
    if p == 0 or not training:
        return input
    if p == 1:
        return aten.mul(input, 0.0)
    mask = aten.empty_like(input)
    aten.bernoulli_(mask, 1 - p)
    return aten.mul(input, aten.div_(mask, 1 - p))


@of("nn.functional.layer_norm", "layer_norm")
def layer_norm(
    input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, **_: Any
) -> Any:
    """The normalised tensor of the operator that also gives mean and deviation."""
    return aten.native_layer_norm(input, list(normalized_shape), weight, bias, eps)[0]


@of("nn.functional.group_norm", "group_norm")
def group_norm(
    input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, **_: Any
) -> Any:
    """The normalised tensor of the operator that also gives mean and deviation."""
    n, channels = input.shape[:2]
    rest = input.numel() // (n * channels) if n * channels else 0
    return aten.native_group_norm(input, weight, bias, n, channels, rest, num_groups, eps)[0]


@of("nn.functional.batch_norm")
def batch_norm(
    input: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """The operator that also gives what backward needs; it reserves space first."""
    aten.empty.memory_format([0], dtype=_uint8(), device=input.device)
    return aten.native_batch_norm(
        input, weight, bias, running_mean, running_var, training, momentum, eps
    )[0]


def _uint8() -> Any:
    from torchlike import _C

    return _C.uint8


@of("softmax", "nn.functional.softmax")
def softmax(self: Any = None, dim: int = -1, dtype: Any = None, input: Any = None, **_: Any) -> Any:
    """In another dtype after a conversion."""
    x = input if self is None else self
    if dtype is not None and dtype != x.dtype:
        x = aten._to_copy(x, dtype=dtype)
    return aten._softmax(x, dim, False)


@of("log_softmax", "nn.functional.log_softmax")
def log_softmax(self: Any = None, dim: int = -1, dtype: Any = None, input: Any = None, **_: Any) -> Any:
    """In another dtype after a conversion."""
    x = input if self is None else self
    if dtype is not None and dtype != x.dtype:
        x = aten._to_copy(x, dtype=dtype)
    return aten._log_softmax(x, dim, False)


@of("matmul")
def matmul(self: Any, other: Any) -> Any:
    """The product for the numbers of dimensions at hand."""
    a, b = self.dim(), other.dim()
    if a == 1 and b == 1:
        return aten.dot(self, other)
    if a == 2 and b == 1:
        return aten.mv(self, other)
    if a == 1 and b == 2:
        return aten.squeeze_(aten.mm(aten.unsqueeze(self, 0), other), 0)
    if a == 2 and b == 2:
        return aten.mm(self, other)
    if a == 3 and b == 3 and self.shape[0] == other.shape[0]:
        return _batched(self, other)
    if a >= 3 and b in (1, 2):
        rows = aten.view(self, [-1, self.shape[-1]])
        if b == 1:
            return aten._unsafe_view(aten.mv(rows, other), list(self.shape[:-1]))
        return aten._unsafe_view(aten.mm(rows, other), [*self.shape[:-1], other.shape[-1]])
    return NotImplemented if a < 3 or b < 3 else _batched(self, other)


def _batched(a: Any, b: Any) -> Any:
    from torchlike import broadcast_shapes

    batch = list(broadcast_shapes(a.shape[:-2], b.shape[:-2]))
    n, m, p = a.shape[-2], a.shape[-1], b.shape[-1]
    a = aten.view(aten.expand(a, [*batch, n, m]), [-1, n, m])
    b = aten.view(aten.expand(b, [*batch, m, p]), [-1, m, p])
    return aten._unsafe_view(aten.bmm(a, b), [*batch, n, p])


@of("nn.functional.l1_loss")
def l1_loss(input: Any, target: Any, reduction: str = "mean", **_: Any) -> Any:
    """The mean or sum of absolute differences."""
    return _reduced(aten.abs(aten.sub(input, target)), reduction)


def _reduced(x: Any, reduction: str) -> Any:
    if reduction == "mean":
        return aten.mean(x)
    return aten.sum(x) if reduction == "sum" else x


@of("nn.functional.softsign")
def softsign(input: Any) -> Any:
    """x / (1 + |x|)."""
    return aten.div(input, aten.add(aten.abs(input), 1))


@of("outer")
def outer(self: Any, vec2: Any) -> Any:
    """A column times a row."""
    return aten.mul(aten.view(self, [self.shape[0], 1]), vec2)
