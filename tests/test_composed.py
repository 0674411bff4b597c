"""What is composed of other operators in Python: flexible attention, scans, torchvision's operators."""

from __future__ import annotations

import importlib
import math
from typing import Any

import pytest

import torchlike as torch


def test_higher_order_operators_run_their_functions() -> None:
    h = torch._higher_order_ops
    x = torch.arange(1.0, 8.0)
    scan: Any = importlib.import_module(
        "torchlike._higher_order_ops.associative_scan"
    ).associative_scan
    for n in range(1, 8):
        assert scan(torch.add, x[:n], 0).tolist() == x[:n].cumsum(0).tolist()
    assert scan(torch.mul, x, 0, reverse=True).tolist() == x.flip(0).cumprod(0).flip(0).tolist()
    assert h.cond(torch.tensor(True), torch.neg, torch.abs, (x,))[0] == -1
    assert h.while_loop(lambda i: i < 3, lambda i: i + 1, (0,)) == (3,)
    carry, seen = h.scan(lambda c, v: (c + v, c * 1), torch.tensor(0.0), x)
    assert carry == 28 and seen.tolist()[:3] == [0.0, 1.0, 3.0] and h.map(torch.neg, x)[0] == -1


def test_an_example_of_a_batch_is_an_index() -> None:
    table = torch.tensor([[1, 2, 3], [4, 5, 6]])
    rows, columns = torch.arange(2), torch.arange(3)
    both = torch.vmap(torch.vmap(lambda b, k: table[b, k], (None, 0)), (0, None))
    assert both(rows, columns).tolist() == table.tolist()


def test_flex_attention_is_attention() -> None:
    flex: Any = importlib.import_module("torchlike.nn.attention.flex_attention")
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 4, 200, 8) for _ in range(3))
    causal = flex.create_block_mask(lambda b, h, i, j: i >= j, None, None, 200, 200, device="cpu")
    want = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert torch.allclose(flex.flex_attention(q, k, v, block_mask=causal), want, atol=1e-5)
    bias = torch.randn(4)
    changed = flex.flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + bias[h] * (i - j))
    place = torch.arange(200.0)
    mask = bias.view(4, 1, 1) * (place.view(-1, 1) - place)
    assert torch.allclose(
        changed, torch.nn.functional.scaled_dot_product_attention(q, k, v, mask), atol=1e-4
    )
    assert causal.kv_num_blocks.tolist() == [[[1, 2]]] and causal.full_kv_num_blocks.tolist() == [
        [[0, 0]]
    ]
    assert causal.to_dense().tolist() == [[[[1, 0], [1, 1]]]] and causal.shape == (1, 1, 200, 200)
    window = flex.and_masks(lambda b, h, i, j: i >= j, lambda b, h, i, j: i - j < 2)
    assert flex.create_mask(window, None, None, 3, 3, device="cpu")[0, 0].long().tolist() == [
        [1, 0, 0],
        [1, 1, 0],
        [0, 1, 1],
    ]
    nothing = flex.create_block_mask(lambda b, h, i, j: j < 0, None, None, 200, 200, device="cpu")
    assert flex.flex_attention(q, k, v, block_mask=nothing).abs().max() == 0
    grouped, aux = flex.flex_attention(
        q, k[:, :2], v[:, :2], enable_gqa=True, return_aux=flex.AuxRequest(lse=True)
    )
    assert grouped.shape == q.shape and aux.lse.shape == (2, 4, 200) and aux.max_scores is None
    on_meta = [t.to("meta") for t in (q, k, v)]
    assert flex.flex_attention(*on_meta).shape == q.shape
    with pytest.raises(ValueError, match="Try setting enable_gqa=True for GQA"):
        flex.flex_attention(q, k[:, :1], v[:, :1])


