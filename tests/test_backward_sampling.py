"""Backward operators of attention and of sampling at grids: each is the numerical derivative of its forward."""

from __future__ import annotations

import functools
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


class TestAttention:
    @pytest.mark.parametrize("causal", [False, True])
    @pytest.mark.parametrize("mask", [None, (4, 5), (1, 2, 1, 5)])
    @pytest.mark.parametrize("scale", [None, 0.3])
    def test_three_gradients(self, causal, mask, scale):
        q, k, v = rand(1, 2, 4, 3), rand(1, 2, 5, 3), rand(1, 2, 5, 3)
        bias = None if mask is None else rand(*mask)
        more = {"attn_mask": bias, "scale": scale}
        flash = torch._scaled_dot_product_flash_attention_for_cpu
        out, sums = flash(q, k, v, 0.0, causal, **more)
        scores = q @ k.transpose(-1, -2) * (scale or 3**-0.5) + (0 if bias is None else bias)
        if causal:
            scores = scores.masked_fill(~torch.ones(4, 5, dtype=torch.bool).tril(), -math.inf)
        torch.testing.assert_close(sums, scores.logsumexp(-1))
        torch.testing.assert_close(out, scores.softmax(-1) @ v)

        def backward(which):
            return lambda g: aten._scaled_dot_product_flash_attention_for_cpu_backward(
                g, q, k, v, out, sums, 0.0, causal, **more
            )[which]

        check(lambda t: flash(t, k, v, 0.0, causal, **more)[0], q, backward(0))
        check(lambda t: flash(q, t, v, 0.0, causal, **more)[0], k, backward(1))
        check(lambda t: flash(q, k, t, 0.0, causal, **more)[0], v, backward(2))

    def test_heads_that_share_keys_and_hidden_rows(self):
        q, k, v = rand(1, 4, 3, 2), rand(1, 2, 3, 2), rand(1, 2, 3, 2)
        mask = torch.zeros(3, 3, dtype=torch.float64)
        mask[1] = -math.inf
        flash = torch._scaled_dot_product_flash_attention_for_cpu
        out, sums = flash(q, k, v, attn_mask=mask)
        assert not out[:, :, 1].any()
        for which, x in enumerate((q, k, v)):
            check(
                lambda t, i=which: flash(
                    *((q, k, v)[:i] + (t,) + (q, k, v)[i + 1 :]), attn_mask=mask
                )[0],
                x,
                lambda g, i=which: aten._scaled_dot_product_flash_attention_for_cpu_backward(
                    g, q, k, v, out, sums, 0.0, False, attn_mask=mask
                )[i],
            )

    def test_long_rows_in_blocks(self):
        q, k, v = (torch.randn(1, 2, 300, 16) for _ in range(3))
        flash = torch._scaled_dot_product_flash_attention_for_cpu
        backward = aten._scaled_dot_product_flash_attention_for_cpu_backward
        g = torch.randn_like(q)
        low = backward(g, q, k, v, *flash(q, k, v, 0.0, True), 0.0, True)
        g, q, k, v = (t.double() for t in (g, q, k, v))
        high = backward(g, q, k, v, *flash(q, k, v, 0.0, True), 0.0, True)
        for a, b in zip(low, high, strict=True):
            torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-4)

    def test_refusals(self):
        q = rand(1, 2, 4, 3)
        flash = torch._scaled_dot_product_flash_attention_for_cpu
        with pytest.raises(RuntimeError, match="do not support dropout"):
            flash(q, q, q, 0.5)
        with pytest.raises(RuntimeError, match="4 dims"):
            flash(q[0], q[0], q[0])
        with pytest.raises(RuntimeError, match="same head size"):
            flash(q, q, q[..., :2])
        with pytest.raises(RuntimeError, match="same batches"):
            flash(q, q.expand(2, 2, 4, 3), q.expand(2, 2, 4, 3))
        with pytest.raises(RuntimeError, match="share"):
            flash(rand(1, 3, 4, 3), q, q)
        with pytest.raises(RuntimeError, match="same data type"):
            flash(q, q, q, attn_mask=torch.ones(4, 4, dtype=torch.bool))


