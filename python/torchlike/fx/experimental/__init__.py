"""Passes that PyTorch has under this name."""

from torchlike import _lazy

const_fold = _lazy.module("torchlike.fx.experimental.const_fold")
