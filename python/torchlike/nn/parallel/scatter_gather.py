"""Inputs and results of a module on several devices, which there are none of."""

from torchlike import _absent

globals().update(
    _absent.names(
        __name__,
        "a model is on one device here; DataParallel and data_parallel take one",
        "gather scatter scatter_kwargs",
    )
)
