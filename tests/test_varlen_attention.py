"""`nn.attention.varlen`: attention over sequences of several lengths in one tensor."""

from __future__ import annotations

import pytest

import torchlike as torch
from torchlike._subclasses import FakeTensorMode
from torchlike.nn.attention.varlen import AuxRequest, varlen_attn, varlen_attn_out

Q = torch.tensor([0, 2, 2, 5])
K = torch.tensor([0, 3, 4, 8])


def drawn(seed: int, tokens: int, heads: int) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(tokens, heads, 4, generator=g, dtype=torch.float64)


def by_hand(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, window: tuple[int, int]
) -> torch.Tensor:
    """Token by token: what one query sees of its sequence."""
    made = torch.zeros_like(q)
    for a, b, c, d in zip(
        Q[:-1].tolist(), Q[1:].tolist(), K[:-1].tolist(), K[1:].tolist(), strict=True
    ):
        for i in range(a, b):
            place = c + (i - a) + (d - c) - (b - a)
            first = c if window[0] < 0 else max(c, place - window[0])
            last = d if window[1] < 0 else min(d, place + window[1] + 1)
            for h in range(q.size(1)):
                if first < last:
                    scores = (k[first:last, h] @ q[i, h]) * 0.5
                    made[i, h] = scores.softmax(0) @ v[first:last, h]
    return made


@pytest.mark.parametrize("window", [(-1, -1), (-1, 0), (1, 0), (0, 1), (2, -1)])
def test_each_sequence_sees_itself_alone(window: tuple[int, int]) -> None:
    q, k, v = (drawn(i, n, 2) for i, n in enumerate((5, 8, 8)))
    q.requires_grad_()
    made = varlen_attn(q, k, v, Q, K, 3, 4, window_size=window)
    torch.testing.assert_close(made, by_hand(q.detach(), k, v, window))
    made.sum().backward()
    assert q.grad is not None and bool(q.grad.isfinite().all())


def test_sums_and_an_output_of_the_callers() -> None:
    q, k, v = (drawn(i, n, h) for i, (n, h) in enumerate(((5, 4), (8, 2), (8, 2))))
    out = torch.empty_like(q)
    asked = {"enable_gqa": True, "return_aux": AuxRequest(lse=True)}
    made, sums = varlen_attn_out(out, q, k, v, Q, K, 3, 4, **asked)
    assert made is out and out.equal(varlen_attn(q, k, v, Q, K, 3, 4, enable_gqa=True))
    want = (k[:3, 0].float() @ q[0, 1].float() * 0.5).logsumexp(0)
    torch.testing.assert_close(sums[1, 0], want)
    assert sums.shape == (4, 5)


def test_pages_are_put_together() -> None:
    q, k, v = (drawn(i, n, 2) for i, n in enumerate((5, 8, 8)))
    table, used = torch.tensor([[3, 0], [1, -1], [2, 1]]), torch.tensor([3, 1, 4])
    pools = [t.view(4, 2, 2, 4) for t in (k, v)]
    made = varlen_attn(q, *pools, Q, None, 3, 4, seqused_k=used, block_table=table)
    order = [6, 7, 0, 2, 4, 5, 2, 3]
    torch.testing.assert_close(made, by_hand(q, k[order], v[order], (-1, -1)))


def test_nothing_is_known_on_meta() -> None:
    q = torch.empty(6, 2, 4, device="meta", requires_grad=True)
    made = varlen_attn(q, q, q, Q.to("meta"), Q.to("meta"), 3, 3)
    assert made.is_meta and made.shape == q.shape and made.requires_grad
    with FakeTensorMode():
        fake = torch.empty(6, 2, 4, device="cuda")
        starts = torch.empty(3, dtype=torch.int32, device="cuda")
        assert varlen_attn(fake, fake, fake, starts, starts, 3, 3).device.type == "cuda"


def test_what_does_not_fit_is_refused() -> None:
    q, k = drawn(0, 5, 3), drawn(1, 8, 2)
    with pytest.raises(ValueError, match="the same number of heads but got Hq=3 and Hkv=2"):
        varlen_attn(q, k, k, Q, K, 3, 4)
    with pytest.raises(ValueError, match="a multiple of kv heads for GQA"):
        varlen_attn(q, k, k, Q, K, 3, 4, enable_gqa=True)
    with pytest.raises(ValueError, match="requires seqused_k"):
        varlen_attn(q, k, k, Q, K, 3, 4, block_table=Q)
