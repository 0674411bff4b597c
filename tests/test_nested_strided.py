"""Nested tensors of the strided layout, layers that take them, and both layouts without data."""

import copy
import pickle
from pathlib import Path

import pytest

import torchlike as torch
import torchlike.nn.functional as F
from test_nested import jagged, parts, same
from torchlike import nn
from torchlike._subclasses.fake_tensor import FakeTensorMode
from torchlike.nested._strided import rebuilt


def nested(*tail, dtype=torch.float32, **options):
    return torch.nested.nested_tensor(parts(*tail, dtype=dtype), **options)


def of_sizes(*sizes):
    return torch.nested.nested_tensor([torch.ones(s) for s in sizes])


def test_what_it_says_of_itself():
    t = nested(5)
    assert (t.is_nested, t.layout, t.dim(), t.numel(), t.size(0), t.size(-1)) == (
        True, torch.strided, 3, 30, 3, 5,
    )  # fmt: skip
    assert t.values().shape == (30,)
    assert t._nested_tensor_size().tolist() == [[2, 5], [3, 5], [1, 5]]
    assert t._nested_tensor_strides().tolist() == [[5, 1]] * 3
    assert t._nested_tensor_storage_offsets().tolist() == [0, 10, 25]
    for ask, text in (
        (lambda: t.shape, "NestedTensorImpl doesn't support sizes"),
        (lambda: t.stride(), "NestedTensorImpl doesn't support strides"),
        (lambda: t.size(1), "Given dimension 1 is irregular and does not have a size"),
        (lambda: len(t), "NestedTensorImpl doesn't support sizes"),
    ):
        with pytest.raises(RuntimeError, match=text):
            ask()
    text = "nested_tensor([\n  tensor([1., 1.]),\n  tensor([1., 1., 1.])\n])"
    assert repr(torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])) == text
    assert repr(nested(5, requires_grad=True) * 2).endswith("\n], grad_fn=<MulBackward0>)")
    differ = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(3, 4)])
    assert [tuple(p.shape) for p in differ] == [(2, 3), (3, 4)]


