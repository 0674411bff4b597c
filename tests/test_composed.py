"""What is composed of other operators in Python: flexible attention, scans, torchvision's operators."""

from __future__ import annotations

import importlib
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
    with pytest.raises(NotImplementedError, match="torchvision::roi_pool is not supported"):
        ops.roi_pool(x, torch.zeros(1, 5), 1.0, 2, 2)
