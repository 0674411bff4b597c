"""Masks of attention, and which blocks of places they let through."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torchlike

if TYPE_CHECKING:
    from collections.abc import Callable

_DEFAULT_SPARSE_BLOCK_SIZE = 128


def noop_mask(batch: Any, head: Any, token_q: Any, token_kv: Any) -> Any:
    """Lets everything through."""
    return batch.new_ones(size=(), dtype=torchlike.bool, device=batch.device)


def over_places(mod: Callable[..., Any], sizes: Any, device: Any, *scores: Any) -> Any:
    """A function's values for every batch, head, query and key: it is called once, under `vmap`."""
    from torchlike._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

    places = [torchlike.arange(n, device=device, dtype=torchlike.int) for n in sizes]
    head = (0,) * len(scores)
    function = mod
    for axis in (3, 2, 1, 0):  # each `vmap` adds the dimension before those of the ones inside
        dims = tuple(0 if i == axis else None for i in range(4))
        function = torchlike.vmap(function, in_dims=(*head, *dims), out_dims=0)
    with TransformGetItemToIndex():
        return function(*scores, *places)


def _takes_scores(mod: Callable[..., Any]) -> bool:
    parameters = inspect.signature(mod).parameters.values()
    positional = [
        p
        for p in parameters
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
    ]
    if len(positional) not in (4, 5):
        raise ValueError(
            f"Unknown modification function: expected 4 or 5 positional arguments, got {len(positional)}"
        )
    return len(positional) == 5


def create_mask(
    mod_fn: Callable[..., Any],
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: Any = None,
) -> Any:
    """The values of a mask, or of a function of scores for scores of zero, for every place: `[B, H, Q_LEN, KV_LEN]`."""
    sizes = (B or 1, H or 1, Q_LEN, KV_LEN)
    device = torchlike.get_default_device() if device is None else device
    if _takes_scores(mod_fn):
        scores = torchlike.zeros(sizes, device=device)
        return torchlike.where(
            torchlike.isneginf(over_places(mod_fn, sizes, device, scores)), False, True
        )
    return over_places(mod_fn, sizes, device).expand(sizes)


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (size[0], size[1])


def _listed(dense: Any) -> tuple[Any, Any]:
    """How many blocks each row has, and which: those it has first, in order."""
    dense = dense.to(torchlike.int32)
    counts = dense.sum(dim=-1, dtype=torchlike.int32)
    order = torchlike.argsort(dense, dim=-1, descending=True, stable=True)
    return counts, order.to(torchlike.int32)


def _dense(counts: Any, indices: Any, columns: int) -> Any:
    """The blocks of each row as zeros and ones."""
    batch = indices.shape[:-1]
    places = torchlike.arange(indices.shape[-1], device=indices.device)
    # what a row has not is written beside the columns, and cut off
    index = torchlike.where(places < counts.unsqueeze(-1), indices, columns).long()
    mask = torchlike.zeros((*batch, columns + 1), dtype=torchlike.int32, device=indices.device)
    return mask.scatter(-1, index, torchlike.ones_like(index, dtype=torchlike.int32))[..., :columns]


