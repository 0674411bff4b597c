"""The world of the backend `fake`: of any size, in which this process is any rank, and which moves nothing."""

from torchlike.distributed._stores import FakeStore

__all__ = ["FakeStore"]
