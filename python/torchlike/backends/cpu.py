"""The CPU."""

from __future__ import annotations

import functools


@functools.cache
def get_cpu_capability() -> str:
    """The vector instructions that there are: "DEFAULT", "AVX2", "AVX512" or "NEON"."""
    import platform
    from pathlib import Path

    if platform.machine() in ("aarch64", "arm64"):
        return "NEON"
    try:
        words = set(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        return "DEFAULT"
    if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= words:
        return "AVX512"
    return "AVX2" if {"avx2", "fma"} <= words else "DEFAULT"
