"""Marks in a program's run."""

from torchlike.autograd.profiler import record_function

__all__ = ["record_function"]
