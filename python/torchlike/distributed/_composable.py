"""Sharding without a wrapper: there are no process groups."""

from torchlike.distributed.fsdp import fully_shard as fully_shard
