"""What loaders are made of: collation, fetching, worker processes and the way between them."""

from torchlike._utils import ExceptionWrapper
from torchlike.utils.data._utils import collate, fetch, pin_memory, worker

__all__ = ["ExceptionWrapper", "collate", "fetch", "pin_memory", "worker"]
