"""Wrappers that PyTorch has for several devices."""

from torchlike import _absent, _lazy
from torchlike.nn.parallel.data_parallel import DataParallel, data_parallel
from torchlike.nn.parallel.distributed import DistributedDataParallel

scatter_gather = _lazy.module("torchlike.nn.parallel.scatter_gather")

__all__ = ["DataParallel", "DistributedDataParallel", "data_parallel"]

globals().update(
    _absent.names(
        __name__,
        "a model is on one device here; DataParallel and data_parallel take one",
        "gather parallel_apply replicate scatter",
    )
)
