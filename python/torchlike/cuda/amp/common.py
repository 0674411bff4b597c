"""Whether there can be automatic mixed precision on GPUs."""

from torchlike import cuda

__all__ = ["amp_definitely_not_available"]


def amp_definitely_not_available() -> bool:
    """True if there is no GPU."""
    return not cuda.is_available()