def test_torchvisions_operators_have_kernels() -> None:
    from torchlike.compat import _torchvision

    _torchvision.register()
    ops = torch.ops.torchvision
    boxes = torch.tensor([[0.0, 0, 10, 10], [1, 1, 10, 10], [20, 20, 30, 30]])
    assert ops.nms(boxes, torch.tensor([0.5, 0.9, 0.1]), 0.5).tolist() == [1, 2]
    torch.manual_seed(0)
    x, w = torch.randn(1, 4, 6, 6), torch.randn(2, 2, 3, 3)
    offset, bias = torch.zeros(1, 18, 6, 6), torch.zeros(2)
    got = ops.deform_conv2d(
        x, w, offset, torch.ones(1, 9, 6, 6), bias, 1, 1, 1, 1, 1, 1, 2, 1, True
    )
    assert torch.allclose(got, torch.nn.functional.conv2d(x, w, padding=1, groups=2), atol=1e-5)
    with pytest.raises(NotImplementedError, match="torchvision::qnms is not supported"):
        ops.qnms(boxes, torch.tensor([0.5, 0.9, 0.1]), 0.5)


REGIONS = [
    [0, 1.0, 2.0, 9.0, 7.0],
    [1, -3.0, -2.0, 5.0, 4.6],
    [1, 3.3, 3.3, 3.4, 3.5],
    [0, 7.0, 6.0, 30.0, 25.0],
]


def sample(image, y, x):
    """A bilinear value, or zero outside."""
    h, w = image.shape
    if not (-1 <= y <= h and -1 <= x <= w):
        return 0.0
    y, x = min(max(y, 0), h - 1), min(max(x, 0), w - 1)
    top, left = int(y), int(x)
    bottom, right = min(top + 1, h - 1), min(left + 1, w - 1)
    dy, dx = y - top, x - left
    upper = image[top, left] * (1 - dx) + image[top, right] * dx
    return float(
        upper * (1 - dy) + (image[bottom, left] * (1 - dx) + image[bottom, right] * dx) * dy
    )


def sampled(image, y, x, tall, wide, samples):
    ny = samples if samples > 0 else math.ceil(tall)
    nx = samples if samples > 0 else math.ceil(wide)
    at = [
        sample(image, y + (i + 0.5) * tall / ny, x + (j + 0.5) * wide / nx)
        for i in range(ny)
        for j in range(nx)
    ]
    return sum(at) / max(len(at), 1)


def block(image, y, x, tall, wide, last):
    top, bottom = (
        min(max(v, 0), image.shape[0] - last) for v in (math.floor(y), math.ceil(y + tall))
    )
    left, right = (
        min(max(v, 0), image.shape[1] - last) for v in (math.floor(x), math.ceil(x + wide))
    )
    return image[top:bottom, left:right]


def test_regions_by_their_definition() -> None:
    from torchlike.compat import _torchvision

    _torchvision.register()
    ops, (h, w) = torch.ops.torchvision, (3, 2)
    torch.manual_seed(0)
    x = torch.randn(2, 12, 8, 9, dtype=torch.float64)
    rois = torch.tensor(REGIONS, dtype=torch.float64)
    bins = [(i, j) for i in range(h) for j in range(w)]
    for samples, scale in ((2, 1.0), (-1, 0.5)):
        aligned = ops.roi_align(x, rois, scale, h, w, samples, True)
        plain = ops.roi_align(x, rois, scale, h, w, samples, False)
        own, channels = ops.ps_roi_align(x, rois, scale, h, w, samples)
        pooled, places = ops.roi_pool(x, rois, scale, h, w)
        means, _ = ops.ps_roi_pool(x, rois, scale, h, w)
        for k, (n, *corners) in enumerate(REGIONS):
            x1, y1, x2, y2 = (c * scale for c in corners)
            tall, wide = (y2 - y1) / h, (x2 - x1) / w
            at_least = max(y2 - y1, 1) / h, max(x2 - x1, 1) / w
            r = [math.floor(abs(c * scale) + 0.5) * (1 if c >= 0 else -1) for c in corners]
            size = (max(r[3] - r[1] + 1, 1) / h, max(r[2] - r[0] + 1, 1) / w)
            less = (max(r[3] - r[1], 1) / h, max(r[2] - r[0], 1) / w)
            for i, j in bins:
                c = (i * w) + j
                image, mine = x[n, 0], x[n, c]
                where = (y1 + i * tall - 0.5, x1 + j * wide - 0.5, tall, wide)
                assert aligned[k, 0, i, j].item() == pytest.approx(sampled(image, *where, samples))
                assert own[k, 0, i, j].item() == pytest.approx(sampled(mine, *where, samples))
                where = (y1 + i * at_least[0], x1 + j * at_least[1], *at_least)
                assert plain[k, 0, i, j].item() == pytest.approx(sampled(image, *where, samples))
                assert channels[k, 0, i, j] == c and channels[k, 1, i, j] == c + h * w
                low = (math.floor(i * size[0]) + r[1], math.floor(j * size[1]) + r[0])
                high = (math.ceil((i + 1) * size[0]) + r[1], math.ceil((j + 1) * size[1]) + r[0])
                part = block(image, *low, high[0] - low[0], high[1] - low[1], 0)
                want = part.max().item() if part.numel() else 0.0
                assert pooled[k, 0, i, j].item() == want
                place = places[k, 0, i, j].item()
                assert place == -1 if not part.numel() else image.view(-1)[place] == want
                part = block(mine, r[1] + i * less[0], r[0] + j * less[1], *less, 1)
                want = part.mean().item() if part.numel() else 0.0
                assert means[k, 0, i, j].item() == pytest.approx(want)


