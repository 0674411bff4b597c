"""What jagged tensors answer: each call gives what it gives for every sequence, or PyTorch's error."""

import pytest

import torchlike as torch
import torchlike.nn.functional as F
from test_nested import LENGTHS, jagged, parts, same, shown
from torchlike import nn
from torchlike.nested._internal.nested_tensor import NestedTensor

NAMES = """
    abs neg exp log log1p sqrt rsqrt sin cos tanh sigmoid erf floor round sign square reciprocal relu isnan isfinite
    nan_to_num digamma special.erfinv special.expit nn.functional.gelu nn.functional.silu nn.functional.leaky_relu
    nn.functional.elu nn.functional.mish nn.functional.softplus nn.functional.hardtanh nn.functional.relu6
    nn.functional.hardswish nn.functional.hardsigmoid nn.functional.softsign nn.functional.tanhshrink
    nn.functional.logsigmoid nn.functional.hardshrink nn.functional.softshrink nn.functional.selu nn.functional.celu
"""
EACH = NAMES.split()


def found(name):
    at = torch
    for word in name.split("."):
        at = getattr(at, word)
    return at


@pytest.mark.parametrize("name", EACH)
def test_functions_of_single_elements(name):
    function = found(name)
    t = jagged(5) / 5
    made = function(t)
    assert made.shape == t.shape
    same(made, [function(p) for p in t.unbind()])


PAIRS = {
    "add": lambda t: t + 1,
    "reversed": lambda t: 3 - t,
    "divided": lambda t: 1 / t,
    "power": lambda t: 2**t + t**2,
    "remainder": lambda t: t % 2 + t // 2,
    "itself": lambda t: t * t,
    "dense": lambda t: t + torch.arange(5.0),
    "dense first": lambda t: torch.arange(5.0) - t,
    "ones": lambda t: t * torch.full((1, 5), 2.0),
    "named": lambda t: torch.add(input=t, other=t, alpha=2),
    "compared": lambda t: (t > 2) & (t != 3),
    "clamped": lambda t: torch.clamp(t, 1, 2),
    "extremes": lambda t: torch.maximum(t, t * 2) - torch.minimum(t, torch.ones(5)),
    "lerp": lambda t: torch.lerp(t, t * 2, 0.5),
    "three": lambda t: torch.addcmul(t, t, t),
    "filled": lambda t: t.masked_fill(t > 2, -1.0),
    "where": lambda t: torch.where(t > 2, t, t * 2),
    "softmax": lambda t: F.softmax(t, -1),
    "log_softmax": lambda t: t.log_softmax(-1),
    "softmin": lambda t: F.softmin(t, -1),
    "linear": lambda t: F.linear(t, torch.arange(20.0).view(4, 5), torch.ones(4)),
    "matmul": lambda t: t @ torch.arange(10.0).view(5, 2),
    "layer_norm": lambda t: F.layer_norm(t, (5,), torch.ones(5) * 2, torch.ones(5)),
    "rms_norm": lambda t: F.rms_norm(t, (5,), torch.ones(5) * 2),
    "sum": lambda t: t.sum(-1),
    "mean": lambda t: t.mean(-1, keepdim=True),
    "max": lambda t: t.max(-1).values,
    "argmax": lambda t: t.argmax(-1),
    "amin": lambda t: t.amin(-1),
    "prod": lambda t: t.prod(-1),
    "any": lambda t: (t > 3).any(-1),
    "one of each": lambda t: t[..., 2],
    "slice": lambda t: t[..., 1:3],
    "narrow": lambda t: t.narrow(-1, 1, 2),
    "diff": lambda t: t.diff(),
    "cat": lambda t: torch.cat([t, t * 2], -1),
    "stack": lambda t: torch.stack([t, t * 2], -1),
    "to": lambda t: t.to(torch.float64),
    "half": lambda t: t.half().float(),
    "one_hot": lambda t: F.one_hot(t.long(), 5),
    "embedding": lambda t: F.embedding(t.long(), torch.arange(15.0).view(5, 3)),
    "like": lambda t: torch.full_like(t, 3) + torch.zeros_like(t) + torch.ones_like(t),
    "unflatten": lambda t: t.unflatten(-1, (5, 1)),
    "unsqueezed": lambda t: t.unsqueeze(-1),
    "squeezed": lambda t: t.unsqueeze(-1).squeeze(-1),
}


@pytest.mark.parametrize("name", PAIRS)
def test_what_is_the_same_for_each_sequence(name):
    t = jagged(5)
    made = PAIRS[name](t)
    assert isinstance(made, NestedTensor)
    assert made.size(1) == t.size(1)
    same(made, [PAIRS[name](p) for p in parts(5)])


