"""Sums of chosen rows, and bilinear forms, against their definitions in double precision."""

import itertools

import pytest

import torchlike as torch
from torchlike.nn import functional as F


class TestBags:
    @pytest.mark.parametrize("width", [1, 5, 128, 130, 300])
    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
    def test_rows_are_joined_in_blocks_of_columns(self, width, dtype):
        weight = torch.randn(20, width).to(dtype)
        indices, offsets = torch.randint(0, 20, (90,)), torch.tensor([0, 4, 4, 50])
        factors = torch.randn(90).to(dtype)
        bags = [slice(0, 4), slice(4, 4), slice(4, 50), slice(50, 90)]
        near = {
            torch.bfloat16: (2e-2, 0.2),
            torch.float32: (1e-5, 1e-5),
            torch.float64: (1e-12, 1e-12),
        }
        close = dict(zip(("rtol", "atol"), near[dtype], strict=True))
        for mode, by in itertools.product(("sum", "mean", "max"), (None, factors)):
            if by is not None and mode != "sum":
                continue
            made = F.embedding_bag(
                indices, weight, offsets, mode=mode, padding_idx=3, per_sample_weights=by
            )
            for bag, found in zip(bags, made, strict=True):
                kept = indices[bag] != 3
                rows = weight[indices[bag][kept]].double()
                rows = rows if by is None else rows * by[bag][kept].double()[:, None]
                if not len(rows):
                    want = torch.zeros(width, dtype=torch.float64)
                else:
                    want = rows.amax(0) if mode == "max" else getattr(rows, mode)(0)
                torch.testing.assert_close(found.double(), want, **close)


class TestBilinear:
    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
    @pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (3, 2, 5, 4), (200, 9, 17, 33), (0, 2, 3, 4)])
    def test_forms_and_their_gradients(self, dtype, sizes):
        rows, o, i, j = sizes
        x, y = torch.randn(rows, i).to(dtype), torch.randn(rows, j).to(dtype)
        weight, bias = torch.randn(o, i, j).to(dtype), torch.randn(o).to(dtype)
        operands = [t.requires_grad_() for t in (x, y, weight, bias)]
        wide = [t.detach().double().requires_grad_() for t in operands]
        seed = torch.randn(rows, o).to(dtype)

        def form(x, y, weight, bias):
            return torch.einsum("bi,oij,bj->bo", x, weight, y) + bias

        found, want = F.bilinear(*operands), form(*wide)
        close = {"rtol": 2e-2, "atol": 0.3} if dtype == torch.bfloat16 else {}
        close = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else close
        torch.testing.assert_close(found.double(), want, **close)
        grads = torch.autograd.grad(found, operands, seed)
        wants = torch.autograd.grad(want, wide, seed.double())
        for grad, w in zip(grads, wants, strict=True):
            torch.testing.assert_close(grad.double(), w, **close)

    def test_leading_dimensions_and_strides(self):
        x, y = torch.randn(4, 3, 2, dtype=torch.float64), torch.randn(5, 3, 2, dtype=torch.float64)
        weight = torch.randn(5, 4, 6, dtype=torch.float64).permute(2, 1, 0)
        found = F.bilinear(x.permute(1, 2, 0), y.permute(1, 2, 0), weight)
        want = torch.einsum("ibc,oij,jbc->bco", x, weight, y)
        torch.testing.assert_close(found, want)


def test_rows_of_a_matrix_have_no_last_offset():
    rows = torch.tensor([[1, 2], [0, 1]])
    weight = torch.arange(9.0).view(3, 3)
    made = F.embedding_bag(rows, weight, include_last_offset=True)
    assert made.tolist() == F.embedding_bag(rows, weight).tolist()


def test_rows_outside_of_the_table_are_named_where_norms_are_bounded():
    weight = torch.ones(4, 3)
    for find in (F.embedding, F.embedding_bag):
        with pytest.raises(
            IndexError, match=r"select\(\): index 7 out of range for tensor of size"
        ):
            find(torch.tensor([[1, 7]]), weight, max_norm=1.0)


def test_a_first_offset_is_shown():
    with pytest.raises(RuntimeError, match=r"However, got 1\n\[ torch.LongTensor\{\} \]"):
        F.embedding_bag(torch.tensor([1, 2]), torch.ones(4, 3), torch.tensor([1]))


def test_rows_that_share_memory_are_shortened():
    weight = torch.ones(1, 4).expand(3, 4)
    found = torch.nn.functional.embedding(torch.tensor([1, 2]), weight, max_norm=1.0)
    assert torch.allclose(found, torch.full((2, 4), 0.5)) and torch.allclose(weight, found[:1])
