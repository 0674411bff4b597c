"""What passes share."""

from torchlike import _lazy
from torchlike.fx.passes.utils.common import HolderModule, compare_graphs, lift_subgraph_as_module

matcher_utils = _lazy.module("torchlike.fx.passes.utils.matcher_utils")
