"""Backward operators of views, indexing, convolutions, pools, resizing and pads.

Each is the numerical derivative of its forward.
"""

from __future__ import annotations

import itertools
import math

import pytest

import torchlike as torch
import torchlike.nn.functional as F
from derivatives import check, rand

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


class TestViewsAndIndices:
    def test_parts(self):
        x = rand(4, 5)
        check(lambda t: t.select(1, -2), x, lambda g: aten.select_backward(g, [4, 5], 1, -2))
        check(lambda t: t[:, 1:5:2], x, lambda g: aten.slice_backward(g, [4, 5], 1, 1, 5, 2))
        check(lambda t: t.diagonal(1), x, lambda g: aten.diagonal_backward(g, [4, 5], 1, 0, 1))
        check(lambda t: t.trace(), x, lambda g: aten.trace_backward(g, [4, 5]))

    @pytest.mark.parametrize(("size", "step"), [(2, 1), (3, 2), (2, 2), (1, 3), (5, 1)])
    def test_windows(self, size, step):
        x = rand(2, 5, 2)
        check(
            lambda t: t.unfold(1, size, step),
            x,
            lambda g: aten.unfold_backward(g, [2, 5, 2], 1, size, step),
        )

    def test_values_at_indices(self):
        x, index = rand(3, 4), torch.tensor([0, 2, 0])
        at = x.max(1).indices
        select = aten.value_selecting_reduction_backward
        check(lambda t: t.max(1).values, x, lambda g: select(g, 1, at, [3, 4], False))
        check(
            lambda t: t.max(1, keepdim=True).values,
            x,
            lambda g: select(g, 1, at.unsqueeze(1), [3, 4], True),
        )
        check(
            lambda t: t.index_select(1, index),
            x,
            lambda g: aten.index_select_backward(g, [3, 4], 1, index),
        )
        places = torch.tensor([[0, 0, 1], [2, 2, 2]])
        check(
            lambda t: t.gather(0, places),
            x,
            lambda g: aten.gather_backward(g, x, 0, places, False),
        )
        row = torch._C._call_row
        check(
            lambda t: t[[1, 1, 0], :],
            x,
            lambda g: row(
                "_grad.index_backward", False, (g, [3, 4], [torch.tensor([1, 1, 0])]), {}
            ),
        )

    def test_a_masked_source(self):
        mask = torch.tensor([[True, False, True], [False, True, False]])
        target = rand(2, 3)
        for source in (rand(3), rand(2, 3)):
            shape = list(source.shape)
            check(
                lambda t: target.masked_scatter(mask, t),
                source,
                lambda g, shape=shape: aten.masked_scatter_backward(
                    g.masked_fill(~mask, 0), mask, shape
                ),
            )

    @pytest.mark.parametrize("zeros", [[], [0], [2], [1, 3], [0, 1, 4]])
    def test_running_products(self, zeros):
        x = rand(2, 5)
        x[1, zeros] = 0
        check(lambda t: t.cumprod(1), x, lambda g: aten.cumprod_backward(g, x, 1, x.cumprod(1)))

    def test_refusals(self):
        with pytest.raises(RuntimeError, match="expected matrix input"):
            aten.trace_backward(torch.ones(()), [2, 3, 4])
        with pytest.raises(RuntimeError, match="step is 0"):
            aten.unfold_backward(torch.ones(2, 3), [4], 0, 3, 0)


CONVOLUTIONS = [
    # spatial sizes, input channels, output channels, window, stride, padding, dilation, groups
    ((6,), 2, 4, (3,), 1, 1, 1, 1),
    ((7,), 4, 2, (2,), 3, 0, 2, 2),
    ((5, 4), 2, 3, (3, 2), 2, 1, 1, 1),
    ((5, 5), 3, 3, (3, 3), 2, 1, 1, 3),
    ((5, 5), 3, 3, (3, 3), 1, 1, 1, 3),
    ((5, 5), 2, 4, (3, 3), 1, 2, 2, 2),
    ((4, 4), 3, 2, (1, 1), 1, 0, 1, 1),
    ((4, 4), 3, 2, (1, 1), 2, 0, 1, 1),
    ((3, 4, 3), 2, 2, (2, 2, 2), 1, 1, 1, 1),
]


