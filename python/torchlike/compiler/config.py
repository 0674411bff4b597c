"""Settings of compilers, with PyTorch's defaults: kept, without an effect. Those of `_dynamo` are there."""

from __future__ import annotations

from typing import Any

from torchlike._dynamo import config as _dynamo

job_id: str | None = None
pgo_extra_read_key: str | None = None
pgo_extra_write_key: str | None = None
cache_key_tag = ""
force_disable_caches = False
force_cudagraph_gc = False
dynamic_sources = ""
dynamic_values = ""
unbacked_sources = ""


def __getattr__(name: str) -> Any:
    """A setting of `_dynamo`."""
    if name.startswith("__") or not hasattr(_dynamo, name):
        raise AttributeError(f"module 'torchlike.compiler.config' has no attribute {name!r}")
    return getattr(_dynamo, name)
