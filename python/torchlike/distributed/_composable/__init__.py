"""Sharding without a wrapper."""

from torchlike.distributed._composable.fsdp import fully_shard
