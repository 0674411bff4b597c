"""`functorch.experimental`."""

from torchlike import cond
from torchlike._functorch.apis import chunk_vmap
from torchlike._higher_order_ops import map
from torchlike.func import functionalize, hessian, jacfwd, jvp, replace_all_batch_norm_modules_

__all__ = [
    "chunk_vmap",
    "cond",
    "functionalize",
    "hessian",
    "jacfwd",
    "jvp",
    "map",
    "replace_all_batch_norm_modules_",
]
