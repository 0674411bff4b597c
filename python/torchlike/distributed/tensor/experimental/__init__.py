"""Contexts of parallel computation: there are no process groups."""

from torchlike import _absent

__all__ = ["context_parallel", "implicit_replication", "local_map", "register_sharding"]

globals().update(_absent.names(__name__, "there are no process groups", " ".join(__all__)))
