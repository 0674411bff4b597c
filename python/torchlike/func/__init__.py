"""Function transforms: gradients, Jacobians and batches of functions, and modules as functions of their parameters."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

from torchlike import _C
from torchlike._vmap import vmap
from torchlike.func._grad import grad, grad_and_value, jvp, linearize, vjp
from torchlike.func._jacobian import hessian, jacfwd, jacrev
from torchlike.func._modules import (
    functional_call,
    replace_all_batch_norm_modules_,
    stack_module_state,
)
from torchlike.func._rearrange import rearrange

if TYPE_CHECKING:
    from collections.abc import Callable

    from torchlike._C import Tensor

__all__ = [
    "debug_unwrap",
    "functional_call",
    "functionalize",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "rearrange",
    "replace_all_batch_norm_modules_",
    "stack_module_state",
    "vjp",
    "vmap",
]


def functionalize(func: Callable[..., Any], *, remove: str = "mutations") -> Callable[..., Any]:
    """The function itself: calls in place are recorded as what they are here, and nothing has to be rewritten.

    A graph that `make_fx` makes of it has no calls in place, and with `remove="mutations_and_views"` no views.
    """
    if remove not in ("mutations", "mutations_and_views"):
        raise RuntimeError(
            "functionalize(f, remove='mutations'): received invalid argument for remove=. Valid options are:\n"
            "     remove='mutations': all inplace and out= operators will be removed from the program, and "
            "replaced with their out-of-place equivalents.\n"
            "     remove='mutations_and_views': In addition to the above, all aliasing operators {view} will be "
            "replaced with their non-aliasing counterparts, {view}_copy.\n"
        )

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        proxy_tensor = sys.modules.get("torchlike.fx.experimental.proxy_tensor")
        mode = proxy_tensor.get_proxy_mode() if proxy_tensor is not None else None
        if mode is not None:
            mode.tracer.functional = remove
        return func(*args, **kwargs)

    return wrapped


def debug_unwrap(tensor: Tensor, *, recurse: bool = True) -> Tensor:
    """All examples of a tensor inside `vmap`; any other tensor as it is.

    Without `recurse` those of the innermost level alone.
    """
    levels, whole = _C._batch_whole(tensor)
    if not levels:
        return tensor
    if recurse:
        return whole
    return _C._batch_show(tensor, 0, levels[-1], whole.shape[len(levels) - 1])


# They stand in files of their own here, and in one in PyTorch.
for _name in __all__:
    globals()[_name].__module__ = __name__
