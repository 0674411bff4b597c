"""Collectives with gradients, which torchlike has not."""

from torchlike import _absent

globals().update(
    _absent.names(
        __name__,
        "collectives have no gradients; those of DTensor have",
        "all_gather all_reduce all_to_all all_to_all_single broadcast gather reduce reduce_scatter scatter",
    )
)
