"""Batch norm of quantised tensors, and ReLU."""

from torchlike.ao.nn.quantized.modules import batchnorm

__all__ = ["BNReLU2d", "BNReLU3d"]


class BNReLU2d(batchnorm.BatchNorm2d):
    """Batch norm of quantised images, and ReLU."""

    _operator = "batch_norm2d_relu"


class BNReLU3d(batchnorm.BatchNorm3d):
    """Batch norm of quantised volumes, and ReLU."""

    _operator = "batch_norm3d_relu"