CALLS = {
    "add": lambda t: t + t * 2,
    "relu": lambda t: F.relu(t - 2),
    "gelu": lambda t: F.gelu(t),
    "linear": lambda t: F.linear(t, torch.arange(20.0).view(4, 5)),
    "norm": lambda t: F.layer_norm(t, (5,), torch.ones(5) * 2, torch.ones(5)),
    "filled": lambda t: t.masked_fill(t > 2, 0.0),
    "double": lambda t: t.double(),
    "like": lambda t: torch.ones_like(t) * 3,
    "unsqueezed": lambda t: t.unsqueeze(-1).squeeze(-1),
    "select": lambda t: t[..., 1],
    "contiguous": lambda t: t.transpose(-1, -2).contiguous(),
    "softmax": lambda t: F.softmax(t, -1),
    "sum": lambda t: t.sum(-1, keepdim=True),
    "cat": lambda t: torch.cat([t, t], -1),
    "dropout": lambda t: F.dropout(t, 0.5, False),
    "product": lambda t: torch.matmul(t, t.transpose(-1, -2)),
    "mixed": lambda t: t.transpose(-1, -2) * t.transpose(-1, -2),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_is_the_same_for_each_part(name):
    same(CALLS[name](nested(5)), [CALLS[name](p) for p in parts(5)])


@pytest.mark.parametrize("name", CALLS)
def test_gradients(name):
    t = nested(5, requires_grad=True)
    made = CALLS[name](t)
    if not made.requires_grad:
        return
    (made.contiguous().values() ** 2).sum().backward()
    for grad, part in zip(t.grad.unbind(), parts(5), strict=True):
        part.requires_grad_()
        (CALLS[name](part) ** 2).sum().backward()
        torch.testing.assert_close(grad, part.grad)


def test_views_and_pieces():
    t = nested(2, 3)
    same(t.transpose(1, 2), [p.transpose(0, 1) for p in parts(2, 3)])
    same(t.view(3, -1, 6), [p.view(-1, 6) for p in parts(2, 3)])
    same(t.transpose(1, 2).reshape(3, 2, -1, 3), [p.transpose(0, 1) for p in parts(2, 3)])
    same(t.transpose(1, 3).unsqueeze(1), [p.transpose(0, 2).unsqueeze(0) for p in parts(2, 3)])
    for made in (t.chunk(3, -1), t.split([1, 1, 1], -1)):
        for i, piece in enumerate(made):
            same(piece, [p[..., i : i + 1] for p in parts(2, 3)])
    same(t.narrow(0, 1, 2), parts(2, 3)[1:])
    q = t.contiguous()
    made = F.scaled_dot_product_attention(q, q, q)
    same(made, [F.scaled_dot_product_attention(p, p, p) for p in parts(2, 3)])
    padded = t.to_padded_tensor(7.0, (4, 3, 2, 4))
    assert padded.shape == (4, 3, 2, 4)
    assert torch.equal(padded[1, :3, :, :3], parts(2, 3)[1])
    t.values().zero_()
    assert float(t[1].sum()) == 0


REFUSALS = [
    (
        lambda t: t + torch.ones(5),
        "Expected both self and other to be nested, but got a nested self",
    ),
    (lambda t: t + nested(4), "add does not support broadcasting when given a NestedTensor"),
    (lambda t: t.sum(1), "only be reduced across the last dimension for now got dimension 1"),
    (lambda t: t.sum(-1), "NestedTensor always requires keepdim=True for now"),
    (lambda t: t.softmax(0), "Cannot apply softmax across nested dimension 0"),
    (lambda t: t.transpose(0, 1), "Nested tensor dimension 0 cannot be transposed"),
    (lambda t: t.unsqueeze(0), "unsqueezing dimension 0 is not supported"),
    (lambda t: t.squeeze(), "squeeze without the dim argument is not supported"),
    (lambda t: t.unbind(1), "can only be unbound along dimension 0 got dimension 1"),
    (lambda t: t.chunk(2, -1), "trailing dimension divisible by chunks, got: 5 % 2 != 0"),
    (lambda t: t.chunk(2, 1), "currently only supported for the last dimension"),
    (lambda t: t.view(-1, 5), "cannot change or infer the implicit batch dimension"),
    (lambda t: t.reshape(3, 2, 5), r"shape '\[3, 2, 5\]' is invalid for input of size 15"),
    (lambda t: t.narrow(1, 0, 1), "only dim=0 supported for nested tensors, but got: 1"),
    (lambda t: F.linear(t, torch.ones(4, 3)), "last_dim = 5, and weight.size"),
    (lambda t: F.linear(t.transpose(1, 2), torch.ones(4, 3)), "only supports contiguous"),
    (lambda t: t @ torch.ones(5, 2), "Expected both to be nested"),
    (lambda t: t.view([]), r"shape '\[\]' is invalid for a nested tensor"),
    (lambda t: t.reshape(1), "reshape: For now nested reshape cannot change or infer the implicit"),
    (lambda t: t.bmm(t), r"0-th nested matrices in batch cannot be multiplied \(2x5 and 2x5\)"),
    (
        lambda t: t @ t,
        r"self has sizes 5\n 5\n 5\n\[ torch.LongTensor\{3\} \]second last dimension of mat2 has sizes 2\n 3\n 1\n",
    ),
    (
        lambda t: t @ of_sizes([2], [3], [1]),
        "inputs with >= 3 dims are currently supported. 2nd input has rank: 2",
    ),
    (
        lambda t: t @ of_sizes([2, 5, 2], [2, 5, 2], [2, 5, 2]),
        "both inputs must have the same rank",
    ),
    (lambda t: t @ of_sizes([5, 2]), "1st dimension of 2nd input tensor to be: 3 but got: 1"),
    (
        lambda t: of_sizes([2, 1, 5], [3, 1, 5]) @ of_sizes([2, 5, 1], [2, 5, 1]),
        r"batch shapes for self  2\n 3\n\[ torch.LongTensor\{2,1\} \] and batch shapes for mat2  2\n 2",
    ),
    (
        lambda t: F.linear(of_sizes([1, 2], [1, 10]), torch.ones(4, 2)),
        r"trailing dimension, instead last dimension equals:   2\n 10\n\[ torch.LongTensor\{2\} \]",
    ),
    (
        lambda t: F.layer_norm(t, (2, 5), torch.ones(2, 5), torch.ones(2, 5)),
        "normalized_shape extends into irregular dimensions",
    ),
    (
        lambda t: torch.cat([t, of_sizes([2, 5], [2, 5], [1, 5])], -1),
        "matching ragged structures outside of the concatenated dim",
    ),
    (lambda t: t.to_padded_tensor(0.0, (3, 2, 5)), "Truncation is not supported"),
    (lambda t: t.copy_(nested(4)), "copy_ only supports tensors that are the same size"),
    (lambda t: torch.cat([t, torch.ones(5)]), "expected each tensor in given list to be nested"),
    (lambda t: torch.nested.nested_tensor([t]), "do not accept nested tensors as input"),
]


@pytest.mark.parametrize("number", range(len(REFUSALS)))
def test_what_is_refused(number):
    call, text = REFUSALS[number]
    with pytest.raises(RuntimeError, match=text):
        call(nested(5))


def test_what_there_is_no_rule_for():
    t = nested(5)
    for call, name in (
        (lambda: t.permute(0, 2, 1), "permute"),
        (lambda: t.cumsum(-1), "cumsum"),
        (lambda: t[0:2], "slice.Tensor"),
        (lambda: t.mean(), "mean"),
    ):
        with pytest.raises(
            NotImplementedError, match=f"Could not run 'aten::{name}' with arguments"
        ):
            call()
    with pytest.raises(IndexError, match="index 5 is out of bounds for dimension 0 with size 3"):
        t[5]
    with pytest.raises(TypeError, match="Only lists"):
        torch.nested.nested_tensor(torch.ones(2, 3))


def test_copies_and_files(tmp_path):
    t = nested(5)
    for other in (copy.deepcopy(t), pickle.loads(pickle.dumps(t))):
        same(other, parts(5))
    torch.save([t, t.transpose(1, 2)], tmp_path / "t.pt")
    for where in ("cpu", "meta"):
        whole, turned = torch.load(tmp_path / "t.pt", map_location=where)
        torch.materialize([whole, turned])
        same(whole, parts(5))
        same(turned, [p.T for p in parts(5)])
    path = Path(__file__).parent / "data" / "more" / "nested_strided.pt"
    if path.exists():
        same(torch.load(path) * 2, [p * 2 for p in torch.load(path).unbind()])
    sizes = torch.tensor([[2, 5]])
    with pytest.raises(RuntimeError, match="reaches outside its buffer"):
        rebuilt(torch.ones(4), sizes, torch.tensor([[5, 1]]), torch.tensor([0]))


# Layers.


def test_attention_takes_nested_tensors():
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    given = [torch.randn(n, 8) for n in (2, 3)]
    t = torch.nested.nested_tensor(given)
    with torch.no_grad():
        made, weights = layer(t, t, t)
        each = [layer(*[p.unsqueeze(0)] * 3) for p in given]
    same(made, [m[0] for m, _ in each])
    assert weights.shape == (2, 3, 3)
    torch.testing.assert_close(weights[0, :2, :2], each[0][1][0])
    assert float(weights[0, 2:].abs().sum()) == 0
    for call, why in (
        (lambda: layer(t, t, t), "requires_grad"),
        (lambda: layer(t, t, t * 1), "non-self attention was used"),
        (lambda: layer.train()(t, t, t), "training is enabled"),
    ):
        with pytest.raises(AssertionError, match=f"outside of its fast path.*{why}"):
            call()


@pytest.mark.parametrize("norm_first", [False, True])
def test_encoders_leave_padding_out(norm_first):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=norm_first)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=not norm_first).eval()
    x = torch.randn(3, 4, 8)
    hidden = torch.tensor([[0, 0, 0, 1], [0, 0, 1, 1], [0, 0, 0, 0]]).bool()
    whole = encoder(x, src_key_padding_mask=hidden)
    with torch.no_grad():
        made = encoder(x, src_key_padding_mask=hidden)
    torch.testing.assert_close(made[~hidden], whole[~hidden])
    # PyTorch's leave zeros where nothing was computed.
    assert (float(made[hidden].abs().sum()) == 0) == (not norm_first)
    t = torch.nested.nested_tensor([x[0, :3], x[1, :2]])
    with torch.no_grad():
        same(encoder(t), [made[0, :3], made[1, :2]])