@pytest.mark.parametrize("name", ["sum", "mean", "amax", "amin", "prod", "argmax", "argmin"])
@pytest.mark.parametrize("keepdim", [False, True])
def test_reductions_along_sequences(name, keepdim):
    t = jagged(5)
    made = getattr(t, name)(1, keepdim=keepdim)
    each = [getattr(p, name)(0, keepdim=keepdim) for p in parts(5)]
    torch.testing.assert_close(made, torch.stack(each))
    whole, packed = getattr(t, name)(), getattr(torch.cat(parts(5)), name)()
    torch.testing.assert_close(whole, packed)


def test_reductions_with_indices_and_of_the_batch():
    t = jagged(5)
    values, indices = t.max(1)
    for i, p in enumerate(parts(5)):
        assert torch.equal(values[i], p.max(0).values)
        assert torch.equal(indices[i], p.max(0).indices)
    assert torch.equal(t.min(1).values, t.amin(1))
    torch.testing.assert_close(t.sum((0, 1)), torch.cat(parts(5)).sum(0))
    assert t.sum((0, 1), keepdim=True).shape == (1, 1, 5)
    ints = jagged(5, dtype=torch.int64)
    assert torch.equal(ints.amax(1), torch.stack([p.amax(0) for p in parts(5, dtype=torch.int64)]))
    assert torch.equal((t > 2).all(1), torch.stack([(p > 2).all(0) for p in parts(5)]))


def test_views_and_where_the_ragged_dimension_goes():
    t = jagged(2, 3)
    for made, size in (
        (t.transpose(1, 2), "(3, 2, j, 3)"),
        (t.permute(0, 3, 2, 1), "(3, 3, 2, j)"),
        (t.movedim(1, 2), "(3, 2, j, 3)"),
        (t.mT, "(3, j, 3, 2)"),
        (t.flatten(2), "(3, j, 6)"),
        (t.view(3, -1, 6), "(3, j, 6)"),
        (t.view(3, t.size(1), 3, 2), "(3, j, 3, 2)"),
        (t.reshape(3, -1, 6, 1), "(3, j, 6, 1)"),
        (t.unsqueeze(1), "(3, 1, j, 2, 3)"),
        (t.unsqueeze(-1).expand(3, t.size(1), 2, 3, 4), "(3, j, 2, 3, 4)"),
        (t.transpose(1, 2).select(1, 0), "(3, j, 3)"),
        (t.transpose(1, 2).sum(1), "(3, j, 3)"),
        (t.transpose(1, 2).sum(-1), "(3, 2, j)"),
        (t.sum((2, 3)), "(3, j)"),
    ):
        assert shown(made.shape) == size
    same(t.transpose(1, 2), [p.transpose(0, 1) for p in parts(2, 3)])
    same(t.transpose(1, 2).contiguous(), [p.transpose(0, 1) for p in parts(2, 3)])
    assert torch.equal(t.transpose(1, 2).sum(2), t.sum(1))
    first, second = t.chunk(2, 0)
    same(first, parts(2, 3)[:2])
    same(second, parts(2, 3)[2:])
    pieces = t.split([1, 2], -1)
    assert [shown(p.shape) for p in pieces] == ["(3, j, 2, 1)", "(3, j, 2, 2)"]
    assert torch.equal(t[1], parts(2, 3)[1])
    assert torch.equal(t[1, 0], parts(2, 3)[1][0])
    assert [len(p) for p in t] == list(LENGTHS)


def test_writes():
    t = jagged(5)
    assert t.mul_(2) is t
    same(t, [2 * p for p in parts(5)])
    t[1] = torch.zeros(3, 5)
    assert float(t[1].abs().sum()) == 0
    other = jagged(5)
    t.copy_(other)
    same(t, parts(5))
    assert t.fill_(3).values().unique().tolist() == [3]
    assert t.zero_() is t
    at = (torch.tensor([0, 1]), torch.tensor([1, 2]))
    made = t.index_put(at, torch.tensor(9.0))
    assert made.values()[[1, 4]].unique().tolist() == [9]
    assert float(t.values().sum()) == 0
    t.index_put_((torch.tensor([2]),), torch.tensor(4.0))
    assert t[2].unique().tolist() == [4]
    with pytest.raises(RuntimeError, match="expected compatible input and src shapes"):
        t.copy_(torch.nested.nested_tensor([torch.ones(3, 5)] * 3, layout=torch.jagged))


