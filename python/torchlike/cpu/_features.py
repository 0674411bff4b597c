"""What the processor can do, as the operating system lists it."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

__all__ = ["capabilities"]

_X86 = """
    aes amx_bf16 amx_fp16 amx_int8 amx_tile avx avx10_1 avx10_2 avx2 avx512_4fmaps avx512_4vnniw avx512_bf16
    avx512_bitalg avx512_bw avx512_cd avx512_dq avx512_f avx512_fp16 avx512_ifma avx512_vbmi avx512_vbmi2 avx512_vl
    avx512_vnni avx512_vp2intersect avx512_vpopcntdq avx_ne_convert avx_vnni avx_vnni_int16 avx_vnni_int8 bmi bmi2
    clflush clflushopt clwb f16c fma3 fma4 lzcnt popcnt sha sse sse2 sse3 sse4_1 sse4_2 sse4a ssse3
"""
_ARM = "bf16 dot fp16_arith i8mm neon sme sme2 sve sve2 sve_bf16"
# Where Linux has another name than PyTorch: the same without the line behind "avx512", or one of these.
_LINUX = {
    "bmi": "bmi1", "dot": "asimddp", "fma3": "fma", "fp16_arith": "asimdhp", "lzcnt": "abm", "neon": "asimd",
    "sha": "sha_ni", "sse3": "pni", "sve_bf16": "svebf16",
}  # fmt: skip


def _listed() -> dict[str, str]:
    """The first processor's lines in `/proc/cpuinfo`; nothing where there is no such file."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            first = file.read().split("\n\n")[0]
    except OSError:
        return {}
    lines = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}


@cache
def capabilities() -> Mapping[str, Any]:
    """The instruction sets of this processor by PyTorch's names, and `architecture`, `cpu_name`, `num_logical_cores`.

    Sets are those that the operating system lists; on systems that list none all are false.
    """
    listed, machine = _listed(), platform.machine()
    flags = set((listed.get("flags") or listed.get("Features") or "").split())
    arm = machine in ("aarch64", "arm64")

    def has(name: str) -> bool:
        names = {_LINUX.get(name, name), name.replace("avx512_", "avx512")}
        return not names.isdisjoint(flags)

    found: dict[str, Any] = {name: has(name) for name in (_ARM if arm else _X86).split()}
    found["architecture"] = machine
    found["cpu_name"] = listed.get("model name", platform.processor() or machine)
    found["num_logical_cores"] = os.cpu_count() or 1
    return MappingProxyType(found)
