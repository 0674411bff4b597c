"""Events for TensorBoard, written by its own package, without which this module cannot be imported."""

import tensorboard  # type: ignore[import-untyped,import-not-found,unused-ignore]

from torchlike.utils.tensorboard.writer import FileWriter, SummaryWriter

__all__ = ["FileWriter", "SummaryWriter"]
