"""Quantised numbers as plain integers: the operators `quantized_decomposed`; values recorded from PyTorch 2.13."""

from __future__ import annotations

import io

import pytest

import torchlike as torch
from torchlike import nn
from torchlike.ao.quantization.utils import determine_qparams, validate_qmin_qmax

D = torch.ops.quantized_decomposed
X = torch.tensor([[-1.0, 0.26, 0.5], [2.0, 30.0, 0.04]])


def test_one_scale():
    q = D.quantize_per_tensor(X, 0.1, 3, 0, 255, torch.uint8)
    assert q.tolist() == [[0, 6, 8], [23, 255, 3]]
    for given in ((torch.tensor(0.1), torch.tensor(3)), (0.1, 3)):
        assert torch.equal(D.quantize_per_tensor(X, *given, 0, 255, torch.uint8), q)
    back = D.dequantize_per_tensor(q, 0.1, 3, 0, 255, torch.uint8)
    assert torch.allclose(back, torch.tensor([[-0.3, 0.3, 0.5], [2.0, 25.2, 0.0]]))
    half = D.dequantize_per_tensor(q, 0.1, 3, 0, 255, torch.uint8, out_dtype=torch.bfloat16)
    assert half.dtype == torch.bfloat16


def test_a_scale_for_each_channel_row_and_group():
    scales, zeros = torch.tensor([0.1, 0.5]), torch.tensor([0, 3])
    q = D.quantize_per_channel(X, scales, zeros, 0, -128, 127, torch.int8)
    assert q.tolist() == [[-10, 3, 5], [7, 63, 3]]
    back = D.dequantize_per_channel(q, scales, zeros, 0, -128, 127, torch.int8)
    assert torch.allclose(back, torch.tensor([[-1.0, 0.3, 0.5], [2.0, 30.0, 0.0]]))
    scale, zero = D.choose_qparams_per_token_asymmetric(X, torch.int8)
    assert zero.tolist() == [[42], [-128]]
    rows = D.quantize_per_token(X, scale, zero, -128, 127, torch.int8)
    assert rows.tolist() == [[-128, 86, 127], [-111, 127, -128]]
    grouped = D.quantize_per_channel_group(
        torch.arange(8.0).view(2, 4),
        torch.full((2, 2), 0.5),
        torch.ones(2, 2),
        -8,
        7,
        torch.int8,
        2,
    )
    assert grouped.tolist() == [[1, 3, 5, 7], [7, 7, 7, 7]]


def test_scales_by_what_is_there():
    scale, zero = D.choose_qparams(X, -128, 127, 1e-5, torch.int8)
    assert scale.dtype == torch.float64
    assert zero.tolist() == [-120]
    scale, zero = D.choose_qparams_symmetric(X, -127, 127, 1e-5, torch.int8)
    assert zero.tolist() == [0]
    assert scale.item() == pytest.approx(30 / 127)
    none = determine_qparams(torch.tensor([]), X, 0, 255, torch.uint8, torch.tensor([1e-5]), False)
    assert [t.item() for t in none] == [1, 0]
    with pytest.raises(AssertionError, match="must include 0"):
        validate_qmin_qmax(1, 5)


def test_what_does_not_fit():
    with pytest.raises(AssertionError, match="quant_max out of bounds for dtype"):
        D.quantize_per_tensor(X, 0.1, 0, 0, 256, torch.uint8)
    with pytest.raises(ValueError, match=r"Unsupported dtype: .*int64"):
        D.quantize_per_tensor(X, 0.1, 0, 0, 255, torch.int64)
    with pytest.raises(AssertionError, match="Expecting axis to be < 2"):
        D.quantize_per_channel(X, X[0], X[0], 2, 0, 255, torch.uint8)


def test_gradients_go_through_what_is_in_range():
    x = X.clone().requires_grad_()
    made = D.fake_quant_per_channel(x, torch.tensor([0.1, 0.5]), torch.tensor([0, 0]), 0, -8, 7)
    made.sum().backward()
    assert x.grad.tolist() == [[0, 1, 1], [1, 0, 1]]


class Rounded(nn.Module):
    def forward(self, x):
        q = D.quantize_per_tensor.default(x, 0.1, 3, 0, 255, torch.uint8)
        return D.dequantize_per_tensor.default(q, 0.1, 3, 0, 255, torch.uint8) + 1


def test_exported_programs_are_made_of_them():
    file = io.BytesIO()
    torch.export.save(torch.export.export(Rounded(), (X,)), file)
    file.seek(0)
    program = torch.export.load(file)
    assert torch.equal(program.module()(X), Rounded()(X))
    meta = Rounded()(X.to("meta"))
    assert (meta.shape, meta.dtype) == (X.shape, torch.float32)
