"""Meshes of devices, under the name that they had beside tensors on them."""

from torchlike.distributed.device_mesh import DeviceMesh, init_device_mesh

__all__ = ["DeviceMesh", "init_device_mesh"]
