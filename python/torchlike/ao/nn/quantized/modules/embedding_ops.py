"""Embeddings in bytes."""

from __future__ import annotations

from typing import Any

import torchlike as torch
from torchlike import nn
from torchlike._ops import ops
from torchlike.ao.nn.quantized.modules.utils import _hide_packed_params_repr, _quantize_weight

layers: Any = nn


__all__ = ["Embedding", "EmbeddingBag", "EmbeddingPackedParams"]

_root: Any = torch


def _empty(count: int, size: int) -> Any:
    """A table of zeros."""
    zeros = torch.zeros(count, size, dtype=torch.uint8)
    return _root._make_per_channel_quantized_tensor(zeros, torch.ones(count), torch.zeros(count), 0)


class EmbeddingPackedParams(nn.Module):
    """A packed table."""

    _version = 1

    def __init__(self, num_embeddings: int, embedding_dim: int, dtype: Any = torch.quint8) -> None:
        super().__init__()
        self.dtype = dtype
        if dtype != torch.quint8:
            raise NotImplementedError(
                f"Unsupported dtype on quantized embedding! Supports quint8. Got dtype: {dtype}"
            )
        self.set_weight(_empty(num_embeddings, embedding_dim))

    def set_weight(self, weight: Any) -> None:
        """Packs a table."""
        self._packed_weight = ops.quantized.embedding_bag_prepack(weight)

    def _weight(self) -> Any:
        return ops.quantized.embedding_bag_unpack(self._packed_weight)

    def forward(self, x: Any) -> Any:
        """The input."""
        return x

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "dtype"] = self.dtype
        destination[prefix + "_packed_weight"] = self._weight()

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, *lists: Any
    ) -> None:
        self.dtype = state_dict.pop(prefix + "dtype")
        self.set_weight(state_dict.pop(prefix + "_packed_weight"))
        super()._load_from_state_dict(state_dict, prefix, local_metadata, False, *lists)

    def __repr__(self) -> str:
        return repr(self._weight())


class Embedding(nn.Module):
    """Rows of a table of bytes."""

    _version = 1
    _FLOAT: Any = layers.Embedding

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Any = None,
        dtype: Any = torch.quint8,
    ) -> None:
        super().__init__()
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.dtype = dtype
        self._packed_params = EmbeddingPackedParams(num_embeddings, embedding_dim, dtype)
        if _weight is not None:
            expected = [num_embeddings, embedding_dim]
            if list(_weight.shape) != expected:
                raise AssertionError(
                    "Shape of weight does not match num_embeddings and embedding_dim: "
                    f"expected {expected}, got {list(_weight.shape)}"
                )
            self.set_weight(_weight)

    def forward(self, indices: Any) -> Any:
        """The rows, as real numbers."""
        return ops.quantized.embedding_byte(self._packed_params._packed_weight, indices)

    def _get_name(self) -> str:
        return "QuantizedEmbedding"

    def __repr__(self) -> str:
        return _hide_packed_params_repr(self, EmbeddingPackedParams)

    def extra_repr(self) -> str:
        """Sizes, type and scheme."""
        return (
            f"num_embeddings={self.num_embeddings}, embedding_dim={self.embedding_dim}, "
            f"dtype={self._packed_params.dtype}, qscheme={self.weight().qscheme()}"
        )

    def set_weight(self, w: Any) -> None:
        """Packs a table."""
        self._packed_params.set_weight(w)

    def weight(self) -> Any:
        """The quantised table."""
        return self._packed_params._weight()

    @classmethod
    def _observed(cls, mod: Any) -> Any:
        """The weight of a layer, quantised by its observer."""
        from torchlike.ao.quantization.qconfig import float_qparams_weight_only_qconfig

        if hasattr(mod, "weight_fake_quant"):
            observer = mod.weight_fake_quant
        else:
            if type(mod) is not cls._FLOAT:
                name = f"nnq.{cls.__name__}.from_float"
                raise AssertionError(f"{name} only works for {cls._FLOAT.__name__}")
            if not hasattr(mod, "qconfig"):
                raise AssertionError(
                    f"{cls._FLOAT.__name__} input float module must have qconfig defined"
                )
            told = mod.qconfig is not None and mod.qconfig.weight is not None
            observer = (mod.qconfig if told else float_qparams_weight_only_qconfig).weight()
        if observer.qscheme != torch.per_channel_affine_float_qparams:
            raise AssertionError(
                f"{cls.__name__} quantization is only supported with float_qparams_weight_only_qconfig."
            )
        if observer.dtype != torch.quint8:
            raise AssertionError(
                f"The only supported dtype for nnq.{cls.__name__} is torch.quint8, got {observer.dtype}"
            )
        observer(mod.weight)
        return _quantize_weight(mod.weight.float(), observer)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The layer of one of real numbers.

        Raises:
            AssertionError: if it is no embedding, or configured otherwise.
        """
        made = Embedding(mod.num_embeddings, mod.embedding_dim)
        made.set_weight(cls._observed(mod))
        return made

    @classmethod
    def from_reference(cls, ref_embedding: Any) -> Any:
        """The layer of a reference layer."""
        made = cls(ref_embedding.num_embeddings, ref_embedding.embedding_dim)
        made.set_weight(ref_embedding.get_quantized_weight())
        return made


class EmbeddingBag(Embedding):
    """Sums of rows of a table of bytes."""

    _FLOAT = layers.EmbeddingBag

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "sum",
        sparse: bool = False,
        _weight: Any = None,
        include_last_offset: bool = False,
        dtype: Any = torch.quint8,
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, _weight=_weight, dtype=dtype)
        self.mode = mode
        self.pruned_weights = False
        self.include_last_offset = include_last_offset

    def forward(
        self,
        indices: Any,
        offsets: Any = None,
        per_sample_weights: Any = None,
        compressed_indices_mapping: Any = None,
    ) -> Any:
        """The sums, as real numbers."""
        return ops.quantized.embedding_bag_byte(
            self._packed_params._packed_weight,
            indices,
            offsets,
            False,
            0,
            self.pruned_weights,
            per_sample_weights,
            compressed_indices_mapping,
            self.include_last_offset,
        )

    def _get_name(self) -> str:
        return "QuantizedEmbeddingBag"

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The layer of one of real numbers.

        Raises:
            AssertionError: if it is no bag of embeddings, or configured otherwise.
        """
        made = EmbeddingBag(
            mod.num_embeddings,
            mod.embedding_dim,
            mode=mod.mode,
            include_last_offset=mod.include_last_offset,
        )
        made.set_weight(cls._observed(mod))
        return made
