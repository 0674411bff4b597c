"""The old name of `torch.distributed.tensor`."""

from torchlike.distributed.tensor import *
from torchlike.distributed.tensor import DeviceMesh as DeviceMesh
