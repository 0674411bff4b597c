"""The names of the package, where PyTorch defines them."""

from torchlike.distributed.fsdp import *
