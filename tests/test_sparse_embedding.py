"""Gradients of `Embedding(sparse=True)`: entries for the rows that were chosen, by what PyTorch 2.13 gives."""

import pytest

import torchlike as tl
from torchlike import nn
from torchlike.nn import functional as F


def weight() -> tl.Tensor:
    return tl.arange(8.0).reshape(4, 2).requires_grad_()


def test_a_gradient_has_an_entry_a_use() -> None:
    w = weight()
    F.embedding(tl.tensor([[1, 3], [1, 0]]), w, sparse=True).sum().backward()
    assert w.grad is not None and w.grad.layout == tl.sparse_coo and w.grad.shape == (4, 2)
    assert not w.grad.is_coalesced() and w.grad._nnz() == 4
    assert w.grad._indices().tolist() == [[1, 3, 1, 0]]
    assert w.grad.to_dense().tolist() == [[1, 1], [2, 2], [0, 0], [1, 1]]


def test_padding_has_none() -> None:
    w = weight()
    F.embedding(tl.tensor([1, 2, 0]), w, padding_idx=2, sparse=True).sum().backward()
    assert w.grad is not None
    assert w.grad._indices().tolist() == [[1, 0]]
    assert w.grad.to_dense().tolist() == [[1, 1], [1, 1], [0, 0], [0, 0]]


def test_gradients_are_gathered() -> None:
    w = weight()
    for _ in range(2):
        F.embedding(tl.tensor([1]), w, sparse=True).sum().backward()
    assert w.grad is not None
    assert w.grad.coalesce().values().tolist() == [[2, 2]]


def test_gradients_keep_their_rows_when_indices_are_written() -> None:
    w, rows = weight(), tl.tensor([1, 1, 3])
    for given in (tl.ones(3, 2), tl.ones(()).expand(3, 2)):
        w.grad = None
        F.embedding(rows, w, sparse=True).backward(given)
        rows.copy_(tl.tensor([0, 1, 3]))
        assert w.grad is not None and w.grad._values().is_contiguous()
        w.grad.mul_(2)
        F.embedding(rows, w, sparse=True).backward(tl.ones(()).expand(3, 2))
        assert w.grad.to_dense()[:, 0].tolist() == [1, 5, 0, 3]
        rows.copy_(tl.tensor([1, 1, 3]))


def test_expanded_gradients_stand_behind_each_other() -> None:
    w = weight()
    for _ in range(2):
        F.embedding(tl.tensor([1, 1, 3]), w, sparse=True).sum().backward()
    assert w.grad is not None
    assert w.grad._indices().tolist() == [[1, 1, 3, 1, 1, 3]]


def test_counts_are_refused() -> None:
    out = F.embedding(tl.tensor([1]), weight(), scale_grad_by_freq=True, sparse=True)
    with pytest.raises(RuntimeError, match="scale_grad_by_freq not supported with sparse"):
        out.sum().backward()


@pytest.mark.parametrize("make", [tl.optim.SGD, tl.optim.SparseAdam, tl.optim.Adagrad])
def test_optimizers_step_the_chosen_rows(make: type) -> None:
    tl.manual_seed(0)
    layer = nn.Embedding(5, 3, sparse=True)
    before = layer.weight.detach().clone()
    optimizer = make(layer.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        (layer(tl.tensor([1, 4, 1])) ** 2).sum().backward()
        optimizer.step()
    moved = (layer.weight.detach() != before).any(1)
    assert moved.tolist() == [False, True, False, False, True]


@pytest.mark.parametrize(
    ("mode", "options", "expected"),
    [
        ("sum", {}, [[0, 0], [2, 2], [1, 1], [0, 0]]),
        ("mean", {}, [[0, 0], [1.5, 1.5], [0.5, 0.5], [0, 0]]),
        ("sum", {"padding_idx": 2}, [[0, 0], [2, 2], [0, 0], [0, 0]]),
        ("sum", {"per_sample_weights": tl.tensor([2.0, 3.0, 4.0])}, [[0, 0], [6, 6], [3, 3], [0, 0]]),
    ],
)  # fmt: skip
def test_bags(mode: str, options: dict, expected: list) -> None:
    w = weight()
    places, offsets = tl.tensor([1, 2, 1]), tl.tensor([0, 2])
    F.embedding_bag(places, w, offsets, mode=mode, sparse=True, **options).sum().backward()
    assert w.grad is not None and w.grad.layout == tl.sparse_coo
    assert w.grad.to_dense().tolist() == expected


def test_on_meta() -> None:
    w = weight().detach().to("meta").requires_grad_()
    F.embedding(tl.zeros(3, dtype=tl.int64, device="meta"), w, sparse=True).sum().backward()
    assert w.grad is not None and w.grad.shape == (4, 2) and w.grad.device.type == "meta"


def test_the_row_by_its_name() -> None:
    row = "_grad.embedding_sparse_backward"
    made = tl._C._call_row(row, False, (tl.ones(3, 2), tl.tensor([1, 0, 2]), 4, 0, False), {})
    assert made._indices().tolist() == [[1, 2]] and made.shape == (4, 2)