def test_gradients_of_regions() -> None:
    from torchlike.compat import _torchvision

    _torchvision.register()
    ops = torch.ops.torchvision
    torch.manual_seed(0)
    x = torch.randn(2, 4, 5, 6, dtype=torch.float64, requires_grad=True)
    rois = torch.tensor([[0, 1.0, 0.0, 5.0, 4.0], [1, -1.0, 2.0, 3.0, 9.0]], dtype=torch.float64)
    bins, sizes = (1.0, 2, 2), (2, 4, 5, 6)
    pooled, places = ops.roi_pool(x, rois, *bins)
    own, channels = ops.ps_roi_align(x, rois, *bins, 2)
    means, channels = ops.ps_roi_pool(x, rois, *bins)
    pairs = [
        (pooled, lambda g: ops._roi_pool_backward(g, rois, places, *bins, *sizes)),
        (own, lambda g: ops._ps_roi_align_backward(g, rois, channels, *bins, 2, *sizes)),
        (means, lambda g: ops._ps_roi_pool_backward(g, rois, channels, *bins, *sizes)),
        (
            ops.roi_align(x, rois, *bins, 2, True),
            lambda g: ops._roi_align_backward(g, rois, *bins, *sizes, 2, True),
        ),
    ]
    for result, backward in pairs:
        seed = torch.randn_like(result)
        (want,) = torch.autograd.grad(result, x, seed)
        torch.testing.assert_close(backward(seed), want)
    assert torch.autograd.gradcheck(lambda t: ops.roi_pool(t, rois, *bins)[0], x)
    assert torch.autograd.gradcheck(lambda t: ops.ps_roi_align(t, rois, *bins, -1)[0], x)
    on_meta = ops.ps_roi_pool(x.detach().to("meta"), rois.to("meta"), *bins)
    assert [tuple(t.shape) for t in on_meta] == [(2, 1, 2, 2)] * 2 and on_meta[
        1
    ].dtype == torch.int32
    assert ops.roi_align(x, rois[:0], *bins, 2, True).shape == (0, 4, 2, 2)
    with pytest.raises(RuntimeError, match="multiple of pooling height"):
        ops.ps_roi_pool(x, rois, 1.0, 3, 3)
    with pytest.raises(RuntimeError, match="K, 5"):
        ops.roi_pool(x, rois[:, :4], *bins)
    with pytest.raises(RuntimeError, match="same type"):
        ops.roi_pool(x, rois.float(), *bins)


def test_causal_masks_of_two_lengths() -> None:
    from torchlike.nn.attention import bias

    torch.manual_seed(0)
    q, k, v = torch.randn(1, 2, 3, 4), torch.randn(1, 2, 5, 4), torch.randn(1, 2, 5, 4)
    attend = torch.nn.functional.scaled_dot_product_attention
    low, up = bias.causal_lower_right(3, 5), bias.causal_upper_left(3, 5)
    want = attend(q, k, v, torch.ones(3, 5, dtype=torch.bool).tril(2))
    torch.testing.assert_close(attend(q, k, v, low), want)
    torch.testing.assert_close(attend(q, k, v, attn_mask=up), attend(q, k, v, is_causal=True))
    assert low.variant is bias.CausalVariant.LOWER_RIGHT and "True" in repr(up)
    with pytest.raises(ValueError, match="causal=True"):
        attend(q, k, v, low, is_causal=True)
    with pytest.raises(AssertionError, match="must be a CausalVariant"):
        bias.CausalBias(3, 2, 4)  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match="only supports 2D"):
        bias.causal_upper_left(2)


