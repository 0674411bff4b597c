"""Quantised tensors made of real ones, and numbers as if they had been quantised; recorded from PyTorch 2.13."""

from __future__ import annotations

import pytest

import torchlike as torch

X = [-1.3, 0.0, 0.25, 0.75, 1.5, 2.5, 3.1, 100.0]


def calls():
    """A call of each row, by its name, and the numbers that it gives."""
    x, y = torch.tensor(X), torch.arange(6.0).view(2, 3) - 2
    near = [-1.5, 0.0, 0.5, 0.5, 1.5, 2.5, 3.0, 62.0]
    scales, zeros = torch.tensor([0.5, 0.25]), torch.tensor([0, 3])
    return {
        "quantize_per_tensor": (lambda: torch.quantize_per_tensor(x, 0.5, 3, torch.qint8), near),
        "quantize_per_tensor#tensors": (
            lambda: torch.quantize_per_tensor(x, torch.tensor(0.5), torch.tensor(3), torch.qint8),
            near,
        ),
        "quantize_per_tensor#list": (
            lambda: torch.quantize_per_tensor([x, x], scales, torch.tensor([3, 0]), torch.qint8)[1],
            [-1.25, 0.0, 0.25, 0.75, 1.5, 2.5, 3.0, 31.75],
        ),
        "quantize_per_channel": (
            lambda: torch.quantize_per_channel(y, scales, zeros, 0, torch.qint8),
            [[-2.0, -1, 0], [1, 2, 3]],
        ),
        "quantize_per_tensor_dynamic": (
            lambda: torch.quantize_per_tensor_dynamic(x, torch.quint8, True),
            [-1.5953, 0.0, 0.0, 0.7976, 1.5953, 2.3929, 3.1906, 99.7047],
        ),
        "_make_per_tensor_quantized_tensor": (
            lambda: torch._make_per_tensor_quantized_tensor(
                torch.tensor([1, 2], dtype=torch.int8), 0.5, 1
            ),
            [0.0, 0.5],
        ),
        "_make_per_channel_quantized_tensor": (
            lambda: torch._make_per_channel_quantized_tensor(
                torch.tensor([1, 2], dtype=torch.int8),
                torch.tensor([0.5, 0.1]),
                torch.tensor([1, 0]),
                0,
            ),
            [0.0, 0.2],
        ),
    }


@pytest.mark.parametrize("row", ["_dequantize"])
def test_real_numbers_of_integers(row):
    made = torch.quantize_per_tensor(torch.tensor(X), 0.5, 3, torch.qint8)
    want = (made.int_repr().float() - 3) * 0.5
    assert torch.equal(getattr(torch, row)(made), want)
    assert torch.equal(made.dequantize(), want)


@pytest.mark.parametrize("row", list(calls()))
def test_numbers_that_integers_stand_for(row):
    call, want = calls()[row]
    made = call()
    assert made.is_quantized
    torch.testing.assert_close(made.dequantize(), torch.tensor(want), rtol=1e-4, atol=1e-4)


def test_what_a_quantized_tensor_says():
    x = torch.tensor(X)
    q = torch.quantize_per_tensor(x, 0.5, 3, torch.quint8)
    assert (q.dtype, q.q_scale(), q.q_zero_point()) == (torch.quint8, 0.5, 3)
    assert q.int_repr().tolist() == [0, 3, 4, 4, 6, 8, 9, 203]
    dynamic = torch.quantize_per_tensor_dynamic(x, torch.qint8, False)
    assert dynamic.q_zero_point() == -125 and abs(dynamic.q_scale() - 0.39725490177378936) < 1e-9
    assert torch.quantize_per_tensor_dynamic(x, torch.float16, True).dtype == torch.float16
    assert (
        torch.dequantize([q])[0].dtype == torch.float32
        and x.half().dequantize().dtype == torch.float32
    )
    wide = torch.quantize_per_tensor(torch.tensor([1e30, -1e30]), 0.5, 0, torch.qint32).int_repr()
    assert wide.tolist() == [2**31 - 1, -(2**31)]
    real = torch.quantize_per_channel(
        x.view(2, 4), torch.tensor([0.5, 0.25]), torch.tensor([0.0, 3.0]), 0, torch.quint8
    )
    assert real.qscheme() == torch.per_channel_affine_float_qparams


def test_quantizers_that_cannot_be():
    x = torch.ones(2, 3)
    for call, text in [
        (
            lambda: torch.quantize_per_tensor(x, 0.5, 300, torch.qint8),
            "zero_point 300 is above upper bound",
        ),
        (
            lambda: torch.quantize_per_tensor(x, 0.5, -300, torch.qint8),
            "zero_point -300 is below lower bound",
        ),
        (
            lambda: torch.quantize_per_tensor(x, 0.5, 3, torch.int8),
            "Char is not supported in new_qtensor",
        ),
        (
            lambda: torch.quantize_per_tensor(x.double(), 0.5, 3, torch.qint8),
            "only works on Float Tensor, got Double",
        ),
        (
            lambda: torch.quantize_per_channel(x, torch.ones(2), torch.zeros(2), 1, torch.qint8),
            "length of scales",
        ),
        (
            lambda: torch.quantize_per_channel(x, torch.ones(2), torch.zeros(2), 5, torch.qint8),
            "axis out of range",
        ),
        (lambda: torch._make_per_tensor_quantized_tensor(x, 0.5, 1), "requires quantized dtype"),
        (
            lambda: torch.fake_quantize_per_tensor_affine(x, 0.5, 300, -8, 7),
            "`zero_point` must be between",
        ),
        (lambda: torch.fake_quantize_per_tensor_affine(x, 0.5, 3, 8, 7), "should be less than or"),
        (
            lambda: torch.fake_quantize_per_channel_affine(
                x, torch.ones(2), torch.zeros(2).long(), 0, 0, 1
            ),
            "found Long",
        ),
    ]:
        with pytest.raises(RuntimeError, match=text):
            call()


