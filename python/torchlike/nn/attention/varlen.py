"""Attention over sequences of several lengths that lie one behind the other, without padding."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import torchlike as torch
from torchlike import _C
from torchlike.nn.functional import scaled_dot_product_attention

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torchlike._C import Tensor

__all__ = ["AuxRequest", "varlen_attn", "varlen_attn_out"]


class AuxRequest(NamedTuple):
    """What is given beside the output: `lse` asks for the logarithms of the sums of exponentials."""

    lse: bool = False


class _Way(NamedTuple):
    """How each sequence is attended to."""

    scale: float | None
    window: tuple[int, int]
    grouped: bool


def varlen_attn(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    *,
    return_aux: AuxRequest | None = None,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
    enable_gqa: bool = False,
    seqused_k: Tensor | None = None,
    block_table: Tensor | None = None,
    num_splits: int | None = None,
) -> Any:
    """Attention within each sequence. Where values are unknown, sequences are taken to be of one length.

    Args:
        query: `(tokens, heads, features)` of all sequences, the first one first.
        key: the same of the keys; with `block_table`, `(pages, tokens of a page, heads, features)`.
        value: the same of the values.
        cu_seq_q: where sequences begin in `query`, and where the last one ends.
        cu_seq_k: the same for `key` and `value`; not asked for with `block_table`.
        max_q: the largest number of queries; nothing depends on it here.
        max_k: the largest number of keys; nothing depends on it here.
        return_aux: what is given beside the output.
        scale: what scores are multiplied by. None: one by the root of the number of features.
        window_size: how many keys before and behind its place a query sees, -1: all. Ends are at one place.
        enable_gqa: whether several heads of `query` may share one of `key`.
        seqused_k: how many keys of each sequence count.
        block_table: which pages each sequence has.
        num_splits: how GPUs cut the work; nothing depends on it here.

    Raises:
        ValueError: if heads, windows or pages do not fit.
    """
    if len(window_size) != 2:
        raise ValueError(f"window_size must have length 2, got {len(window_size)}")
    if block_table is not None and seqused_k is None:
        raise ValueError("block_table requires seqused_k")
    _check_heads(query.size(1), key.size(-2), enable_gqa)
    way = _Way(scale, (window_size[0], window_size[1]), enable_gqa)
    starts = _numbers(cu_seq_q, query.size(0))
    keys = list(_keys(key, value, cu_seq_k, seqused_k, block_table))
    pieces = [query[a:b] for a, b in itertools.pairwise(starts)]
    outputs = [_attend(q, k, v, way) for q, (k, v) in zip(pieces, keys, strict=True)]
    out = torch.cat(outputs) if outputs else torch.zeros_like(query)
    if return_aux is None or not return_aux.lse:
        return out
    sums = [_log_sums(q, k, way) for q, (k, _) in zip(pieces, keys, strict=True)]
    return out, torch.cat(sums, 1) if sums else query.new_empty(query.size(1), 0)


def varlen_attn_out(out: Tensor, query: Tensor, *rest: Any, **options: Any) -> Any:
    """As :func:`varlen_attn`, whose arguments it takes after `out`, which gets the result.

    Raises:
        ValueError: if heads, windows or pages do not fit.
    """
    with torch.no_grad():
        made = varlen_attn(query, *rest, **options)
        if isinstance(made, tuple):
            return out.copy_(made[0]), made[1]
        return out.copy_(made)


def _check_heads(queries: int, keys: int, grouped: bool) -> None:
    if not grouped and queries != keys:
        raise ValueError(
            "Expect query and key/value to have the same number of heads "
            f"but got Hq={queries} and Hkv={keys}. Try setting enable_gqa=True for GQA."
        )
    if grouped and queries % keys:
        raise ValueError(
            "Expect number of query heads to be a multiple of kv heads for GQA "
            f"but got Hq={queries} and Hkv={keys}."
        )


def _is_unknown(t: Tensor) -> bool:
    """True for values that nobody has: on meta without a source, and of fake tensors."""
    return _C._is_fake(t) or (t.is_meta and t.source is None)


def _numbers(starts: Tensor, total: int) -> list[int]:
    """Where sequences begin, and where the last one ends."""
    if not _is_unknown(starts):
        found: list[int] = starts.tolist()
        return found
    count = max(starts.numel() - 1, 1)
    return [i * total // count for i in range(count + 1)]


def _keys(
    key: Tensor, value: Tensor, starts: Tensor | None, used: Tensor | None, pages: Tensor | None
) -> Iterator[tuple[Tensor, Tensor]]:
    """The keys and values of each sequence."""
    known = None if used is None or _is_unknown(used) else used.tolist()
    if pages is not None:
        for i, row in enumerate(pages):
            both = (t[row.clamp(min=0)].flatten(0, 1) for t in (key, value))
            k, v = (t if known is None else t[: known[i]] for t in both)
            yield k, v
        return
    if starts is None:
        raise ValueError("cu_seq_k is needed where there is no block_table")
    ends = _numbers(starts, key.size(0))
    for i, (a, b) in enumerate(itertools.pairwise(ends)):
        stop = b if known is None else min(b, a + known[i])
        yield key[a:stop], value[a:stop]


def _seen(queries: int, keys: int, window: Sequence[int], device: Any) -> Tensor | None:
    """Which keys a query sees; None: all."""
    before, behind = window
    if before < 0 and behind < 0:
        return None
    place = torch.arange(queries, device=device)[:, None] + (keys - queries)
    at = torch.arange(keys, device=device)
    seen = torch.ones(queries, keys, dtype=torch.bool, device=device)
    if before >= 0:
        seen = seen & (at >= place - before)
    if behind >= 0:
        seen = seen & (at <= place + behind)
    return seen


def _attend(query: Tensor, key: Tensor, value: Tensor, way: _Way) -> Tensor:
    """One sequence's output; zeros for queries that see nothing."""
    if not query.size(0) or not key.size(0):
        return torch.zeros_like(query)
    mask = _seen(query.size(0), key.size(0), way.window, query.device)
    q, k, v = (t.transpose(0, 1)[None] for t in (query, key, value))
    made: Tensor = scaled_dot_product_attention(
        q, k, v, attn_mask=mask, scale=way.scale, enable_gqa=way.grouped
    )
    return made[0].transpose(0, 1)


def _log_sums(query: Tensor, key: Tensor, way: _Way) -> Tensor:
    """The logarithms of the sums of the exponentials of one sequence's scores, `(heads, queries)`."""
    q, k = (t.transpose(0, 1).float() for t in (query, key))
    k = k.repeat_interleave(q.size(0) // k.size(0), 0)
    scale = query.size(-1) ** -0.5 if way.scale is None else way.scale
    scores = q @ k.transpose(1, 2) * scale
    mask = _seen(query.size(0), key.size(0), way.window, query.device)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return scores.logsumexp(-1)
