"""The old name of `torch.distributed.tensor`, whose modules have old names, too."""

import sys

from torchlike.distributed import tensor as _now
from torchlike.distributed.tensor import *
from torchlike.distributed.tensor import DeviceMesh as DeviceMesh
from torchlike.distributed.tensor import experimental as experimental
from torchlike.distributed.tensor import placement_types as placement_types

__path__ = list(_now.__path__)
for _name in ("experimental", "placement_types"):
    sys.modules[f"{__name__}.{_name}"] = globals()[_name]