class TestConvolutions:
    @pytest.mark.parametrize("transposed", [False, True])
    @pytest.mark.parametrize("case", CONVOLUTIONS)
    def test_all_three_gradients(self, case, transposed):
        size, inputs, outputs, window, stride, padding, dilation, groups = case
        n = len(size)
        first, second = (inputs, outputs // groups) if transposed else (outputs, inputs // groups)
        x, w, b = rand(2, inputs, *size), rand(first, second, *window), rand(outputs)
        lists = [stride] * n, [padding] * n, [dilation] * n, transposed, [0] * n, groups
        forward = lambda x, w, b: torch.convolution(x, w, b, *lists)  # noqa: E731

        def backward(which):
            mask = [i == which for i in range(3)]
            return lambda g: aten.convolution_backward(g, x, w, [outputs], *lists, mask)[which]

        check(lambda t: forward(t, w, b), x, backward(0))
        check(lambda t: forward(x, t, b), w, backward(1))
        check(lambda t: forward(x, w, t), b, backward(2))

    def test_layouts_and_types_agree(self):
        x, w = rand(3, 8, 9, 7), rand(6, 8, 3, 3)
        lists = [6], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True] * 3
        g = rand(3, 6, 9, 7)
        want = aten.convolution_backward(g, x, w, *lists)
        last = x.contiguous(memory_format=torch.channels_last)
        for got, t in zip(aten.convolution_backward(g, last, w, *lists), want, strict=True):
            torch.testing.assert_close(got, t)
        assert got.shape == (6,)
        for dtype, tolerance in ((torch.float32, 1e-4), (torch.bfloat16, 0.1)):
            low = aten.convolution_backward(*(t.to(dtype) for t in (g, x, w)), *lists)
            for got, t in zip(low, want, strict=True):
                assert got.dtype == dtype
                torch.testing.assert_close(
                    got.to(torch.float64), t, rtol=tolerance, atol=tolerance * 10
                )

    def test_gradients_of_complex_products_are_conjugated(self):
        x, w = (torch.randn(2, 2, 5, dtype=torch.complex128) for _ in range(2))
        lists = [1], [0], [1], False, [0], 1
        g = torch.randn_like(torch.convolution(x, w, None, *lists))
        to_x, to_w, _ = aten.convolution_backward(g, x, w, None, *lists, [True, True, False])
        step = torch.randn_like(x)
        slope = (torch.convolution(step, w, None, *lists) * g.conj()).sum().real
        torch.testing.assert_close((step * to_x.conj()).sum().real, slope)
        slope = (torch.convolution(x, step, None, *lists) * g.conj()).sum().real
        torch.testing.assert_close((step * to_w.conj()).sum().real, slope)

    def test_what_is_not_asked_for_is_none(self):
        g, x, w = rand(1, 2, 3), rand(1, 2, 3), rand(2, 2, 1)
        for mask in itertools.product([False, True], repeat=3):
            lists = [2], [1], [0], [1], False, [0], 1, list(mask)
            got = aten.convolution_backward(g, x, w, *lists)
            assert [t is not None for t in got] == list(mask)
            got = aten.convolution_backward(*(t.to("meta") for t in (g, x, w)), *lists)
            assert [t is not None for t in got] == list(mask)

    def test_refusals(self):
        g, x, w = rand(1, 2, 3), rand(1, 2, 3), rand(2, 2, 1)
        lists = [2], [1], [0], [1], False, [0], 1
        with pytest.raises(RuntimeError, match="expected a gradient of shape"):
            aten.convolution_backward(g[..., :2], x, w, *lists, [True] * 3)
        with pytest.raises(RuntimeError, match="expected scalar type"):
            aten.convolution_backward(g.float(), x, w, *lists, [True] * 3)
        with pytest.raises(RuntimeError, match="stride"):
            aten.convolution_backward(g, x, w, [2], [0], *lists[2:], [True] * 3)
        with pytest.raises(RuntimeError, match="output_mask"):
            torch._C._call_row("_grad.convolution_backward", False, (g, x, w, *lists, [True]), {})


def spread(*shape):
    """Numbers that lie far apart, so that no maximum changes hands for a small step."""
    n = math.prod(shape)
    return torch.randperm(n).to(torch.float64).reshape(shape) / n


