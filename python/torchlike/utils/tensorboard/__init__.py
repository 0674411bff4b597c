"""Events for TensorBoard: none are written."""

from torchlike import _absent

__all__ = ["FileWriter", "SummaryWriter"]

_why = "no events are written; the package tensorboardX writes them"
FileWriter = _absent.kind(__name__, "FileWriter", _why)
SummaryWriter = _absent.kind(__name__, "SummaryWriter", _why)
