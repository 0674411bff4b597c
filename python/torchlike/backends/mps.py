"""Apple's GPUs: there are none."""

from __future__ import annotations

from torchlike import _C


def is_built() -> bool:
    """False."""
    return False


def is_available() -> bool:
    """False, unless a test says otherwise in `torch._C`."""
    return bool(_C._mps_is_available())


def is_macos_or_newer(major: int, minor: int) -> bool:
    """Whether this is macOS of this version or a later one."""
    import platform

    version = platform.mac_ver()[0]
    numbers = tuple(int(n) for n in version.split(".")[:2] if n)
    return bool(numbers) and numbers >= (major, minor)


def is_macos13_or_newer(minor: int = 0) -> bool:
    """Whether this is macOS 13 or a later one."""
    return is_macos_or_newer(13, minor)
