"""Signal processing: window functions."""

from torchlike.signal import windows

__all__ = ["windows"]