class TestPools:
    @pytest.mark.parametrize("last", [False, True])
    @pytest.mark.parametrize(
        ("kernel", "stride", "padding", "dilation", "ceil"),
        [(2, 2, 0, 1, False), (3, 2, 1, 1, True), (2, 1, 1, 2, False)],
    )
    def test_maxima(self, kernel, stride, padding, dilation, ceil, last):
        for n in (2, 3):
            x = spread(1, 2, 5, 4, 4) if n == 3 else spread(2, 2, 5, 6)
            if last:
                x = x.contiguous(
                    memory_format=torch.channels_last if n == 2 else torch.channels_last_3d
                )
            lists = [[v] * n for v in (kernel, stride, padding, dilation)]
            pool = getattr(F, f"max_pool{n}d")
            at = pool(x, *lists, ceil, return_indices=True)[1]
            backward = getattr(aten, f"max_pool{n}d_with_indices_backward")
            check(
                lambda t, pool=pool, lists=lists: pool(t, *lists, ceil),
                x,
                lambda g, f=backward, x=x, lists=lists, at=at: f(g, x, *lists, ceil, at),
            )

    @pytest.mark.parametrize("last", [False, True])
    @pytest.mark.parametrize("divisor", [None, 3])
    @pytest.mark.parametrize("count_padding", [False, True])
    def test_means(self, count_padding, divisor, last):
        for n, shape in ((2, (2, 2, 5, 6)), (3, (1, 2, 4, 4, 3))):
            x = rand(*shape)
            if last:
                x = x.contiguous(
                    memory_format=torch.channels_last if n == 2 else torch.channels_last_3d
                )
            rest = [3] * n, [2] * n, [1] * n, True, count_padding, divisor
            pool, backward = getattr(F, f"avg_pool{n}d"), getattr(aten, f"avg_pool{n}d_backward")
            check(
                lambda t, pool=pool, rest=rest: pool(t, *rest),
                x,
                lambda g, f=backward, x=x, rest=rest: f(g, x, *rest),
            )

    def test_adaptive_ones(self):
        for n, shape, out in ((2, (2, 2, 5, 6), (3, 4)), (3, (1, 2, 3, 4, 5), (2, 3, 1))):
            means = getattr(aten, f"_adaptive_avg_pool{n}d_backward")
            x = rand(*shape)
            check(
                lambda t, n=n, out=out: getattr(F, f"adaptive_avg_pool{n}d")(t, out),
                x,
                lambda g, f=means, x=x: f(g, x),
            )
            x = spread(*shape)
            pool = getattr(F, f"adaptive_max_pool{n}d")
            at = pool(x, out, return_indices=True)[1]
            maxima = getattr(aten, f"adaptive_max_pool{n}d_backward")
            check(
                lambda t, pool=pool, out=out: pool(t, out),
                x,
                lambda g, f=maxima, x=x, at=at: f(g, x, at),
            )

    def test_fractional_ones(self):
        for n, shape in ((2, (2, 2, 6, 6)), (3, (1, 2, 4, 5, 4))):
            x, samples = spread(*shape), torch.rand(shape[0], 2, n, dtype=torch.float64)
            pool = getattr(torch, f"fractional_max_pool{n}d", None) or getattr(
                F, f"fractional_max_pool{n}d_with_indices"
            )
            rest = {"output_size": [2] * n, "_random_samples": samples}
            at = pool(x, 2, **rest)[1]
            backward = getattr(aten, f"fractional_max_pool{n}d_backward")
            check(
                lambda t, pool=pool, rest=rest: pool(t, 2, **rest)[0],
                x,
                lambda g, f=backward, x=x, n=n, at=at: f(g, x, [2] * n, [2] * n, at),
            )

    def test_values_at_the_places_of_maxima(self):
        x = rand(2, 3, 4, 4)
        at = F.max_pool2d(x, 2, return_indices=True)[1]
        got = torch._C._call_row("_grad.max_pool_double_backward", False, (x, at, 2), {})
        torch.testing.assert_close(got, F.max_pool2d(x, 2))

    def test_refusals(self):
        g, x, at = rand(1, 1, 2, 2), rand(1, 1, 4, 4), torch.zeros(1, 1, 2, 2, dtype=torch.int64)
        lists = [2, 2], [2, 2], [0, 0], [1, 1], False
        backward = aten.max_pool2d_with_indices_backward
        with pytest.raises(RuntimeError, match="outside of its plane"):
            backward(g, x, *lists, at + 16)
        with pytest.raises(RuntimeError, match="outside of its plane"):
            backward(g, x, *lists, at - 7)
        with pytest.raises(RuntimeError, match="Expected a tensor of dimension 4"):
            backward(g[..., :1], x, *lists, at)
        with pytest.raises(RuntimeError, match="scalar type Long"):
            backward(g, x, *lists, at.int())
        with pytest.raises(RuntimeError, match="divisor must be not zero"):
            aten.avg_pool2d_backward(g, x, [2, 2], [2, 2], [0, 0], False, True, 0)
        with pytest.raises(RuntimeError, match="expected dtype double"):
            aten.avg_pool2d_backward(g.float(), x, [2, 2], [2, 2], [0, 0], False, True, None)


