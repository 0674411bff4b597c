"""`functorch.experimental.control_flow`."""

from torchlike import cond
from torchlike._higher_order_ops import map

__all__ = ["cond", "map"]
