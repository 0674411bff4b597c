"""Tables of embeddings in eight or four bits: each row has a scale and a bias, packed behind its numbers."""

from __future__ import annotations

from typing import Any

import torchlike as torch
from torchlike import _C
from torchlike._ops.quantized import kernel, packed

_EPSILON = 1e-8


@kernel("embedding_bag_prepack")
def embedding_bag_prepack(weight: Any) -> Any:
    """A quantised table as an object."""
    if not weight.is_quantized or weight.qscheme() != torch.per_channel_affine_float_qparams:
        raise RuntimeError(
            "Expect embedding_bag weights to be quantized using kPerChannelAffineFloatQParams"
        )
    if weight.dtype not in (torch.quint8, torch.quint4x2):
        raise RuntimeError("Expect embedding_bag weights to be of type quint8 or quint4x2")
    return packed.embedding(weight)


@kernel("embedding_bag_unpack")
def embedding_bag_unpack(W_prepack: Any) -> Any:
    """The quantised table."""
    return W_prepack.unpack()


def _numbers(params: Any) -> tuple[Any, Any, Any]:
    """The integers of a packed table, and a scale and bias for each row."""
    table = params.unpack()
    scales, zeros = table.q_per_channel_scales(), table.q_per_channel_zero_points()
    bias = -zeros * scales
    if table.dtype == torch.quint4x2:
        scales, bias = scales.half().float(), bias.half().float()
    return _C._integers(table), scales, bias


def _rows(integers: Any, scales: Any, bias: Any, indices: Any) -> Any:
    """The real numbers of some rows, rounded once."""
    flat = indices.reshape(-1).long()
    _check_indices(flat, integers.size(0))
    chosen = integers.index_select(0, flat).double()
    scale, shift = (t.index_select(0, flat).double().unsqueeze(1) for t in (scales, bias))
    return (chosen * scale + shift).float()


def _check_indices(flat: Any, count: int) -> None:
    outside = (flat < 0) | (flat >= count)
    if outside.any():
        place = int(outside.to(torch.uint8).argmax())
        raise RuntimeError(
            f"Index {place} is out of bounds: {int(flat[place])}, range 0 to {count}"
        )


def _looked_up(name: str, weight: Any, indices: Any) -> Any:
    if indices.dtype not in (torch.int32, torch.int64):
        raise RuntimeError(f"{name} expects indices of type int32 or int64")
    made = _rows(*_numbers(weight), indices)
    return made.reshape(*indices.shape, made.size(1))


@kernel("embedding_byte")
def embedding_byte(weight: Any, indices: Any, pruned_weights: bool = False) -> Any:
    """The rows of a table of bytes."""
    return _looked_up("embedding_byte", weight, indices)


@kernel("embedding_4bit")
def embedding_4bit(weight: Any, indices: Any, pruned_weights: bool = False) -> Any:
    """The rows of a table of numbers of four bits."""
    return _looked_up("embedding_4bit", weight, indices)


def _summed(
    name: str,
    numbers: tuple[Any, Any, Any],
    indices: Any,
    offsets: Any,
    per_sample_weights: Any,
    compressed: Any,
    include_last_offset: bool,
) -> Any:
    """The sums of bags of rows."""
    if compressed is not None and compressed.numel() > 1:
        raise NotImplementedError(f"{name}: tables whose rows are pruned are not read")
    if indices.dim() == 2:
        if offsets is not None:
            raise RuntimeError(
                f"{name} operator: input is 2D, then offsets has to be None, as input is treated is a mini-batch of "
                "fixed length sequences."
            )
        count = indices.size(0)
        offsets = torch.arange(0, indices.numel(), max(indices.size(1), 1))[:count]
    elif indices.dim() != 1:
        raise RuntimeError(f"{name} operator supports 1 or 2d indices, got {indices.dim()}")
    elif offsets is None:
        raise RuntimeError(f"{name} expects offsets to be set for 1D indices.")
    rows = _rows(*numbers, indices)
    weights = None if per_sample_weights is None else per_sample_weights.reshape(-1)
    return torch.nn.functional.embedding_bag(
        torch.arange(len(rows)),
        rows,
        offsets.long(),
        mode="sum",
        per_sample_weights=weights,
        include_last_offset=include_last_offset,
    )


