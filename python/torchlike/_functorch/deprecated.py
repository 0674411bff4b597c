"""The functions of the package `functorch`: those of `torchlike.func`, which say so."""

from __future__ import annotations

import functools
import warnings
from typing import TYPE_CHECKING, Any

from torchlike import func
from torchlike._functorch import make_functional as modules

if TYPE_CHECKING:
    from collections.abc import Callable


def _moved(function: Callable[..., Any], instead: str | None = None) -> Callable[..., Any]:
    """The function, which names its place of today when it is called."""
    name = function.__name__
    text = (
        "We've integrated functorch into PyTorch. As the final step of the integration, "
        f"`functorch.{name}` is deprecated as of PyTorch 2.0 and will be deleted in a future version "
        f"of PyTorch >= 2.3. Please use `{instead or f'torch.func.{name}'}` instead; see the PyTorch 2.0 "
        "release notes and/or the `torch.func` migration guide for more details "
        "https://pytorch.org/docs/main/func.migrating.html"
    )

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        warnings.warn(text, FutureWarning, stacklevel=2)
        return function(*args, **kwargs)

    return called


functionalize = _moved(func.functionalize)
grad = _moved(func.grad)
grad_and_value = _moved(func.grad_and_value)
hessian = _moved(func.hessian)
jacfwd = _moved(func.jacfwd)
jacrev = _moved(func.jacrev)
jvp = _moved(func.jvp)
vjp = _moved(func.vjp)
vmap = _moved(func.vmap, "torch.vmap")
combine_state_for_ensemble = _moved(
    modules.combine_state_for_ensemble, "torch.func.stack_module_state"
)
make_functional = _moved(modules.make_functional, "torch.func.functional_call")
make_functional_with_buffers = _moved(
    modules.make_functional_with_buffers, "torch.func.functional_call"
)
