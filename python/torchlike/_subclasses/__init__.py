"""Tensors without elements that stand for others: fake tensors, and twins on meta."""

from torchlike._subclasses.fake_tensor import (
    CrossRefFakeMode,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedFakeTensorException,
)

__all__ = [
    "CrossRefFakeMode",
    "DynamicOutputShapeException",
    "FakeTensor",
    "FakeTensorMode",
    "UnsupportedFakeTensorException",
]