def _bag(name: str, rowwise: Any) -> Any:
    def run(
        weight: Any,
        indices: Any,
        offsets: Any = None,
        scale_grad_by_freq: bool = False,
        mode: int = 0,
        pruned_weights: bool = False,
        per_sample_weights: Any = None,
        compressed_indices_mapping: Any = None,
        include_last_offset: bool = False,
    ) -> Any:
        return _summed(
            name,
            rowwise(weight),
            indices,
            offsets,
            per_sample_weights,
            compressed_indices_mapping,
            include_last_offset,
        )

    return run


@kernel("embedding_bag_byte_prepack")
def embedding_bag_byte_prepack(weight: Any) -> Any:
    """Rows of bytes, behind each its scale and bias in single precision."""
    numbers = weight.detach().float()
    low, high = numbers.amin(-1, keepdim=True), numbers.amax(-1, keepdim=True)
    reach = high - low
    bytes_ = torch.round((numbers - low) * (255.0 / (reach + _EPSILON))).to(torch.uint8)
    ends = torch.cat([reach / 255.0, low], -1).contiguous().view(torch.uint8)
    return torch.cat([bytes_, ends], -1)


def _of_bytes(table: Any) -> tuple[Any, Any, Any]:
    ends = table[..., -8:].contiguous().view(torch.float32)
    return table[..., :-8], ends[..., 0], ends[..., 1]


@kernel("embedding_bag_byte_unpack")
def embedding_bag_byte_unpack(weight: Any) -> Any:
    """The real numbers of such rows."""
    integers, scales, bias = (t.double() for t in _of_bytes(weight))
    return (integers * scales.unsqueeze(-1) + bias.unsqueeze(-1)).float()


@kernel("embedding_bag_4bit_prepack")
def embedding_bag_4bit_prepack(
    weight: Any, optimized_qparams: bool = False, nbins: int = 200, ratio: float = 0.16
) -> Any:
    """Rows of numbers of four bits, two a byte, behind each its scale and bias in half precision."""
    if optimized_qparams:
        raise NotImplementedError("embedding_bag_4bit_prepack: scales are not searched for")
    numbers = weight.detach().float()
    low = numbers.amin(-1, keepdim=True).half().float()
    reach = numbers.amax(-1, keepdim=True) - low
    scale = torch.where(reach.eq(0), torch.ones_like(reach), reach / 15.0).half().float()
    scale = torch.where(scale.eq(0) | torch.isinf(1.0 / scale), torch.ones_like(scale), scale)
    steps = torch.round((numbers - low) * (1.0 / scale)).clamp(0, 15).to(torch.uint8)
    if steps.size(-1) % 2:
        steps = torch.cat([steps, torch.zeros_like(steps[..., :1])], -1)
    pairs = steps[..., 0::2] | (steps[..., 1::2] << 4)
    ends = torch.cat([scale, low], -1).half().contiguous().view(torch.uint8)
    return torch.cat([pairs, ends], -1)


def _of_pairs(table: Any) -> tuple[Any, Any, Any]:
    ends = table[..., -4:].contiguous().view(torch.float16).float()
    pairs = table[..., :-4]
    steps = torch.stack([pairs & 15, pairs >> 4], -1).flatten(-2)
    return steps, ends[..., 0], ends[..., 1]


@kernel("embedding_bag_4bit_unpack")
def embedding_bag_4bit_unpack(weight: Any) -> Any:
    """The real numbers of such rows."""
    integers, scales, bias = _of_pairs(weight)
    return integers.float() * scales.unsqueeze(-1) + bias.unsqueeze(-1)


kernel("embedding_bag_byte")(_bag("embedding_bag_byte", _numbers))
kernel("embedding_bag_4bit")(_bag("embedding_bag_4bit", _numbers))
kernel("embedding_bag_byte_rowwise_offsets")(_bag("embedding_bag_byte_rowwise_offsets", _of_bytes))
kernel("embedding_bag_4bit_rowwise_offsets")(_bag("embedding_bag_4bit_rowwise_offsets", _of_pairs))