RESIZED = {
    "upsample_nearest{}d": ("nearest", (1, 2, 3), False),
    "_upsample_nearest_exact{}d": ("nearest-exact", (1, 2, 3), False),
    "upsample_linear{}d": ("linear", (1,), False),
    "upsample_bilinear{}d": ("bilinear", (2,), False),
    "upsample_bicubic{}d": ("bicubic", (2,), False),
    "upsample_trilinear{}d": ("trilinear", (3,), False),
    "_upsample_bilinear{}d_aa": ("bilinear", (2,), True),
    "_upsample_bicubic{}d_aa": ("bicubic", (2,), True),
}


class TestResizing:
    @pytest.mark.parametrize(("before", "after"), [((3, 4, 2), (5, 3, 4)), ((4, 3, 3), (4, 1, 6))])
    @pytest.mark.parametrize("name", RESIZED)
    def test_every_mode(self, name, before, after):
        mode, dims, antialias = RESIZED[name]
        smooth = "linear" in mode or mode == "bicubic"
        for n in dims:
            x = rand(2, 2, *before[:n])
            backward = getattr(aten, name.format(n) + "_backward")
            for align in (False, True) if smooth else (None,):
                given = [] if align is None else [align]
                check(
                    lambda t, n=n, align=align: F.interpolate(
                        t, after[:n], mode=mode, align_corners=align, antialias=antialias
                    ),
                    x,
                    lambda g, f=backward, x=x, n=n, given=given: f(
                        g, list(after[:n]), list(x.shape), *given
                    ),
                )

    def test_given_scales(self):
        x = rand(1, 2, 4, 5)
        size = [int(4 * 1.7), int(5 * 1.7)]
        check(
            lambda t: F.interpolate(t, scale_factor=1.7, mode="bilinear"),
            x,
            lambda g: aten.upsample_bilinear2d_backward(g, size, [1, 2, 4, 5], False, 1.7, 1.7),
        )

    def test_channels_last_stays(self):
        g = rand(2, 3, 6, 6).contiguous(memory_format=torch.channels_last)
        got = aten.upsample_bilinear2d_backward(g, [6, 6], [2, 3, 4, 4], False)
        assert got.is_contiguous(memory_format=torch.channels_last)
        want = aten.upsample_bilinear2d_backward(g.contiguous(), [6, 6], [2, 3, 4, 4], False)
        torch.testing.assert_close(got.contiguous(), want)

    def test_refusals(self):
        g = rand(2, 3, 8, 8)
        with pytest.raises(RuntimeError, match="same shape as output"):
            aten.upsample_nearest2d_backward(g, [8, 7], [2, 3, 4, 4])
        with pytest.raises(RuntimeError, match="dimension 4"):
            aten.upsample_bilinear2d_backward(g[0], [8, 8], [2, 3, 4, 4], False)
        with pytest.raises(RuntimeError, match="greater than 0"):
            aten.upsample_nearest2d_backward(g, [8, 8], [2, 3, 0, 4])


class TestPads:
    @pytest.mark.parametrize("batch", [(), (2,)])
    @pytest.mark.parametrize("pad", [(1, 2, 0, 1, 2, 1), (0, 0, 1, 1, 0, 0), (-1, 1, 2, -1, 0, 1)])
    @pytest.mark.parametrize(
        ("kind", "mode"), [("reflection", "reflect"), ("replication", "replicate")]
    )
    def test_every_kind(self, kind, mode, pad, batch):
        for n in (1, 2, 3):
            x, lengths = rand(*batch, 2, *(4, 3, 4)[:n]), list(pad[: 2 * n])
            backward = getattr(aten, f"{kind}_pad{n}d_backward")
            check(
                lambda t, lengths=lengths: F.pad(t, lengths, mode),
                x,
                lambda g, f=backward, x=x, lengths=lengths: f(g, x, lengths),
            )

    def test_complex_numbers(self):
        g, x = (torch.randn(2, n, dtype=torch.complex64) for n in (7, 4))
        got = aten.reflection_pad1d_backward(g, x, [2, 1])
        for part in ("real", "imag"):
            want = aten.reflection_pad1d_backward(getattr(g, part), getattr(x, part), [2, 1])
            torch.testing.assert_close(getattr(got, part), want)

    def test_refusals(self):
        g = rand(2, 3, 8, 8)
        with pytest.raises(RuntimeError, match="width unexpected"):
            aten.reflection_pad2d_backward(g, rand(2, 3, 6, 5), [1] * 4)
        with pytest.raises(RuntimeError, match="less than the corresponding"):
            aten.reflection_pad1d_backward(rand(2, 6), rand(2, 2), [2, 2])
        with pytest.raises(RuntimeError, match="expected scalar type"):
            aten.replication_pad2d_backward(g, rand(2, 3, 6, 6).float(), [1] * 4)
