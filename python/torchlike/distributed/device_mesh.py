"""Meshes of devices: none can be made."""

from torchlike.distributed import DeviceMesh, init_device_mesh

__all__ = ["DeviceMesh", "init_device_mesh"]
