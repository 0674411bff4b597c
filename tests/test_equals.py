"""Which of several equal elements is taken: PyTorch 2.13's choices, recorded from it."""

from __future__ import annotations

import pytest

import torchlike as torch

TYPES = [torch.int64, torch.float32, torch.bfloat16, torch.uint8, torch.float64]
#: Length, different values, how many, largest, sorted; and the positions.
FIRST = [
    ((16, 4, 3, True, True), [9, 6, 13]),
    ((16, 4, 16, True, True), [1, 2, 14, 5, 6, 13, 9, 10, 15, 0, 12, 7, 3, 4, 11, 8]),
    ((40, 5, 9, False, True), [26, 15, 16, 20, 21, 25, 31, 36, 35]),
    ((40, 5, 9, False, False), [26, 15, 16, 20, 21, 25, 31, 36, 35]),
    ((300, 7, 4, True, True), [16, 9, 23, 2]),
    ((700, 40, 12, True, True), [337, 177, 74, 329, 537, 529, 522, 514, 89, 322, 169, 82]),
]
#: Length and different values; where median, nanmedian, the middle by `kthvalue` and mode are.
PICKED = [
    ((5, 3), [1, 1, 0, 4]),
    ((16, 4), [15, 15, 15, 15]),
    ((40, 5), [18, 18, 8, 6]),
    ((60, 3), [14, 14, 49, 34]),
    ((300, 7), [141, 141, 8, 7]),
    ((700, 40), [694, 694, 14, 0]),
    ((1000, 3), [248, 248, 914, 409]),
]


def line(n: int, different: int) -> torch.Tensor:
    return torch.tensor([(i * i * 7 + 3 * i) % different for i in range(n)])


@pytest.mark.parametrize("dtype", TYPES)
def test_the_first(dtype: torch.dtype) -> None:
    for (n, different, k, largest, in_order), at in FIRST:
        x = line(n, different).to(dtype)
        values, indices = x.topk(k, largest=largest, sorted=in_order)
        assert indices.tolist() == at, (n, k)
        assert torch.equal(values, x[indices])


@pytest.mark.parametrize("dtype", TYPES)
def test_one_of_a_line(dtype: torch.dtype) -> None:
    for (n, different), at in PICKED:
        x = line(n, different).to(dtype)
        picked = [x.median(0), x.nanmedian(0), x.kthvalue(n // 2), x.mode(0)]
        assert [int(i) for _, i in picked] == at, n
        assert all(v == x[i] for v, i in picked)


def test_what_is_not_a_number_is_never_the_most_frequent() -> None:
    x = torch.tensor([torch.nan, 2.0, torch.nan, 3.0, torch.nan, 2.0] * 10)
    assert x.mode(0)[0] == 2.0
    assert torch.full((40,), torch.nan).mode(0)[1] == 30


def test_gradients_go_to_what_was_taken() -> None:
    x = torch.zeros(5, requires_grad=True)
    x.topk(2)[0].sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, 0.0, 1.0, 0.0, 1.0]