def test_products():
    t, b = jagged(5), torch.arange(30.0).view(3, 5, 2)
    same(t @ b, [p @ m for p, m in zip(parts(5), b, strict=True)])
    same(torch.bmm(t, b), [p @ m for p, m in zip(parts(5), b, strict=True)])
    torch.testing.assert_close(t.mT @ t, torch.stack([p.T @ p for p in parts(5)]))
    w = torch.arange(20.0).view(4, 5)
    same(w @ t.mT, [w @ p.T for p in parts(5)])
    q = jagged(2, 3)
    same(q @ q.mT, [p @ p.mT for p in parts(2, 3)])


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal):
    t = jagged(2, 4, requires_grad=True)
    q = t.transpose(1, 2)
    made = F.scaled_dot_product_attention(q, q * 2, q * 3, is_causal=causal, scale=0.3)
    alone = [p.requires_grad_() for p in parts(2, 4)]
    heads = [p.transpose(0, 1) for p in alone]
    each = [
        F.scaled_dot_product_attention(p, p * 2, p * 3, is_causal=causal, scale=0.3) for p in heads
    ]
    same(made, each)
    assert shown(made.transpose(1, 2).flatten(2).shape) == "(3, j, 8)"
    made.values().sum().backward()
    sum(e.sum() for e in each).backward()
    same(t.grad, [p.grad for p in alone])


REFUSALS = [
    (
        lambda t: t + jagged(5),
        RuntimeError,
        "cannot call binary pointwise function add.Tensor with",
    ),
    (
        lambda t: t + torch.ones(2, 1, 5),
        RuntimeError,
        "cannot call binary pointwise function add.T",
    ),
    (lambda t: t + torch.ones(2, 3, 1, 5), NotImplementedError, "NYI: broadcasting NT with T with"),
    (lambda t: t.cumsum(-1), NotImplementedError, "aten.cumsum.default"),
    (lambda t: t.sort(-1), NotImplementedError, "aten.sort.default"),
    (lambda t: t.var(-1), NotImplementedError, "aten.var.correction"),
    (lambda t: t[torch.tensor([0])], NotImplementedError, "aten.index.Tensor"),
    (lambda t: t.squeeze(), NotImplementedError, "aten.squeeze.default"),
    (lambda t: t.unbind(1), RuntimeError, "only supported for NestedTensor on dim=0"),
    (lambda t: t.sum(0), RuntimeError, "along the batch dimension but not the ragged dimension"),
    (lambda t: t.sum((1, 2)), RuntimeError, "along a ragged and non-batch dimension"),
    (lambda t: t.softmax(0), RuntimeError, "when reducing across the batch dimension"),
    (lambda t: t.log_softmax(1), RuntimeError, "when reducing along the ragged dimension"),
    (
        lambda t: F.linear(t.mT, torch.ones(4, 5)),
        ValueError,
        r"linear_default\(input: jt, weight: t",
    ),
    (lambda t: t @ t, RuntimeError, r"matmul\(\): not supported between inputs of shapes"),
    (lambda t: F.layer_norm(t, (3, 3, 5)), RuntimeError, "over the batch dimension"),
    (lambda t: F.rms_norm(t, (3, 5)), ValueError, "over the ragged dim not supported"),
    (lambda t: t.chunk(2, 1), RuntimeError, r"chunk\(\): not supported for NestedTensor on ragged"),
    (lambda t: t.split(1, 0), RuntimeError, r"split\(\): not supported for NestedTensor on dim=0"),
    (lambda t: t[0:2], RuntimeError, r"slice\(\): not supported for NestedTensor on dim=0"),
    (lambda t: t[5], IndexError, "tuple index out of range"),
    (lambda t: t.transpose(0, 1), ValueError, "Transpose is not supported on the batch dimension"),
    (lambda t: t.permute(1, 0, 2), ValueError, "Permute is not supported on the batch dimension"),
    (lambda t: t.permute(0, 1, 1), ValueError, "duplicate dims are not allowed"),
    (
        lambda t: t.view(-1, 5),
        RuntimeError,
        r"view\(\): cannot view shape \(3, j\d+, 5\) as \[-1, 5\]",
    ),
    (lambda t: t.mT.view(3, -1, 5, 1), RuntimeError, "does not support ragged_idx != 1"),
    (lambda t: t.expand(4, -1, 5), RuntimeError, r"expand\(\): cannot expand shape"),
    (
        lambda t: torch.cat([t, t]),
        RuntimeError,
        r"cat\(\): not supported for NestedTensor on dim=0",
    ),
    (lambda t: torch.stack([t, jagged(5)], -1), RuntimeError, "have the same nested structure"),
    (lambda t: t.new_zeros((2, 3)), RuntimeError, "not supported for NJT with shape"),
    (lambda t: t.tolist(), RuntimeError, "is not supported for tensor subclasses"),
    (lambda t: t.item(), RuntimeError, "a Tensor with 30 elements cannot be converted to Scalar"),
    (lambda t: bool(t), RuntimeError, "Boolean value of Tensor with more than one value"),
    (lambda t: F.scaled_dot_product_attention(t, t, t, torch.ones(1)), ValueError, "Masks are not"),
    (
        lambda t: F.scaled_dot_product_attention(t, torch.ones(3, 2, 5), t),
        ValueError,
        "Expected query, key, and value to be nested tensors",
    ),
]


