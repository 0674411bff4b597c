"""What a training step needs, found without a device: memory by class, FLOPs, modules at work."""

from torchlike.distributed._tools.mem_tracker import MemTracker
from torchlike.distributed._tools.mod_tracker import ModTracker
from torchlike.distributed._tools.runtime_estimator import RuntimeEstimator

__all__ = ["MemTracker", "ModTracker", "RuntimeEstimator"]
