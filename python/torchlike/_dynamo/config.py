"""Settings of the compiler, with PyTorch's defaults: kept, without an effect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

from contextlib import contextmanager

cache_size_limit = recompile_limit = 8
accumulated_cache_size_limit = accumulated_recompile_limit = 256
capture_scalar_outputs = False
capture_dynamic_output_shape_ops = False
suppress_errors = False
verbose = False
disable = False
assume_static_by_default = True
automatic_dynamic_shapes = True
specialize_int = False
guard_nn_modules = True
inline_inbuilt_nn_modules = True
optimize_ddp: Any = True
allow_rnn = False
error_on_recompile = False
skip_fwd_side_effects_in_bwd_under_checkpoint = False
log_compilation_metrics = True
compiled_autograd = False


@contextmanager
def patch(values: Any = None, value: Any = None, **more: Any) -> Iterator[None]:
    """Sets settings for a block."""
    given = {values: value} if isinstance(values, str) else {**(values or {}), **more}
    here = globals()
    before = {name: here[name] for name in given if name in here}
    here.update(given)
    try:
        yield
    finally:
        for name in given:
            if name in before:
                here[name] = before[name]
            else:
                here.pop(name, None)