def test_a_mask_of_one_row_counts_for_all_queries():
    torch.manual_seed(0)
    q = torch.randn(3, 2, 4, 4)
    hidden = torch.tensor([[0, 0, 0, 1], [0, 0, 1, 1], [0, 0, 0, 0]]).bool()
    mask = torch.zeros(3, 1, 1, 4).masked_fill(hidden.view(3, 1, 1, 4), float("-inf"))
    mask = mask.expand(3, 2, 1, 4).contiguous()
    made = F.scaled_dot_product_attention(q, q, q, mask)
    torch.testing.assert_close(made, torch.softmax(q @ q.mT / 2 + mask, -1) @ q)


# Without data.


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.project = nn.Embedding(50, 16), nn.Linear(16, 48)
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 4)

    def forward(self, tokens):
        x = self.norm(self.embedding(tokens))
        q, k, v = (p.unflatten(-1, (4, 4)).transpose(1, 2) for p in self.project(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.head(x + y.transpose(1, 2).flatten(2)).mean(1)


def test_models_are_planned_on_jagged_input():
    tokens = torch.nested.nested_tensor(
        [torch.arange(3), torch.arange(7), torch.arange(2)], layout=torch.jagged
    )
    plan = torch.plan(Model(), (tokens,), step="train", optimizer="adamw")
    short = torch.plan(Model(), (tokens,), step="forward")
    assert plan.flops > short.flops > 0
    dense = torch.plan(Model(), (torch.zeros(3, 7, dtype=torch.int64),), step="forward")
    assert short.flops < dense.flops


def test_both_layouts_on_meta_and_fake():
    model = Model().to("meta")
    tokens = torch.nested.nested_tensor([torch.arange(3), torch.arange(2)], layout=torch.jagged)
    out = model(tokens.to("meta"))
    assert (out.is_meta, out.shape) == (True, (2, 4))
    with torch.device("meta"):
        t = torch.nested.nested_tensor([torch.ones(2, 5), torch.ones(3, 5)], layout=torch.jagged)
    assert [p.shape for p in t.unbind()] == [(2, 5), (3, 5)]
    assert t.to_padded_tensor(0.0).shape == (2, 3, 5)
    mode = FakeTensorMode()
    for real in (jagged(5), nested(5)):
        fake = mode.from_tensor(real)
        with mode:
            made = (fake * 2).to_padded_tensor(0.0)
        assert made.shape == (3, 3, 5)
        assert type(fake) is type(real)


def test_its_class_has_the_name_of_all_tensors():
    t = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    assert (type(t).__module__, type(t).__qualname__, vars(t)) == ("torchlike", "Tensor", {})
    t.note = 1
    assert vars(t) == {"note": 1} and isinstance(t, torch.Tensor)
    with pytest.raises(AttributeError, match="'Tensor' object has no attribute 'offsets'"):
        t.offsets()


def test_memory_formats():
    plain = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)])
    turned = plain.transpose(1, 2)
    for function in (torch.empty_like, torch.zeros_like, torch.clone):
        assert not function(turned).is_contiguous()
        made = function(turned, memory_format=torch.contiguous_format)
        assert made.is_contiguous() and made.is_same_size(turned)
        with pytest.raises(RuntimeError, match="ChannelsLast"):
            function(plain, memory_format=torch.channels_last)
    with pytest.raises(RuntimeError, match="preserve memory format is unsupported"):
        turned.contiguous(memory_format=torch.preserve_format)


def test_shares_of_nothing():
    nothing = torch.nested.nested_tensor([])
    assert torch.softmax(nothing, 1).size(0) == 0