def test_norms_over_several_dimensions_are_what_is_divided_by():
    x = torch.arange(8.0).view(2, 2, 2) + 1
    for dims, over in (((0, 2), (0, 2)), ([1], (1,)), (None, (0, 1, 2))):
        wanted = x / x.square().sum(over, keepdim=True).sqrt()
        assert torch.allclose(torch.nn.functional.normalize(x, dim=dims), wanted)


@pytest.mark.parametrize("sizes", [(1, 1, 4), (3, 4, 4), (3, 1, 4), (4, 4), (1, 1, 1, 4)])
def test_masks_of_attention_of_any_number_of_dimensions_have_gradients(sizes):
    q, k, v = (torch.randn(2, 3, 4, 8, dtype=torch.float64, requires_grad=True) for _ in range(3))
    mask = torch.randn(sizes, dtype=torch.float64)
    attention = torch.nn.functional.scaled_dot_product_attention
    made = attention(q, k, v, attn_mask=mask)
    wanted = ((q @ k.mT) * 8**-0.5 + mask).softmax(-1) @ v
    assert torch.allclose(made, wanted)
    for a, b in zip(
        torch.autograd.grad(made.sum(), (q, k)),
        torch.autograd.grad(wanted.sum(), (q, k)),
        strict=True,
    ):
        assert torch.allclose(a, b)


def test_masks_of_attention_make_nothing_larger():
    q = torch.randn(3, 4, 8)
    attention = torch.nn.functional.scaled_dot_product_attention
    with pytest.raises(RuntimeError, match=r"output with shape \[3, 4, 4\] doesn't match"):
        attention(q, q, q, attn_mask=torch.zeros(2, 3, 4, 4))
    with pytest.raises(IndexError, match="but got -2"):
        attention(q[None], q[None], q[None], attn_mask=torch.zeros(4))
    assert attention(q, q, q, attn_mask=torch.zeros(4)).shape == (3, 4, 8)


@pytest.mark.parametrize("queries", [1, 5])
@pytest.mark.parametrize("how", [None, "causal", "keys", "all"])
@pytest.mark.parametrize("turned", [False, True])
def test_heads_that_share_keys_are_those_with_keys_of_their_own(queries, how, turned):
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 6, queries, 8), torch.randn(2, 2, 7, 8), torch.randn(2, 2, 7, 8)
    if turned:
        q, k, v = (t.transpose(1, 2).contiguous().transpose(1, 2) for t in (q, k, v))
    mask = {"keys": (2, 1, 1, 7), "all": (2, 6, queries, 7)}.get(how)
    options = {"is_causal": how == "causal"}
    if mask is not None:
        options = {"attn_mask": torch.rand(mask) < 0.7}
    attention = torch.nn.functional.scaled_dot_product_attention
    made = attention(q, k, v, enable_gqa=True, **options)
    k, v = (t.repeat_interleave(3, 1) for t in (k, v))
    torch.testing.assert_close(made, attention(q, k, v, **options))


@pytest.mark.parametrize(
    ("equation", "shapes", "strides"),
    [
        ("ab,bc->ca", [(2, 3), (3, 4)], (2, 1)),
        ("ab,bc->ac", [(2, 3), (3, 4)], (4, 1)),
        ("abd,abc->cda", [(2, 3, 5), (2, 3, 4)], (5, 1, 20)),
        ("abd,abc->dca", [(2, 3, 5), (2, 3, 4)], (4, 1, 20)),
        ("abc,bde->deac", [(2, 3, 4), (3, 5, 6)], (48, 8, 4, 1)),
        ("abc,bde->daec", [(2, 3, 4), (3, 5, 6)], (6, 120, 1, 30)),
    ],
)
def test_einsum_multiplies_so_that_results_lie_in_order(equation, shapes, strides):
    made = torch.einsum(equation, *[torch.rand(s) for s in shapes])
    assert made.stride() == strides
