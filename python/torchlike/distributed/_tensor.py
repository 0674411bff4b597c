"""The old name of `torchlike.distributed.tensor`, whose modules have old names, too."""

import sys

from torchlike.distributed import tensor as _now
from torchlike.distributed.tensor import *
from torchlike.distributed.tensor import DeviceMesh as DeviceMesh
from torchlike.distributed.tensor import _api
from torchlike.distributed.tensor import _utils as _utils
from torchlike.distributed.tensor import device_mesh as device_mesh
from torchlike.distributed.tensor import experimental as experimental
from torchlike.distributed.tensor import placement_types as placement_types

api = _api
__path__ = list(_now.__path__)
for _name in ("_utils", "api", "device_mesh", "experimental", "placement_types"):
    sys.modules[f"{__name__}.{_name}"] = globals()[_name]