class BlockMask:
    """A mask, with the blocks of queries and keys that it lets through, wholly or in part."""

    _TENSORS = (
        "kv_num_blocks",
        "kv_indices",
        "full_kv_num_blocks",
        "full_kv_indices",
        "q_num_blocks",
        "q_indices",
        "full_q_num_blocks",
        "full_q_indices",
    )

    def __init__(
        self,
        seq_lengths: tuple[int, int],
        kv_num_blocks: Any,
        kv_indices: Any,
        full_kv_num_blocks: Any,
        full_kv_indices: Any,
        q_num_blocks: Any,
        q_indices: Any,
        full_q_num_blocks: Any,
        full_q_indices: Any,
        BLOCK_SIZE: tuple[int, int] = (_DEFAULT_SPARSE_BLOCK_SIZE, _DEFAULT_SPARSE_BLOCK_SIZE),
        mask_mod: Callable[..., Any] = noop_mask,
        **_: Any,
    ) -> None:
        if kv_indices.dim() < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        if kv_num_blocks is None or kv_indices is None:
            raise AssertionError("kv_num_blocks and kv_indices must be provided")
        if (full_kv_num_blocks is None) != (full_kv_indices is None):
            raise AssertionError(
                "full_kv_num_blocks and full_kv_indices must be both provided or omitted"
            )
        self.seq_lengths = seq_lengths
        self.kv_num_blocks = kv_num_blocks
        self.kv_indices = kv_indices
        self.full_kv_num_blocks = full_kv_num_blocks
        self.full_kv_indices = full_kv_indices
        self.q_num_blocks = q_num_blocks
        self.q_indices = q_indices
        self.full_q_num_blocks = full_q_num_blocks
        self.full_q_indices = full_q_indices
        self.BLOCK_SIZE = BLOCK_SIZE
        self.mask_mod = mask_mod

    @classmethod
    def from_kv_blocks(
        cls,
        kv_num_blocks: Any,
        kv_indices: Any,
        full_kv_num_blocks: Any = None,
        full_kv_indices: Any = None,
        BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE,
        mask_mod: Callable[..., Any] | None = None,
        seq_lengths: tuple[int, int] | None = None,
        compute_q_blocks: bool = True,
        **_: Any,
    ) -> BlockMask:
        """A mask of the blocks of keys that each block of queries sees."""
        if kv_indices.dim() < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        size = _pair(BLOCK_SIZE)
        rows, columns = kv_indices.shape[-2:]
        by_column: list[Any] = [None, None, None, None]
        if compute_q_blocks:
            turned = _dense(kv_num_blocks, kv_indices, columns).transpose(-2, -1)
            by_column[:2] = _listed(turned)
            if full_kv_num_blocks is not None:
                turned = _dense(full_kv_num_blocks, full_kv_indices, columns).transpose(-2, -1)
                by_column[2:] = _listed(turned)
        return cls(
            (rows * size[0], columns * size[1]) if seq_lengths is None else seq_lengths,
            kv_num_blocks,
            kv_indices,
            full_kv_num_blocks,
            full_kv_indices,
            by_column[0],
            by_column[1],
            by_column[2],
            by_column[3],
            size,
            noop_mask if mask_mod is None else mask_mod,
        )

    def as_tuple(self, flatten: bool = True) -> tuple[Any, ...]:
        """What it is made of."""
        size: Any = self.BLOCK_SIZE if flatten else (self.BLOCK_SIZE,)
        lengths: Any = self.seq_lengths if flatten else (self.seq_lengths,)
        return (*lengths, *(getattr(self, n) for n in self._TENSORS), *size, self.mask_mod)

    @property
    def shape(self) -> tuple[int, ...]:
        """Batches, heads, queries and keys."""
        return (*self.kv_indices.shape[:-2], *self.seq_lengths)

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.shape))
        return (
            f"BlockMask(shape={shape}, ssparsity={self.sparsity():.2f}%, mask_mod={self.mask_mod})"
        )

    def __str__(self) -> str:
        text = f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%, \n"
        return f"{text}{self.to_string().strip()}\n)"

    def __getitem__(self, index: Any) -> BlockMask:
        """The mask of some batches, heads, or blocks of queries."""
        index = index if isinstance(index, tuple) else (index,)
        index = tuple(slice(i, i + 1) if isinstance(i, int) and i != -1 else i for i in index)
        picked = [
            None if t is None else t[index[: t.dim()]]
            for t in (
                self.kv_num_blocks,
                self.kv_indices,
                self.full_kv_num_blocks,
                self.full_kv_indices,
            )
        ]
        return BlockMask.from_kv_blocks(
            picked[0],
            picked[1],
            picked[2],
            picked[3],
            BLOCK_SIZE=self.BLOCK_SIZE,
            mask_mod=None,
            seq_lengths=self.seq_lengths,
        )

    def numel(self) -> int:
        """How many places there are."""
        total = 1
        for n in self.shape:
            total *= n
        return total

    def sparsity(self) -> float:
        """The percentage of places in blocks that are not looked at."""
        blocks = int(self.kv_num_blocks.sum())
        if self.full_kv_num_blocks is not None:
            blocks += int(self.full_kv_num_blocks.sum())
        seen = blocks * self.BLOCK_SIZE[0] * self.BLOCK_SIZE[1]
        return 100 * (1 - seen / self.numel())

    def to_dense(self) -> Any:
        """Blocks that are looked at as ones."""
        columns = self.kv_indices.shape[-1]
        partial = _dense(self.kv_num_blocks, self.kv_indices, columns)
        if self.full_kv_num_blocks is None:
            return partial
        return partial | _dense(self.full_kv_num_blocks, self.full_kv_indices, columns)

    def to_string(self, grid_size: Any = (20, 20), limit: int = 4) -> str:
        """Blocks as a picture of each batch and head."""
        dense = self.to_dense()
        heads = dense.reshape(-1, *dense.shape[-2:]).tolist()
        batch = dense.shape[:-2]
        lines = []
        for n, rows in enumerate(heads[:limit]):
            left = n
            place: list[int] = []
            for size in reversed(batch):
                left, i = divmod(left, size)
                place.insert(0, i)
            picture = "\n".join("".join("██" if cell else "  " for cell in row) for row in rows)
            lines.append(f"{tuple(place)}\n{picture}")
        if len(heads) > limit:
            lines.append(f"... ({len(heads) - limit} more)")
        return "\n".join(lines)

    def to(self, device: Any) -> BlockMask:
        """The mask with its tensors on a device."""
        moved = {
            n: None if getattr(self, n) is None else getattr(self, n).to(device)
            for n in self._TENSORS
        }
        return BlockMask(
            seq_lengths=self.seq_lengths,
            BLOCK_SIZE=self.BLOCK_SIZE,
            mask_mod=self.mask_mod,
            **moved,
        )


def create_block_mask(
    mask_mod: Callable[..., Any],
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: Any = None,
    BLOCK_SIZE: int | tuple[int, int] = _DEFAULT_SPARSE_BLOCK_SIZE,
    _compile: bool = False,
    separate_full_blocks: bool = True,
    compute_dq_write_order: bool = False,
    dq_kv_order: bool = True,
) -> BlockMask:
    """The mask of a function `mask_mod(b, h, q, kv)`, with the blocks that it lets through."""
    if _takes_scores(mask_mod):
        raise AssertionError("create-block_mask requires a mask_mod function!")
    rows, columns = _pair(BLOCK_SIZE)
    mask = create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device)
    padded = torchlike.nn.functional.pad(mask, (0, -KV_LEN % columns, 0, -Q_LEN % rows))
    b, h, q, kv = padded.shape
    blocks = padded.view(b, h, q // rows, rows, kv // columns, columns)
    seen = blocks.sum(dim=(3, 5))
    full = seen.eq(rows * columns)
    partial = (seen > 0) & ~full if separate_full_blocks else seen > 0
    counts, indices = _listed(partial)
    whole: Any = _listed(full) if separate_full_blocks else (None, None)
    return BlockMask.from_kv_blocks(
        counts,
        indices,
        whole[0],
        whole[1],
        BLOCK_SIZE=(rows, columns),
        mask_mod=mask_mod,
        seq_lengths=(Q_LEN, KV_LEN),
    )
