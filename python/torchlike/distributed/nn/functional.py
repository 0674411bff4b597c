"""Collectives with gradients: nothing connects processes yet."""

from torchlike import _absent

globals().update(
    _absent.names(
        __name__,
        "nothing connects processes yet",
        "all_gather all_reduce all_to_all all_to_all_single broadcast gather reduce reduce_scatter scatter",
    )
)
