"""Processes with unequal numbers of batches, where PyTorch has the names."""

from torchlike.nn.parallel._join import Join, Joinable, JoinHook

__all__ = ["Join", "JoinHook", "Joinable"]
