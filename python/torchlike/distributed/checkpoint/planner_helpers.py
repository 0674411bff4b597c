"""What is written of a value, and which stored pieces are read for one."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torchlike.distributed.checkpoint.planner import (
    LoadItemType,
    ReadItem,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torchlike.distributed.tensor._dtensor import DTensor
from torchlike.distributed.tensor.placement_types import _StridedShard

if TYPE_CHECKING:
    from collections.abc import Iterator


__all__ = ["create_read_items_for_chunk_list"]


def pieces_of(tensor: Any) -> list[tuple[ChunkStorageMetadata, Any]]:
    """The pieces of a tensor that this process has, each once, and where they belong."""
    if not isinstance(tensor, DTensor):
        size = tensor.size()
        return [(ChunkStorageMetadata(torch.Size([0] * len(size)), size), tensor)]
    spec = tensor._spec
    found: dict[Any, tuple[ChunkStorageMetadata, Any]] = {}
    # What stands for an order is applied as plain shards.
    strided = any(isinstance(p, _StridedShard) for _, p in spec.applied())
    for seat, piece in zip(spec.mesh._seats, tensor._locals, strict=True):
        shape, offset = seat.local(list(spec.shape), *spec.lies)
        if strided or torch.Size(shape) != piece.shape:
            raise NotImplementedError(
                f"a piece of shape {tuple(piece.shape)} of a tensor of shape {tuple(spec.shape)} that lies as "
                f"{spec.placements} is no box of it, and cannot be saved or loaded"
            )
        chunk = ChunkStorageMetadata(torch.Size(offset), torch.Size(shape))
        # Ranks that have the same piece save it once.
        found.setdefault(chunk.offsets, (chunk, piece))
    return list(found.values())


def _create_write_items(fqn: str, object: Any) -> list[WriteItem]:
    """What is written of a value."""
    if hasattr(object, "__create_write_items__"):
        own: list[WriteItem] = object.__create_write_items__(fqn, object)
        return own
    if not isinstance(object, torch.Tensor):
        return [WriteItem(MetadataIndex(fqn), WriteItemType.BYTE_IO)]
    kind = WriteItemType.SHARD if isinstance(object, DTensor) else WriteItemType.TENSOR
    items = []
    for chunk, piece in pieces_of(object):
        data = TensorWriteData(chunk, TensorProperties.create_from_tensor(piece), object.size())
        items.append(WriteItem(MetadataIndex(fqn, chunk.offsets), kind, tensor_data=data))
    return items


def _create_chunk_list(tensor: Any) -> list[ChunkStorageMetadata]:
    """The boxes of a tensor that this process has."""
    if hasattr(tensor, "__create_chunk_list__"):
        own: list[ChunkStorageMetadata] = tensor.__create_chunk_list__()
        return own
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(
            "Unsupported Type, expecting one of [Tensor, DTensor, ShardedTensor] "
            f",but got {type(tensor)}"
        )
    return [chunk for chunk, _ in pieces_of(tensor)]


def _create_read_items(fqn: str, md: Any, obj: Any) -> list[ReadItem]:
    """What is read for a value."""
    if isinstance(md, BytesStorageMetadata):
        index = MetadataIndex(fqn)
        zero = torch.Size([0])
        return [ReadItem(LoadItemType.BYTE_IO, index, zero, index, zero, zero)]
    try:
        chunks = _create_chunk_list(obj)
    except ValueError as error:
        raise ValueError(
            f"Invalid checkpoint metadata for {fqn}, expected BytesStorageMetadata but found {type(md)}"
        ) from error
    return create_read_items_for_chunk_list(fqn, md, chunks)


def create_read_items_for_chunk_list(
    fqn: str, checkpoint_md: TensorStorageMetadata, local_chunks: list[ChunkStorageMetadata]
) -> list[ReadItem]:
    """The reads that fill boxes of a tensor from the boxes that are stored."""
    items = []
    saved = _Sorted(checkpoint_md.chunks)
    for at, local in enumerate(local_chunks):
        for number, stored in saved.near(local):
            overlap = _overlap(stored, local)
            if overlap is None:
                continue
            start, lengths = overlap
            items.append(
                ReadItem(
                    LoadItemType.TENSOR,
                    MetadataIndex(fqn, local.offsets, at),
                    torch.Size([s - o for s, o in zip(start, local.offsets, strict=True)]),
                    MetadataIndex(fqn, stored.offsets, number),
                    torch.Size([s - o for s, o in zip(start, stored.offsets, strict=True)]),
                    torch.Size(lengths),
                )
            )
    return items


class _Sorted:
    """Boxes by where they begin along the longest dimension: of thousands few are near another."""

    def __init__(self, chunks: list[ChunkStorageMetadata]) -> None:
        ndim = len(chunks[0].offsets) if chunks else 0
        ends = [max(c.offsets[d] + c.sizes[d] for c in chunks) for d in range(ndim)]
        self.dim = ends.index(max(ends)) if ends else None
        self.boxes = sorted(enumerate(chunks), key=self._start)
        self.longest = max((c.sizes[self.dim] for c in chunks), default=0) if ends else 0

    def _start(self, box: tuple[int, ChunkStorageMetadata]) -> int:
        return int(box[1].offsets[self.dim]) if self.dim is not None else 0

    def near(self, box: ChunkStorageMetadata) -> Iterator[tuple[int, ChunkStorageMetadata]]:
        """Boxes that may overlap another, with their numbers."""
        if self.dim is None:
            yield from self.boxes
            return
        begin, end = box.offsets[self.dim], box.offsets[self.dim] + box.sizes[self.dim]
        first = bisect_left(self.boxes, begin - self.longest, key=self._start)
        for number, stored in self.boxes[first:]:
            if stored.offsets[self.dim] >= end:
                return
            yield number, stored


def _overlap(
    a: ChunkStorageMetadata, b: ChunkStorageMetadata
) -> tuple[list[int], list[int]] | None:
    """Where the elements that two boxes share begin, and how many there are in each dimension; None without any."""
    start, lengths = [], []
    for ao, an, bo, bn in zip(a.offsets, a.sizes, b.offsets, b.sizes, strict=True):
        begin, end = max(ao, bo), min(ao + an, bo + bn)
        if begin >= end:
            return None
        start.append(begin)
        lengths.append(end - begin)
    return start, lengths


def _init_state_dict(state_dict: Any) -> Any:
    """Puts real tensors in the place of those on meta, to be filled; changes the state dict."""
    for key, value in list(state_dict.items()) if isinstance(state_dict, dict) else ():
        state_dict[key] = _real(value)
    return state_dict


def _real(value: Any) -> Any:
    if isinstance(value, dict):
        return _init_state_dict(value)
    if isinstance(value, list):
        value[:] = [_real(v) for v in value]
        return value
    if not isinstance(value, torch.Tensor) or not value.is_meta:
        return value
    if isinstance(value, DTensor):
        device = value.device_mesh.device_type
        device = "cpu" if device == "meta" else device
        pieces = [torch.empty_like(p, device=device) for p in value._locals]
        return DTensor._of(pieces, value._spec, value.requires_grad)
    return torch.empty_like(value, device="cpu")
