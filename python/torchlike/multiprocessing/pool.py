"""Pools of processes, which exchange tensors by memory that they share."""

from multiprocessing.pool import Pool

__all__ = ["Pool"]