@pytest.mark.parametrize("number", range(len(REFUSALS)))
def test_what_is_refused(number):
    call, kind, text = REFUSALS[number]
    with pytest.raises(kind, match=text):
        call(jagged(5))


def test_equality_and_losses():
    t = jagged(5)
    assert torch.equal(t, t.clone())
    assert torch.allclose(t, t + 1e-9)
    assert not torch.equal(t, jagged(5))
    assert t.is_same_size(t * 2)
    packed = torch.cat(parts(5))
    torch.testing.assert_close(F.mse_loss(t, t * 2), F.mse_loss(packed, packed * 2))
    assert F.l1_loss(t, t * 2, reduction="none").shape == t.shape
    assert shown(t[..., 0].masked_select(t[..., 0] > 2).shape) == "(3, j)"


def test_the_reduction_of_layer_norm_along_sequences():
    t = jagged(5)
    made = F.layer_norm(t, (t.size(1), 5))
    same(made, [F.layer_norm(p, tuple(p.shape)) for p in parts(5)])
    assert isinstance(nn.LayerNorm(5)(t), NestedTensor)


def test_sequences_are_bags():
    ids = torch.nested.nested_tensor_from_jagged(torch.arange(5), offsets=torch.tensor([0, 4, 5]))
    table = torch.arange(12.0).reshape(6, 2).requires_grad_()
    weights = torch.nested.nested_tensor_from_jagged(torch.arange(5.0), offsets=ids.offsets())
    bags = F.embedding_bag(ids, table, mode="sum", per_sample_weights=weights)
    wanted = [(p[:, None] * table[i]).sum(0) for i, p in zip(ids, weights, strict=True)]
    assert torch.equal(bags, torch.stack(wanted))
    (made,) = torch.autograd.grad(bags.sum(), table)
    assert made[:, 0].tolist() == [0, 1, 2, 3, 4, 0]
    means = torch.nn.EmbeddingBag(6, 2, _weight=table.detach())(ids)
    assert torch.equal(means, torch.stack([table[i].mean(0) for i in ids]))
    holes = torch.nested.nested_tensor_from_jagged(
        torch.arange(5), offsets=torch.tensor([0, 4, 5]), lengths=torch.tensor([2, 1])
    )
    assert F.embedding_bag(holes, table, mode="max").tolist() == [[2, 3], [8, 9]]
    with pytest.raises(ValueError, match="it must have the same shape as the input"):
        F.embedding_bag(ids, table, mode="sum", per_sample_weights=torch.ones(5))


def test_masked_functions_and_dividing_the_batch_say_no():
    t = torch.nested.nested_tensor_from_jagged(torch.arange(5.0), offsets=torch.tensor([0, 4, 5]))
    assert t.chalf().dtype == torch.complex32
    with pytest.raises(RuntimeError, match=r"view\(\): cannot view shape .* as \[1, 2, j"):
        t.unflatten(0, (1, 2))
    kinds = {"amax": "strided, sparse_coo or sparse_csr", "mean": "strided or sparse_csr"}
    for name in ("amax", "mean", "softmax", "cumsum"):
        said = f"masked {name} expects {kinds.get(name, 'strided')} tensor"
        with pytest.raises(ValueError, match=said):
            getattr(torch.masked, name)(t, 1)
    with pytest.raises(ValueError, match="masked logaddexp expects strided tensors"):
        torch.masked.logaddexp(t, t)


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_real_parts_have_the_same_parts(layout):
    parts = [torch.randn(2, 3), torch.randn(4, 3)]
    t = torch.nested.nested_tensor(parts, layout=layout)
    assert t.nelement() == t.numel() == 18
    assert t.real.is_nested
    for got, want in zip(t.real.unbind(), parts, strict=True):
        assert torch.equal(got, want)


def test_what_lies_in_another_order_is_not_squeezed():
    parts = [torch.ones(2, 1, 2), torch.ones(3, 1, 2)]
    t = torch.nested.nested_tensor(parts, layout=torch.jagged)
    assert tuple(t.squeeze(2).unbind()[1].shape) == (3, 2)
    want = r"squeeze_dim\(self: jt, dim: any\): expected self to be a contiguous jagged layout"
    with pytest.raises(ValueError, match=want):
        t.transpose(1, 2).squeeze(1)


def test_complex_sequences_have_no_smallest_element():
    t = torch.nested.nested_tensor([torch.ones(2, dtype=torch.complex64)], layout=torch.jagged)
    with pytest.raises(NotImplementedError, match=r'"min_all" not implemented'):
        t.min()
