"""Reading safetensors whose weights are quantised in blocks, as the numbers that they stand for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike.distributed.checkpoint._consolidate_hf_safetensors import INDEX_NAME
from torchlike.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
from torchlike.distributed.checkpoint.metadata import ChunkStorageMetadata, TensorStorageMetadata
from torchlike.safetensors import safe_open

if TYPE_CHECKING:
    from torchlike.distributed.checkpoint.metadata import Metadata
    from torchlike.distributed.checkpoint.planner import ReadItem

__all__ = ["QuantizedHuggingFaceStorageReader"]

# The numbers of four bits of MXFP4 that are not negative (OCP Microscaling Formats, version 1.0).
_FP4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


class QuantizedHuggingFaceStorageReader(HuggingFaceStorageReader):
    """Reads weights of two kinds as numbers: matrices with a scale for each square block (`name.weight` and
    `name.weight_scale_inv`, as in DeepSeek-V3), and MXFP4 (`name_blocks` and `name_scales`, as in gpt-oss), whose two
    last dimensions, groups and bytes, become one of twice as many numbers. Quantised tensors are whole, and the folder
    has an index.

    Args:
        path: the folder.
        thread_count: threads that read, a file each.
        target_dtype: the type of the numbers.
        block_size: rows and columns of a block of a matrix.
    """

    def __init__(
        self,
        path: str,
        thread_count: int = 1,
        target_dtype: torch.dtype = torch.float32,
        block_size: int = 128,
    ) -> None:
        super().__init__(path, thread_count)
        self.target_dtype, self.block_size = target_dtype, block_size
        self._files: dict[str, str] = {}
        self._scales: dict[str, str] = {}
        self._group_bytes: dict[str, int] = {}

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """All about the tensors, as they are once they are numbers."""
        metadata = super().read_metadata(*args, **kwargs)
        index = Path(self.path, INDEX_NAME).read_text(encoding="utf-8")
        self._files = json.loads(index).get("weight_map", {})
        for name in self._files:
            for suffix, of in ((".weight_scale_inv", ".weight"), ("_scales", "_blocks")):
                weight = name.removesuffix(suffix) + of
                if name.endswith(suffix) and weight in self._files:
                    self._scales[weight] = name
        for name in self._scales:
            about = metadata.state_dict_metadata.get(name)
            if name.endswith("_blocks") and isinstance(about, TensorStorageMetadata):
                *rest, groups, size = about.size
                self._group_bytes[name] = size
                about.size = torch.Size([*rest, groups * size * 2])
                about.chunks = [ChunkStorageMetadata(torch.Size([0] * len(about.size)), about.size)]
                stored = next(i for i in metadata.storage_data if i.fqn == name)
                start = torch.Size([0] * len(about.size))
                place = metadata.storage_data.pop(stored)
                metadata.storage_data[type(stored)(name, start)] = place
        return metadata

    def _wanted(self, file: Any, item: ReadItem) -> Any:
        name = item.storage_index.fqn
        if name not in self._scales:
            return super()._wanted(file, item)
        scales = self._scale(file, name)
        if name in self._group_bytes:
            return self._of_groups(file, item, scales)
        if len(item.lengths) != 2:
            raise ValueError("Unsupported quantization types")
        return self._of_blocks(super()._wanted(file, item), item, scales)

    def _scale(self, file: Any, weight: str) -> Any:
        name = self._scales[weight]
        if self._files[name] == self._files[weight]:
            return file.get_tensor(name)
        with safe_open(Path(self.path, self._files[name])) as other:
            return other.get_tensor(name)

    def _of_blocks(self, weight: Any, item: ReadItem, scales: Any) -> Any:
        """A box of a matrix, each element times the scale of its block."""
        for dim, (start, count) in enumerate(zip(item.storage_offsets, item.lengths, strict=True)):
            block = torch.arange(start, start + count) // self.block_size
            scales = scales.index_select(dim, block)
        return (weight.to(torch.float32) * scales).to(self.target_dtype)

    def _of_groups(self, file: Any, item: ReadItem, scales: Any) -> Any:
        """A box of numbers of four bits, of which every group has an exponent."""
        name, each = item.storage_index.fqn, 2 * self._group_bytes[item.storage_index.fqn]
        *starts, first = item.storage_offsets
        *counts, count = item.lengths
        groups = slice(first // each, -(-(first + count) // each))
        rest = [slice(at, at + n) for at, n in zip(starts, counts, strict=True)]
        box = (*rest, groups)
        stored = file.get_slice(name)[(*box, slice(None))]
        exponents = scales[box].to(torch.int32) - 127
        table = torch.tensor([*_FP4, *(-n for n in _FP4)], dtype=self.target_dtype)
        numbers = torch.stack([table[(stored & 15).long()], table[(stored >> 4).long()]], -1)
        numbers = torch.ldexp(numbers.flatten(-2), exponents.unsqueeze(-1)).to(self.target_dtype)
        at = first - groups.start * each
        return numbers.flatten(-2)[..., at : at + count]
