"""Scales of sharded gradients: there are no process groups."""

from torchlike import _absent

ShardedGradScaler = _absent.kind(__name__, "ShardedGradScaler", "there are no process groups")
