"""Products of groups, and of eight-bit floats with scales."""

from __future__ import annotations

import pytest

import torchlike as torch
from torchlike.nn.functional import ScalingType, SwizzleType, grouped_mm, scaled_mm


def ends(*values):
    return torch.tensor(values, dtype=torch.int32)


def test_groups_of_rows_columns_and_sums():
    torch.manual_seed(0)
    a, b = torch.randn(9, 6), torch.randn(3, 6, 5)
    got = grouped_mm(a, b, offs=ends(2, 2, 7))
    want = torch.cat([a[:2] @ b[0], a[2:7] @ b[2], torch.zeros(2, 5)])
    torch.testing.assert_close(got, want)
    a, b = torch.randn(2, 4, 6), torch.randn(6, 9)
    got = grouped_mm(a, b, offs=ends(3, 9))
    torch.testing.assert_close(got, torch.cat([a[0] @ b[:, :3], a[1] @ b[:, 3:]], 1))
    a, b = torch.randn(4, 9), torch.randn(9, 5)
    got = grouped_mm(a, b, offs=ends(3, 9))
    torch.testing.assert_close(got, torch.stack([a[:, :3] @ b[:3], a[:, 3:] @ b[3:]]))
    a, b = torch.randn(2, 4, 6), torch.randn(2, 6, 3)
    torch.testing.assert_close(grouped_mm(a, b), a @ b)


def test_groups_have_gradients_and_shapes():
    a = torch.randn(6, 4, dtype=torch.bfloat16, requires_grad=True)
    b = torch.randn(2, 4, 3, dtype=torch.bfloat16, requires_grad=True)
    grouped_mm(a, b, offs=ends(2, 6)).sum().backward()
    torch.testing.assert_close(a.grad[0], b[0].sum(1))
    torch.testing.assert_close(b.grad[0, :, 0], a[:2].sum(0))
    meta = grouped_mm(a.detach().to("meta"), b.detach().to("meta"), offs=ends(2, 6).to("meta"))
    assert meta.shape == (6, 3) and meta.dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("words", "change"),
    [
        ("Have to provide offsets", {"offs": None}),
        ("Offsets have to be int32", {"offs": torch.tensor([2, 6])}),
        ("offs has to be 1D", {"offs": ends(2, 6)[None]}),
        ("batch sizes have to match", {"offs": ends(6)}),
        ("Bias not supported", {"bias": torch.zeros(3)}),
        ("dtype must match", {"out_dtype": torch.float16}),
        ("contraction dimension", {"mat_b": torch.zeros(2, 5, 3)}),
        ("2 or 3d", {"mat_a": torch.zeros(4)}),
        ("got Double", {"mat_a": torch.zeros(6, 4, dtype=torch.float64)}),
    ],
)
def test_groups_that_are_none(words, change):
    given = {"mat_a": torch.zeros(6, 4), "mat_b": torch.zeros(2, 4, 3), "offs": ends(2, 6)} | change
    with pytest.raises(RuntimeError, match=words):
        grouped_mm(given.pop("mat_a"), given.pop("mat_b"), **given)


def test_scales():
    torch.manual_seed(0)
    f8 = torch.float8_e4m3fn
    x, w = torch.randn(16, 32).to(f8), torch.randn(8, 32).to(f8).t()
    plain = x.float() @ w.float()
    multiply = vars(torch)["_scaled_mm"]
    one, two = torch.tensor(0.5), torch.tensor(3.0)
    got = multiply(x, w, one, two, out_dtype=torch.float32)
    torch.testing.assert_close(got, plain * 1.5)
    assert torch._scaled_mm(x, w, one, two).dtype == f8
    out = torch.empty(0)
    assert multiply(x, w, one, two, out_dtype=torch.float32, out=out) is out
    assert torch.equal(out, got)
    bias = torch.randn(8)
    got = torch._scaled_mm(x, w, one, two, bias=bias, out_dtype=torch.float32)
    torch.testing.assert_close(got, plain * 1.5 + bias)
    rows, columns = torch.rand(16), torch.rand(8)
    got = scaled_mm(
        x, w, rows, ScalingType.RowWise, columns, ScalingType.RowWise, output_dtype=torch.float32
    )
    torch.testing.assert_close(got, plain * rows[:, None] * columns)
    kind = ScalingType.TensorWise
    assert scaled_mm(x, w, one, kind, two, kind).dtype == torch.bfloat16
    meta = torch._scaled_mm(
        x.to("meta"), w.to("meta"), one.to("meta"), two.to("meta"), out_dtype=torch.bfloat16
    )
    assert meta.shape == (16, 8) and meta.dtype == torch.bfloat16
    with pytest.raises(ValueError, match="Invalid scaling configuration"):
        torch._scaled_mm(x, w, torch.rand(3), one)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        torch._scaled_mm(x[:, :24], w, one, one)
    with pytest.raises(NotImplementedError, match="BlockWise"):
        scaled_mm(x, w, one, ScalingType.BlockWise1x32, one, ScalingType.BlockWise1x32)
    with pytest.raises(NotImplementedError, match="swizzled"):
        scaled_mm(x, w, one, kind, one, kind, swizzle_a=SwizzleType.SWIZZLE_32_4_4)


def test_a_graph_of_the_gradients_is_one_of_its_arguments():
    from torchlike.fx.experimental.proxy_tensor import make_fx

    assert torch.ops.aten._grouped_mm.default  # named, and traced as what it is made of

    def gradients(rows, experts, ends):
        made = grouped_mm(rows, experts, offs=ends)
        return torch.autograd.grad(made.square().sum(), (rows, experts))

    ends = torch.tensor([2, 4], dtype=torch.int32)
    pairs = [
        [torch.randn(*shape, requires_grad=True) for shape in ((4, 16), (2, 16, 8))]
        for _ in range(2)
    ]
    graph = make_fx(gradients)(*pairs[0], ends)
    for pair in pairs:
        for got, want in zip(graph(*pair, ends), gradients(*pair, ends), strict=True):
            assert torch.allclose(got, want, atol=1e-5)
