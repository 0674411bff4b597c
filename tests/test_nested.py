"""Jagged nested tensors: sequences of different lengths in one tensor. Texts and shapes are PyTorch 2.13's."""

import copy
import pickle
import re

import pytest

import torchlike as torch
import torchlike.nn.functional as F
from torchlike import nn
from torchlike._dynamo.decorators import _DimRange
from torchlike.nested._internal.nested_tensor import (
    NestedTensor,
    jagged_from_list,
    nested_from_padded,
)

LENGTHS = (2, 3, 1)


def parts(*tail, dtype=torch.float32):
    torch.manual_seed(0)
    return [(torch.rand(n, *tail) * 4 + 0.25).to(dtype) for n in LENGTHS]


def jagged(*tail, dtype=torch.float32, **options):
    return torch.nested.nested_tensor(parts(*tail, dtype=dtype), layout=torch.jagged, **options)


def same(nested, expected):
    """Whether a nested tensor has these parts."""
    found = nested.unbind()
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)


def shown(size):
    """A shape in which ragged sizes have no number."""
    return re.sub(r"j\d+", "j", str(tuple(size)))


# How they are made, and what they say of themselves.


def test_what_a_jagged_tensor_says_of_itself():
    t = jagged(5)
    assert isinstance(t, NestedTensor)
    assert t.is_nested
    assert t.layout is torch.jagged
    assert shown(t.shape) == "(3, j, 5)"
    assert shown(t.stride()) == "(5*j, 5, 1)"
    assert (t.dim(), t.ndim, t.numel(), len(t), t.size(-1), t.nbytes) == (3, 3, 30, 3, 5, 120)
    assert t.values().shape == (6, 5)
    assert t.offsets().tolist() == [0, 2, 5, 6]
    assert t.lengths() is None
    assert t.is_contiguous()
    assert not t.transpose(1, 2).is_contiguous()
    assert (t._get_min_seqlen(), t._get_max_seqlen()) == (1, 3)
    assert re.fullmatch(
        r"NestedTensor\(size=\(3, j\d+, 5\), offsets=tensor\(\[0, 2, 5, 6\]\), contiguous=True\)",
        repr(t),
    )
    assert "requires_grad=True" in repr(t.clone().requires_grad_())
    assert "grad_fn=<MulBackward0" in repr(t.clone().requires_grad_() * 2)
    with pytest.raises(IndexError, match="Dimension out of range"):
        t.size(3)


