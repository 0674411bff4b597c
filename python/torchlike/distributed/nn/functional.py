"""Collectives with gradients: nothing connects processes yet."""

from torchlike.distributed import _needs_a_group

for _name in (
    "all_gather",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "broadcast",
    "gather",
    "reduce",
    "reduce_scatter",
    "scatter",
):
    globals()[_name] = _needs_a_group(_name)
