"""What tensors on meshes are made by, under the name that it has in PyTorch."""

from torchlike.distributed.tensor._distribute import distribute_module, distribute_tensor
from torchlike.distributed.tensor._dtensor import DTensor
from torchlike.distributed.tensor._factories import empty, full, ones, rand, randn, zeros

__all__ = [
    "DTensor",
    "distribute_module",
    "distribute_tensor",
    "empty",
    "full",
    "ones",
    "rand",
    "randn",
    "zeros",
]
