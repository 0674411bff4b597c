"""Embeddings that round their tables as quantised ones would."""

from __future__ import annotations

from typing import Any, ClassVar

import torchlike as torch
from torchlike import nn
from torchlike.ao.nn.qat.modules._checks import check_configured, check_float
from torchlike.nn.modules.sparse import Embedding as EmbeddingLayer
from torchlike.nn.modules.sparse import EmbeddingBag as EmbeddingBagLayer
from torchlike.nn.parameter import Parameter

layers: Any = nn


__all__ = ["Embedding", "EmbeddingBag"]


def _check_scheme(qconfig: Any) -> None:
    scheme = qconfig.weight().qscheme
    if scheme != torch.per_channel_affine_float_qparams:
        raise AssertionError(
            f"Embedding weights requires a qscheme of torch.per_channel_affine_float_qparams Got {scheme}"
        )


class Embedding(EmbeddingLayer):
    """Rows of a table that is rounded."""

    _FLOAT_MODULE: ClassVar[Any] = layers.Embedding

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
        device: Any = None,
        dtype: Any = None,
        qconfig: Any = None,
    ) -> None:
        rest = padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, _weight
        super().__init__(num_embeddings, embedding_dim, *rest, device=device, dtype=dtype)
        check_configured(qconfig)
        _check_scheme(qconfig)
        self.qconfig = qconfig
        self.weight_fake_quant = qconfig.weight(factory_kwargs={"device": device, "dtype": dtype})

    def forward(self, input: Any) -> Any:
        """The rows."""
        table = self.weight_fake_quant(self.weight)
        rest = self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse
        return nn.functional.embedding(input, table, self.padding_idx, *rest)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The layer of one of real numbers, with the same table.

        Raises:
            AssertionError: if it is no such layer.
        """
        check_float(cls, mod)
        _check_scheme(mod.qconfig)
        rest = mod.max_norm, mod.norm_type, mod.scale_grad_by_freq, mod.sparse, mod.weight
        return cls(
            mod.num_embeddings, mod.embedding_dim, mod.padding_idx, *rest, qconfig=mod.qconfig
        )

    def to_float(self) -> Any:
        """A layer of real numbers with a table of the same values."""
        rest = self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse
        made = layers.Embedding(self.num_embeddings, self.embedding_dim, self.padding_idx, *rest)
        made.weight = Parameter(self.weight.detach())
        made.train(self.training)
        return made


class EmbeddingBag(EmbeddingBagLayer):
    """Sums of rows of a table that is rounded."""

    _FLOAT_MODULE: ClassVar[Any] = layers.EmbeddingBag

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Any = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        qconfig: Any = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        rest = max_norm, norm_type, scale_grad_by_freq, mode, sparse, _weight, include_last_offset
        super().__init__(
            num_embeddings, embedding_dim, *rest, padding_idx, device=device, dtype=dtype
        )
        check_configured(qconfig)
        _check_scheme(qconfig)
        self.qconfig = qconfig
        self.weight_fake_quant = qconfig.weight(factory_kwargs={"device": device, "dtype": dtype})

    def forward(self, input: Any, offsets: Any = None, per_sample_weights: Any = None) -> Any:
        """The sums."""
        table = self.weight_fake_quant(self.weight)
        rest = self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode, self.sparse
        last = per_sample_weights, self.include_last_offset, self.padding_idx
        return nn.functional.embedding_bag(input, table, offsets, *rest, *last)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The layer of one of real numbers, with the same table.

        Raises:
            AssertionError: if it is no such layer.
        """
        check_float(cls, mod)
        _check_scheme(mod.qconfig)
        rest = mod.max_norm, mod.norm_type, mod.scale_grad_by_freq, mod.mode, mod.sparse
        last = mod.weight, mod.include_last_offset, mod.padding_idx
        return cls(mod.num_embeddings, mod.embedding_dim, *rest, *last, qconfig=mod.qconfig)

    def to_float(self) -> Any:
        """A layer of real numbers with a table of the same values."""
        rest = self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode, self.sparse
        last = None, self.include_last_offset, self.padding_idx
        made = layers.EmbeddingBag(self.num_embeddings, self.embedding_dim, *rest, *last)
        made.weight = Parameter(self.weight.detach())
        made.train(self.training)
        return made
