"""PyTorch's code generator. No code is generated."""

from __future__ import annotations

from typing import Any

from torchlike import _absent
from torchlike._inductor import config


def list_mode_options(mode: str | None = None, dynamic: bool | None = None) -> dict[str, Any]:
    """The modes of `torch.compile`, none of which sets anything here."""
    modes: dict[str, dict[str, Any]] = {
        name: {}
        for name in (
            *("default", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune"),
            *("lite",),
        )
    }
    return modes[mode] if mode else modes


def list_options() -> list[str]:
    """No options."""
    return []


def cudagraph_mark_step_begin() -> None:
    """Nothing to mark."""


compile = _absent.function(__name__, "compile", "no code is generated")
standalone_compile = _absent.function(__name__, "standalone_compile", "no code is generated")
aot_compile = _absent.function(__name__, "aot_compile", "no code is generated")
aoti_compile_and_package = _absent.function(
    __name__, "aoti_compile_and_package", "no code is generated"
)
