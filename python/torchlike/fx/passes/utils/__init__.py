"""What passes share."""

from torchlike.fx.passes.utils.common import HolderModule, compare_graphs, lift_subgraph_as_module
