"""Queues between processes, which pass tensors by memory that they share."""

from multiprocessing.queues import Queue, SimpleQueue

__all__ = ["Queue", "SimpleQueue"]
