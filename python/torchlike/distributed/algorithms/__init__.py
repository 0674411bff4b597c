"""Algorithms of several processes."""

from torchlike.distributed.algorithms.join import Join, Joinable, JoinHook