def test_ragged_sizes_are_no_numbers():
    t, other = jagged(5), jagged(5)
    size = t.size(1)
    assert isinstance(size, torch.SymInt)
    assert not isinstance(size, int)
    assert size == (t * 2).size(1) == t.double().size(1) == t.to("meta").size(1)
    assert size != other.size(1)
    assert (size == 3, size != 3, size >= 2, size > 1, size < 2, bool(size)) == (
        False, True, True, True, False, True,
    )  # fmt: skip
    assert str(size * 2) == str(2 * size) == f"2*{size}"
    assert size * 2 >= size
    assert hash(size) == hash(t.shape[1])
    assert t.shape == (t + 1).shape != other.shape
    for ask in (lambda: size >= 3, lambda: size <= 5, lambda: size >= other.size(1)):
        with pytest.raises(ValueError, match="relation is indeterminate"):
            ask()
    for ask in (lambda: size + 1, lambda: int(size), lambda: -size, lambda: size // 2):
        with pytest.raises(AttributeError, match="'NestedIntNode' object has no attribute"):
            ask()
    with pytest.raises(ValueError, match="unsupported"):
        size * size


REFUSED = [
    (lambda: [torch.ones(2), torch.ones(2, 3)], "must have the same dim"),
    (lambda: [torch.ones(2), torch.ones(2).double()], "must have the same dtype"),
    (lambda: [torch.tensor(1.0)], "a list of zero-dim tensors"),
    (lambda: [], "an empty tensor list"),
    (lambda: [torch.ones(2, 3), torch.ones(3, 4)], "only allows for a single ragged dimension"),
]


@pytest.mark.parametrize(("make", "text"), REFUSED)
def test_what_is_no_jagged_tensor(make, text):
    for function in (torch.nested.nested_tensor, torch.nested.as_nested_tensor):
        with pytest.raises(RuntimeError, match=text):
            function(make(), layout=torch.jagged)


def test_makers():
    t = torch.nested.nested_tensor([[1, 2, 3], [4, 5]], layout=torch.jagged, dtype=torch.float64)
    assert (t.dtype, t.values().tolist()) == (torch.float64, [1, 2, 3, 4, 5])
    whole = torch.arange(12.0).view(2, 3, 2)
    same(torch.nested.as_nested_tensor(whole, layout=torch.jagged), list(whole))
    assert torch.nested.as_nested_tensor(t, layout=torch.jagged) is t
    wide = torch.nested.as_nested_tensor([torch.ones(2, 3), torch.ones(2, 4)], layout=torch.jagged)
    assert shown(wide.shape) == "(2, 2, j)"
    for layout in (torch.strided, torch.jagged):
        with pytest.raises(RuntimeError, match="Expected tensor argument to have dim"):
            torch.nested.as_nested_tensor(torch.ones(2), layout=layout)
        with pytest.raises(TypeError, match="a tensor or a list / tuple of tensors"):
            torch.nested.as_nested_tensor([1, 2], layout=layout)
    with pytest.raises(RuntimeError, match="layout is unsupported for nested tensors"):
        torch.nested.nested_tensor([torch.ones(2)], layout=torch.sparse_coo)
    with pytest.raises(RuntimeError, match="Converting between nested tensor layouts"):
        torch.nested.as_nested_tensor(t, layout=torch.strided)


def test_views_of_values():
    values = torch.arange(6.0)
    t = torch.nested.nested_tensor_from_jagged(values, lengths=torch.tensor([2, 3, 1]))
    assert t.offsets().tolist() == [0, 2, 5, 6]
    values[0] = 9
    assert t[0].tolist() == [9, 1]
    holes = torch.nested.nested_tensor_from_jagged(
        values, torch.tensor([0, 2, 6]), torch.tensor([1, 2])
    )
    assert [p.tolist() for p in holes.unbind()] == [[9], [2, 3]]
    assert (holes.numel(), holes.is_contiguous()) == (3, False)
    assert holes.contiguous().values().tolist() == [9, 2, 3]
    assert [p.tolist() for p in (holes * 2).unbind()] == [[18], [4, 6]]
    with pytest.raises(RuntimeError, match="with holes"):
        holes.to_padded_tensor(0.0)
    with pytest.raises(RuntimeError, match="non-contiguous nested tensors with holes"):
        holes.sum(1)
    other = torch.nested.nested_tensor_from_jagged(
        torch.arange(12.0).view(2, 6), torch.tensor([0, 2, 6]), jagged_dim=2
    )
    assert shown(other.shape) == "(2, 2, j)"
    for arguments, kind, text in (
        ((values,), RuntimeError, "At least one of offsets or lengths is required"),
        ((values, torch.tensor([[0, 6]])), AssertionError, "offsets must be 1D, but got 2D"),
        ((values, torch.tensor([0, 6]), torch.tensor([1, 2])), AssertionError, "batch sizes must"),
        ((values, torch.tensor([0, 6]), None, 0), ValueError, "Expected jagged_dim >=1, but got 0"),
    ):
        with pytest.raises(kind, match=text):
            torch.nested.nested_tensor_from_jagged(*arguments)


def test_narrow_and_masked_select():
    t = torch.arange(12.0).view(3, 4)
    narrow = torch.nested.narrow
    made = narrow(t, 1, torch.tensor([0, 1, 2]), torch.tensor([2, 1, 2]), layout=torch.jagged)
    assert [p.tolist() for p in made.unbind()] == [[0, 1], [5], [10, 11]]
    assert made.lengths().tolist() == [2, 1, 2]
    made = narrow(t, 1, 1, 2, layout=torch.jagged)
    assert [p.tolist() for p in made.unbind()] == [[1, 2], [5, 6], [9, 10]]
    assert [p.tolist() for p in narrow(t, 0, 1, 2).unbind()] == t[1:].tolist()
    for arguments, text in (
        ((t, 0, 1, 2), "jagged layout only supports dim=1"),
        ((t, 1, 1.5, 2), "start must be an integer or a tensor"),
        ((t, 1, torch.tensor([1, 2]), 2), "must be Tensors that broadcast"),
    ):
        with pytest.raises(RuntimeError, match=text):
            narrow(*arguments, layout=torch.jagged)
    mask = torch.tensor([[True, False, True, False], [False] * 4, [True] * 4])
    made = torch.nested.masked_select(t, mask)
    assert [p.tolist() for p in made.unbind()] == [[0, 2], [], [8, 9, 10, 11]]
    with pytest.raises(RuntimeError, match="requires a strided tensor, given"):
        torch.nested.masked_select(t.to_sparse(), mask)


def test_padding_and_back():
    t = jagged(2, 3)
    for nested in (t, t.transpose(1, 2), t.transpose(1, 3)):
        padded = nested.to_padded_tensor(-1.0)
        for row, part in zip(padded, nested.unbind(), strict=True):
            inside = row[tuple(slice(0, s) for s in part.shape)]
            assert torch.equal(inside, part)
            assert int((row == -1).sum()) == row.numel() - part.numel()
        again = nested_from_padded(padded, t.offsets(), nested._ragged_idx, sum_S=6)
        same(again, nested.unbind())
    short = torch.nested.to_padded_tensor(jagged(5), 0.0, output_size=(3, 2, 5))
    assert short.shape == (3, 2, 5)
    assert jagged(5).to_padded_tensor(0.0, output_size=(3, 4, 5)).shape == (3, 4, 5)


# Copies, files.


def test_copies_and_pickles():
    t = jagged(5, requires_grad=True)
    for other in (copy.deepcopy(t), pickle.loads(pickle.dumps(t)), copy.copy(t)):
        assert type(other) is NestedTensor
        assert other.requires_grad
        assert other.is_leaf
        assert torch.equal(other.values(), t.values())
    with pytest.raises(RuntimeError, match="Only Tensors created explicitly by the user"):
        copy.deepcopy(t * 2)


def test_files(tmp_path):
    holes = torch.nested.nested_tensor_from_jagged(
        torch.arange(6.0), torch.tensor([0, 2, 6]), torch.tensor([1, 2])
    )
    torch.save({"t": jagged(5, requires_grad=True), "holes": holes}, tmp_path / "t.pt")
    found = torch.load(tmp_path / "t.pt")
    assert torch.equal(found["t"].values(), jagged(5).values())
    assert found["t"].requires_grad
    assert found["holes"].lengths().tolist() == [1, 2]
    meta = torch.load(tmp_path / "t.pt", map_location="meta")["t"]
    assert meta.is_meta
    assert shown(meta.shape) == "(3, j, 5)"
    torch.materialize(meta)
    assert torch.equal(meta.values(), jagged(5).values())


# Gradients.


def test_gradients_have_sequences():
    t = jagged(5, requires_grad=True)
    (t * t).sum().backward()
    assert isinstance(t.grad, NestedTensor)
    same(t.grad, [2 * p for p in parts(5)])
    (grad,) = torch.autograd.grad(t * 3, t, torch.ones_like(t))
    same(grad, [torch.full_like(p, 3) for p in parts(5)])
    with pytest.raises(
        RuntimeError, match="grad can be implicitly created only for scalar outputs"
    ):
        (t * 2).backward()
    t.grad = None
    seen = []
    hook = t.register_hook(lambda g: seen.append(g) or g * 2)
    y = t * 2
    y.retain_grad()
    y.backward(torch.ones_like(y))
    hook.remove()
    assert [isinstance(g, NestedTensor) for g in (*seen, y.grad)] == [True, True]
    same(t.grad, [torch.full_like(p, 4) for p in parts(5)])
    with pytest.raises(RuntimeError, match="attempting to assign a gradient of size"):
        t.grad = torch.ones(3)
    assert not t.detach().requires_grad


GRADED = {
    "softmax": (lambda t: F.softmax(t, 1), lambda p: F.softmax(p, 0)),
    "sum": (lambda t: t.sum(1), lambda p: p.sum(0, keepdim=True)),
    "mean": (lambda t: t.mean(1), lambda p: p.mean(0, keepdim=True)),
    "max": (lambda t: t.max(1).values, lambda p: p.max(0).values),
    "norm": (lambda t: F.layer_norm(t, (5,)), lambda p: F.layer_norm(p, (5,))),
    "padded": (lambda t: t.to_padded_tensor(0.0), lambda p: p),
    "unbind": (lambda t: torch.cat([p * 2 for p in t.unbind()]), lambda p: p * 2),
    "select": (lambda t: t[..., 1], lambda p: p[..., 1]),
    "dense": (lambda t: t * torch.arange(5.0), lambda p: p * torch.arange(5.0)),
}


@pytest.mark.parametrize("name", GRADED)
def test_gradients_are_those_of_each_sequence(name):
    of_all, of_one = GRADED[name]
    t = jagged(5, requires_grad=True)
    made = of_all(t)
    (made * made).sum().backward()
    for grad, part in zip(t.grad.unbind(), parts(5), strict=True):
        part.requires_grad_()
        alone = of_one(part)
        (alone * alone).sum().backward()
        torch.testing.assert_close(grad, part.grad)


def test_history_goes_through_makers_and_values():
    a, b = torch.ones(2, 5, requires_grad=True), torch.ones(3, 5, requires_grad=True)
    t = torch.nested.as_nested_tensor([a, b], layout=torch.jagged)
    assert (t.requires_grad, t.is_leaf) == (True, False)
    (t.values() * 3).sum().backward()
    assert (a.grad.tolist(), b.grad.tolist()) == ([[3] * 5] * 2, [[3] * 5] * 3)
    values = torch.ones(6, 5, requires_grad=True)
    t = torch.nested.nested_tensor_from_jagged(values, torch.tensor([0, 2, 5, 6]))
    (t * t).sum().backward()
    assert values.grad.tolist() == [[2] * 5] * 6
    made, offsets = jagged_from_list([a, b], None)
    assert offsets.tolist() == made.offsets().tolist() == [0, 2, 5]


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        assert grad.shape == x.shape
        return grad * w, (grad * x).values().sum(0)


def test_functions_of_ones_own():
    t, w = jagged(5, requires_grad=True), torch.arange(5.0, requires_grad=True)
    made = Double.apply(t, w)
    assert made.shape == t.shape
    made.sum().backward()
    same(t.grad, [torch.arange(5.0).expand_as(p) for p in parts(5)])
    torch.testing.assert_close(w.grad, torch.cat(parts(5)).sum(0))


def test_modules_train_on_them():
    model = nn.Sequential(
        nn.LayerNorm(5), nn.Linear(5, 8), nn.GELU(), nn.Dropout(0.0), nn.Linear(8, 2)
    )
    t = jagged(5)
    made = model(t)
    same(made, [model(p) for p in parts(5)])
    made.sum().backward()
    grads = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    sum(model(p).sum() for p in parts(5)).backward()
    for found, p in zip(grads, model.parameters(), strict=True):
        torch.testing.assert_close(found, p.grad)


def test_marks_for_a_compiler_are_kept(tmp_path):
    t = jagged(2)
    assert vars(t)["_dynamo_propagated_dynamic_indices"] == {1}
    assert vars(t.size(1)).keys() == {"node"} and vars(t.size(1).node).keys() == {"t_id", "coeff"}
    length = torch.empty(0, 2)
    length.range = {_DimRange(0, None, 7)}
    torch.save(length, tmp_path / "marked")
    assert torch.load(tmp_path / "marked").range == {_DimRange(0, None, 7)}


@pytest.mark.parametrize("shape", [(), (2,), (1, 1, 2), (3, 1, 1)])
def test_operands_have_no_gradient_from_holes(shape):
    values = torch.arange(1.0, 21.0).view(10, 2)
    offsets, lengths = torch.tensor([0, 4, 7, 10]), torch.tensor([2, 3, 1])
    holes = torch.nested.nested_tensor_from_jagged(values, offsets, lengths=lengths)
    operand = torch.full(shape, 2.0, requires_grad=True)
    made = torch.mul(holes, operand)
    (got,) = torch.autograd.grad(made, operand, torch.ones_like(made))
    parts = [
        p * (operand[min(i, shape[0] - 1)] if len(shape) == 3 else operand)
        for i, p in enumerate(holes.unbind())
    ]
    (want,) = torch.autograd.grad(sum(p.sum() for p in parts), operand)
    assert torch.equal(got, want)
