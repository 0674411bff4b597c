"""Pipes that change the order: use samplers."""

from torchlike import _absent
from torchlike.utils.data.datapipes.datapipe import IterDataPipe

_why = "use a sampler of torch.utils.data"
SamplerIterDataPipe = _absent.kind(__name__, "SamplerIterDataPipe", _why, IterDataPipe)
ShufflerIterDataPipe = _absent.kind(__name__, "ShufflerIterDataPipe", _why, IterDataPipe)
