"""Attention by blocks of queries against its definition: sizes that meet the ends of tiles and blocks."""

import itertools

import pytest

import torchlike as torch
import torchlike.nn.functional as F

TURNS = {
    "rows": lambda *size: torch.randn(size),
    "heads inside": lambda b, h, n, e: torch.randn(b, n, h, e).transpose(1, 2),
    "columns": lambda b, h, n, e: torch.randn(b, h, e, n).transpose(2, 3),
    "off by one": lambda b, h, n, e: torch.randn(b, h, n, e + 1)[..., 1:],
}
SIZES = [
    (16, 16, 16, 16),
    (17, 33, 17, 20),
    (130, 300, 33, 64),
    (64, 700, 64, 32),
    (40, 18, 80, 17),
]


def masks(batch, queries, keys):
    yield "none", None, False
    yield "causal", None, True
    yield "truths", torch.rand(queries, keys) < 0.7, False
    yield "numbers", torch.randn(batch, 1, queries, keys), False
    yield "of keys", torch.rand(batch, 2, 1, keys) < 0.5, False


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize(("queries", "keys", "width", "values"), SIZES)
def test_blocks_of_queries(queries, keys, width, values, turn, dtype):
    torch.manual_seed(0)
    make, before = TURNS[turn], torch.get_num_threads()
    near = 0.03 if dtype == torch.bfloat16 else 1e-5
    for (name, mask, causal), shared in itertools.product(masks(2, queries, keys), [False, True]):
        heads = 1 if shared else 2
        q, k, v = (
            make(2, 2, queries, width),
            make(2, heads, keys, width),
            make(2, heads, keys, values),
        )
        q, k, v = (t.to(dtype) for t in (q, k, v))
        add = mask.to(dtype) if name == "numbers" else mask
        options = {"is_causal": causal, "enable_gqa": shared, "scale": 0.3}
        found = []
        for count in (1, 3):
            torch.set_num_threads(count)
            found.append(F.scaled_dot_product_attention(q, k, v, add, **options))
        torch.set_num_threads(before)
        wide = add.double() if name == "numbers" else add
        want = F.scaled_dot_product_attention(*(t.double() for t in (q, k, v)), wide, **options)
        assert torch.equal(*found), name
        assert (found[0].double() - want).abs().max() < near, name


def test_queries_that_see_nothing_and_numbers_that_are_none():
    q, k, v = torch.randn(3, 1, 1, 40, 32, dtype=torch.bfloat16)
    mask = torch.ones(40, 40, dtype=torch.bool)
    mask[5] = False
    out = F.scaled_dot_product_attention(q, k, v, mask)
    assert not out[0, 0, 5].any()
    assert out.isfinite().all()
    q[0, 0, 7, 3] = torch.nan
    out = F.scaled_dot_product_attention(q, k, v, mask)
    assert out[0, 0, 7].isnan().all()
    assert out[0, 0, [*range(7), *range(8, 40)]].isfinite().all()