def test_numbers_as_if_quantized():
    x = torch.tensor(X, requires_grad=True)
    want = [-1.5, 0.0, 0.0, 1.0, 1.5, 2.0, 2.0, 2.0]
    for scale, zero in ((0.5, 3), (torch.tensor(0.5), torch.tensor(3))):
        x.grad = None
        made = torch.fake_quantize_per_tensor_affine(x, scale, zero, -8, 7)
        made.sum().backward()
        assert made.tolist() == want and x.grad.tolist() == [1, 1, 1, 1, 1, 0, 0, 0]
    assert "Cachemask" in type(made.grad_fn).__name__
    for kind in (torch.float64, torch.float16):
        assert torch.fake_quantize_per_tensor_affine(x.to(kind), 0.5, 3, -8, 7).dtype == kind
    y = (torch.arange(6.0).view(2, 3) - 2).requires_grad_()
    zeros = torch.tensor([0, 3], dtype=torch.int32)
    made = torch.fake_quantize_per_channel_affine(y, torch.tensor([0.5, 0.25]), zeros, 0, -4, 3)
    made.sum().backward()
    assert made.tolist() == [[-2, -1, 0], [0, 0, 0]] and y.grad.tolist() == [[1, 1, 1], [0, 0, 0]]


def test_scales_that_are_learned():
    x = torch.tensor(X, requires_grad=True)
    scale, zero = (torch.tensor([v], requires_grad=True) for v in (0.5, 3.2))
    made = torch._fake_quantize_learnable_per_tensor_affine(x, scale, zero, -8, 7, 2.0)
    made.backward(torch.arange(1.0, 9))
    assert made.tolist() == [-1.5, 0, 0, 1, 1.5, 2, 2, 2]
    assert x.grad.tolist() == [1, 2, 3, 4, 5, 0, 0, 0]
    torch.testing.assert_close(scale.grad, torch.tensor([166.2]))
    torch.testing.assert_close(zero.grad, torch.tensor([-21.0]))
    y = (torch.arange(6.0).view(2, 3) - 2).requires_grad_()
    scale = torch.tensor([0.5, 0.25], requires_grad=True)
    zero = torch.tensor([0.0, 2.7], requires_grad=True)
    made = torch._fake_quantize_learnable_per_channel_affine(y, scale, zero, 0, -4, 3, 2.0)
    made.backward(torch.arange(1.0, 7).view(2, 3))
    assert made.tolist() == [[-2, -1, 0], [0, 0, 0]] and y.grad.tolist() == [[1, 2, 3], [0, 0, 0]]
    torch.testing.assert_close(scale.grad, torch.zeros(2))
    torch.testing.assert_close(zero.grad, torch.tensor([0.0, -7.5]))


def test_products_with_integers():
    torch.manual_seed(0)
    for m, k, n in ((5, 8, 3), (16, 64, 32), (33, 130, 300), (1, 70, 17), (100, 1, 40), (3, 0, 2)):
        a, b = (torch.randint(-128, 128, s, dtype=torch.int8) for s in ((m, k), (k, n)))
        want = (a.long() @ b.long()).int()
        for turned in (b, b.t().contiguous().t(), torch.stack([b, b], 2)[..., 0]):
            assert torch.equal(torch._int_mm(a, turned), want)
            assert torch.equal(torch._int_mm(a.t().contiguous().t(), turned), want)
        unsigned = a.view(torch.uint8)
        assert torch.equal(torch._int_mm(unsigned, b), (unsigned.long() @ b.long()).int())
        assert torch.equal(torch._int_mm(a, b, out=torch.zeros(n, m, dtype=torch.int32).t()), want)
    x, w, s = torch.randn(4, 8), torch.randint(-128, 127, (6, 8), dtype=torch.int8), torch.rand(6)
    torch.testing.assert_close(torch._weight_int8pack_mm(x, w, s), (x @ w.float().T) * s)
    for rows in (32, 48, 96):
        q = torch.randint(0, 16, (rows, 64), dtype=torch.int32)
        packed = torch._convert_weight_to_int4pack_for_cpu(q, 2)
        assert packed.shape == (rows, 32) and packed.dtype == torch.uint8
        groups = torch.rand(2, rows, 2)
        scale, zero = (groups[..., i].T.unsqueeze(-1) for i in (0, 1))
        real = ((q.float().view(rows, 2, 32) - 8) * scale + zero).view(rows, 64)
        x = torch.randn(3, 64)
        torch.testing.assert_close(
            torch._weight_int4pack_mm_for_cpu(x, packed, 32, groups),
            x @ real.T,
            rtol=1e-4,
            atol=1e-4,
        )
    # Rows 0 and 16 of a block of 32 share a byte; those left over are pairs of neighbours.
    q = torch.zeros(48, 2, dtype=torch.int32)
    for row, place, value in ((0, 0, 5), (16, 0, 80), (33, 32, 80), (40, 36, 5)):
        q.zero_()
        q[row, 0] = 5
        packed = torch._convert_weight_to_int4pack_for_cpu(q, 2).view(-1)
        assert (packed.nonzero().item(), packed[place].item()) == (place, value)
