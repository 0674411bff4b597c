"""Normalisation of each channel of each sample."""

from __future__ import annotations

from typing import Any

import torchlike as torch
from torchlike.nn import functional as F
from torchlike.nn.modules.batchnorm import _expect, _LazyNormBase, _NormBase

__all__ = [
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "LazyInstanceNorm1d",
    "LazyInstanceNorm2d",
    "LazyInstanceNorm3d",
]

Tensor = torch.Tensor


class _InstanceNorm(_NormBase):
    _features_at: int

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias
        )

    def _get_no_batch_dim(self) -> int:
        raise NotImplementedError

    def _apply_instance_norm(self, input: Any) -> Any:
        return F.instance_norm(
            input,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            self.momentum if self.momentum is not None else 0.0,
            self.eps,
        )

    def _handle_no_batch_input(self, input: Any) -> Any:
        return self._apply_instance_norm(input.unsqueeze(0)).squeeze(0)

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        single = self._get_no_batch_dim()
        at = input.dim() - single
        if input.size(at) != self.num_features:
            if self.affine:
                raise ValueError(
                    f"expected input's size at dim={at} to match num_features "
                    f"({self.num_features}), but got: {input.size(at)}."
                )
            import warnings

            warnings.warn(
                f"input's size at dim={at} does not match num_features. "
                "You can silence this warning by not passing in num_features, "
                "which is not used because affine=False",
                stacklevel=2,
            )
        if input.dim() == single:
            return self._handle_no_batch_input(input)
        return self._apply_instance_norm(input)


class InstanceNorm1d(_InstanceNorm):
    """Normalisation of each channel of each sequence."""

    def _get_no_batch_dim(self) -> int:
        return 2

    def _check_input_dim(self, input: Any) -> None:
        _expect(input, 2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Normalisation of each channel of each image."""

    def _get_no_batch_dim(self) -> int:
        return 3

    def _check_input_dim(self, input: Any) -> None:
        _expect(input, 3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Normalisation of each channel of each volume."""

    def _get_no_batch_dim(self) -> int:
        return 4

    def _check_input_dim(self, input: Any) -> None:
        _expect(input, 4, 5)


class LazyInstanceNorm1d(_LazyNormBase, _InstanceNorm):
    """An ``InstanceNorm1d`` that counts its features in the first input."""

    cls_to_become = InstanceNorm1d
    _check_input_dim = InstanceNorm1d._check_input_dim
    _get_no_batch_dim = InstanceNorm1d._get_no_batch_dim


class LazyInstanceNorm2d(_LazyNormBase, _InstanceNorm):
    """An ``InstanceNorm2d`` that counts its features in the first input."""

    cls_to_become = InstanceNorm2d
    _check_input_dim = InstanceNorm2d._check_input_dim
    _get_no_batch_dim = InstanceNorm2d._get_no_batch_dim


class LazyInstanceNorm3d(_LazyNormBase, _InstanceNorm):
    """An ``InstanceNorm3d`` that counts its features in the first input."""

    cls_to_become = InstanceNorm3d
    _check_input_dim = InstanceNorm3d._check_input_dim
    _get_no_batch_dim = InstanceNorm3d._get_no_batch_dim
