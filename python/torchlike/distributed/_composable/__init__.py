"""Sharding without a wrapper: there are no process groups."""

from torchlike.distributed._composable.fsdp import fully_shard