class TestGrids:
    @pytest.mark.parametrize("align", [False, True])
    @pytest.mark.parametrize("outside", [0, 1, 2])
    @pytest.mark.parametrize("mode", [0, 1, 2])
    def test_samples(self, mode, outside, align):
        rest = mode, outside, align
        for n, size, places in ((2, (4, 5), (3, 2)), (3, (3, 4, 3), (2, 1, 2))):
            if n == 3 and mode == 2:
                continue
            x, grid = rand(2, 2, *size), rand(2, *places, n)
            forward = getattr(torch, f"grid_sampler_{n}d")
            backward = getattr(aten, f"grid_sampler_{n}d_backward")
            both = functools.partial(
                backward, input=x, grid=grid, interpolation_mode=mode, padding_mode=outside,
                align_corners=align, output_mask=[True, True],
            )  # fmt: skip
            check(lambda t, f=forward, y=grid: f(t, y, *rest), x, lambda g, f=both: f(g)[0])
            check(lambda t, f=forward, y=x: f(y, t, *rest), grid, lambda g, f=both: f(g)[1])

    def test_what_users_call(self):
        x, theta = rand(2, 3, 4, 5), rand(2, 2, 3)
        grid = F.affine_grid(theta, [2, 3, 4, 5], align_corners=False)
        assert grid.shape == (2, 4, 5, 2)
        identity = torch.eye(2, 3, dtype=torch.float64).expand(2, 2, 3)
        same = F.affine_grid(identity, [2, 3, 4, 5], align_corners=False)
        torch.testing.assert_close(F.grid_sample(x, same, align_corners=False), x)
        for size in ([2, 3, 4, 5], [2, 1, 2, 3, 2]):
            n = len(size) - 2
            for align in (False, True):
                check(
                    lambda t, size=size, align=align: torch.affine_grid_generator(t, size, align),
                    rand(2, n, n + 1),
                    lambda g, size=size, align=align: aten.affine_grid_generator_backward(
                        g, size, align
                    ),
                )

    def test_places_that_are_no_numbers(self):
        x = torch.arange(6.0).reshape(1, 1, 2, 3)
        grid = (
            torch.tensor([math.nan, math.inf, -math.inf, 1e30])
            .reshape(1, 1, 4, 1)
            .expand(1, 1, 4, 2)
        )
        assert F.grid_sample(
            x, grid, padding_mode="border", align_corners=False
        ).flatten().tolist() == [0, 5, 0, 5]
        assert F.grid_sample(x, grid, mode="nearest", align_corners=False).flatten().tolist() == [
            0,
            0,
            0,
            0,
        ]
        for mode, outside in itertools.product((0, 1, 2), (0, 1, 2)):
            aten.grid_sampler_2d_backward(
                torch.ones(1, 1, 1, 4), x, grid, mode, outside, True, [True, True]
            )

    @pytest.mark.parametrize("mode", ["bilinear", "nearest"])
    @pytest.mark.parametrize("align", [False, True])
    @pytest.mark.parametrize(
        ("height", "width", "odd"),
        [
            (5, 6, (0, 0)),
            (5, 6, (0, 1)),
            (5, 6, (2, 5)),
            (5, 6, (3, 0)),
            (5, 1, (2, 0)),
            (1, 3, (0, 1)),
        ],
    )
    def test_many_places_are_sums_of_neighbours(self, mode, align, height, width, odd):
        """More places than are looked at together, in several images, some of them far outside."""
        x, grid = rand(3, 2, height, width), rand(3, 11, 13, 2) * 3 - 1.5
        grid[0, 0, :4] = torch.tensor([[1e9, 0], [0, -1e9], [1e30, 0], [-1e30, 1e30]])
        x[(0, 0, *odd)] = math.inf  # What is outside of an image is not times zero.
        size = torch.tensor([width, height])
        at = (grid + 1) * (size - 1) / 2 if align else (grid + 1) * size / 2 - 0.5
        found = F.grid_sample(x, grid, mode=mode, align_corners=align)
        for n, i, j in itertools.product(range(3), range(11), range(13)):
            px, py = at[n, i, j].tolist()
            want = torch.zeros(2, dtype=torch.float64)
            for row, column in itertools.product(range(height), range(width)):
                if mode == "nearest":
                    near = max(abs(px - column), abs(py - row)) <= 0.5
                    weight = float(near)
                else:
                    weight = max(0, 1 - abs(px - column)) * max(0, 1 - abs(py - row))
                want += weight * x[n, :, row, column] if weight else 0
            torch.testing.assert_close(found[n, :, i, j], want)

    @pytest.mark.parametrize("outside", ["zeros", "border", "reflection"])
    @pytest.mark.parametrize("dim", [2, 3])
    def test_planes_are_sampled_alike_whatever_they_hold(self, outside, dim):
        """A plane whose first elements are no numbers is sampled in another way than the others."""
        x, grid = rand(1, 4, *(5, 7, 3)[:dim]), rand(1, 9, *(10, 2)[: dim - 1], dim) * 4 - 2
        grid[0, 3] = math.nan
        how = {"padding_mode": outside, "align_corners": False}
        want = F.grid_sample(x, grid, **how)
        x[:, 0].view(-1)[0], x[:, 2].view(-1)[1] = math.nan, math.inf
        found = F.grid_sample(x, grid, **how)
        assert torch.equal(found[:, 1::2].nan_to_num(9), want[:, 1::2].nan_to_num(9))
        for channel in (0, 2):
            known = found[:, channel].isfinite()
            assert torch.equal(found[:, channel][known], want[:, channel][known])
            assert known.sum() > known.numel() // 2

    def test_refusals(self):
        x, grid = rand(2, 3, 5, 6), rand(2, 4, 7, 2)
        with pytest.raises(ValueError, match="expected mode to be"):
            F.grid_sample(x, grid, mode="none")
        with pytest.raises(ValueError, match="expected padding_mode to be"):
            F.grid_sample(x, grid, padding_mode="none")
        with pytest.raises(RuntimeError, match="size 2 in last dimension"):
            F.grid_sample(x, grid[..., :1])
        with pytest.raises(RuntimeError, match="same batch size"):
            F.grid_sample(x, grid[:1])
        with pytest.raises(RuntimeError, match="non-empty spatial"):
            F.grid_sample(x[:, :, :0], grid)
        with pytest.raises(RuntimeError, match="only supports 4D"):
            F.grid_sample(rand(2, 3, 4, 5, 6), rand(2, 3, 3, 3, 3), mode="bicubic")
        with pytest.raises(RuntimeError, match="no interpolation mode"):
            torch.grid_sampler_2d(x, grid, 5, 0, False)
        with pytest.raises(ValueError, match="2D affine matrices"):
            F.affine_grid(rand(2, 3), [2, 3, 4, 5])
        with pytest.raises(NotImplementedError, match="only supports 4D and 5D"):
            F.affine_grid(rand(2, 2, 3), [2, 3, 4])
        with pytest.raises(ValueError, match="non-zero, positive"):
            F.affine_grid(rand(2, 2, 3), [2, 3, 0, 5])
