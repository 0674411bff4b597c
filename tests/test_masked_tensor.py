"""Tensors that keep a mask, by what PyTorch 2.13 gives."""

import warnings

import pytest

import torchlike as tl
from torchlike.masked import (
    MaskedTensor,
    as_masked_tensor,
    is_masked_tensor,
    masked_tensor,
)

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of MaskedTensors")

DATA = tl.tensor([[1.0, 2, 3], [4, 5, 6]])
MASK = tl.tensor([[True, False, True], [False, False, True]])


def made() -> MaskedTensor:
    return masked_tensor(DATA, MASK)


def check(t: MaskedTensor, filled: list, nothing: float = -1) -> None:
    assert is_masked_tensor(t)
    assert tl.allclose(t.to_tensor(nothing), tl.tensor(filled).to(t.dtype), atol=1e-4)


def test_made_and_shown() -> None:
    t = made()
    assert type(t) is MaskedTensor and t.shape == (2, 3) and t.stride() == (3, 1)
    assert tl.equal(t.get_data(), DATA) and tl.equal(t.get_mask(), MASK)
    dashes = "      --"
    assert repr(t) == (
        f"MaskedTensor(\n  [\n    [  1.0000, {dashes},   3.0000],\n    [{dashes}, {dashes},   6.0000]\n  ]\n)"
    )
    assert repr(t[0, 1]) == "MaskedTensor(--, False)"
    assert repr(t.sum()) == "MaskedTensor( 10.0000, True)"
    assert repr(masked_tensor(tl.arange(3), tl.tensor([True, False, True]))) == (
        f"MaskedTensor(\n  [0, {dashes}, 2]\n)"
    )
    assert not t.is_sparse_coo() and not t.is_sparse_csr()


@pytest.mark.parametrize(
    ("args", "kind", "text"),
    [
        ((DATA, DATA), TypeError, "mask must have dtype bool"),
        ((DATA, MASK[0]), ValueError, "data.dim\\(\\) must equal mask.dim\\(\\)"),
        ((DATA, MASK[:, :1]), ValueError, "data.size\\(\\) must equal mask.size\\(\\)"),
        (([1.0], MASK), TypeError, "data must be a Tensor"),
        ((DATA, [True]), TypeError, "mask must be a Tensor"),
        ((DATA.to_sparse(), MASK), TypeError, "the same layout"),
        ((DATA.to(tl.complex64), MASK), TypeError, "complex64 is not supported"),
    ],
)
def test_refused(args: tuple, kind: type, text: str) -> None:
    with pytest.raises(kind, match=text):
        masked_tensor(*args)


def test_a_tensor_with_a_history_warns() -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        masked_tensor(DATA.clone().requires_grad_(), MASK)
    assert any("not recommended" in str(w.message) for w in seen)


def test_functions_of_one_and_two() -> None:
    t = made()
    check(t.sin(), [[0.8415, -1, 0.1411], [-1, -1, -0.2794]])
    check(t + t, [[2, -1, 6], [-1, -1, 12]])
    check(t * DATA, [[1, -1, 9], [-1, -1, 36]])
    check(1 - t, [[0, -1, -2], [-1, -1, -5]])
    check(t**2, [[1, -1, 9], [-1, -1, 36]])
    assert (t > 2).to_tensor(0).tolist() == [[False, False, True], [False, False, True]]
    check(t.softmax(1), [[0.1192, -1, 0.8808], [-1, -1, 1]])
    check(tl.where(MASK, t, t + 1), [[1, -1, 3], [-1, -1, 6]])
    assert t.sqrt_() is t
    check(t, [[1, -1, 1.7321], [-1, -1, 2.4495]])
    with pytest.raises(ValueError, match="Input masks must match"):
        t + masked_tensor(DATA, ~MASK)
    with pytest.raises(TypeError, match="MaskedTensor"), pytest.warns(UserWarning, match="cumsum"):
        t.cumsum(0)


def test_views_and_joins() -> None:
    t = made()
    check(t.view(6), [1, -1, 3, -1, -1, 6])
    check(t.t(), [[1, -1], [-1, -1], [3, 6]])
    check(t[0], [1, -1, 3])
    check(t.unsqueeze(0).expand(2, 2, 3)[1], [[1, -1, 3], [-1, -1, 6]])
    check(tl.cat([t, t])[2:], [[1, -1, 3], [-1, -1, 6]])
    check(tl.stack([t, t])[1], [[1, -1, 3], [-1, -1, 6]])
    first, second = tl.split(t, 1)
    check(first, [[1, -1, 3]])
    check(second, [[-1, -1, 6]])
    assert t.to(tl.float64).dtype == tl.float64 and t.int().dtype == tl.int32


def test_reductions() -> None:
    t = made()
    check(t.sum(1), [4, 6])
    check(t.mean(0), [1, -1, 4.5])
    check(t.amax(1, keepdim=True), [[3], [6]])
    check(t.argmax(1), [2, 2])
    assert t.sum((0, 1)).item() == 10 and t.prod().item() == 18 and t.amin().item() == 1
    assert t.std().item() == pytest.approx(2.5166, abs=1e-4)
    assert t.norm().item() == pytest.approx(46**0.5)
    assert tl.masked.sum(t, 1).tolist() == [4, 6]
    assert masked_tensor(MASK, MASK).all().item() is True


def test_gradients_have_masks() -> None:
    x = DATA.clone().requires_grad_()
    (as_masked_tensor(x, MASK) * 2).sum().backward()
    assert is_masked_tensor(x.grad) and x.grad is not None
    check(x.grad, [[2, -1, 2], [-1, -1, 2]])
    leaf = masked_tensor(DATA, MASK, requires_grad=True)
    (leaf * leaf).sum().backward()
    assert leaf.grad is not None
    check(leaf.grad, [[2, -1, 6], [-1, -1, 12]])
    leaf = masked_tensor(DATA, MASK, requires_grad=True)
    (leaf.softmax(1) * leaf.get_data()).sum().backward()
    assert is_masked_tensor(leaf.grad)
    one, other = (masked_tensor(DATA, MASK, requires_grad=True) for _ in range(2))
    tl.where(DATA > 2, one, other * 3).sum().backward()
    assert one.grad is not None and other.grad is not None
    check(one.grad, [[-1, -1, 1], [-1, -1, 1]])
    check(other.grad, [[3, -1, -1], [-1, -1, -1]])


@pytest.mark.filterwarnings("ignore:Anomaly Detection", "ignore:It is not recommended")
def test_anomalies_are_looked_for_among_what_counts() -> None:
    found = masked_tensor(tl.tensor([True, False]), tl.tensor([False, True]))._is_any_true()
    assert is_masked_tensor(found) and found.item() is False and bool(found.get_mask())
    with pytest.raises(ValueError, match=r"aten\._is_any_true: expected a boolean tensor"):
        made()._is_any_true()
    x = masked_tensor(DATA.clone(), MASK, requires_grad=True)
    with tl.autograd.detect_anomaly(check_nan=True):
        x.sum().backward()
    check(x.grad, [[1, -1, 1], [-1, -1, 1]])
