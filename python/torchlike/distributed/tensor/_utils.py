"""Which part of a tensor a process has: there are no process groups."""

from torchlike import _absent

globals().update(
    _absent.names(
        __name__,
        "there are no process groups",
        "compute_local_shape_and_global_offset compute_global_tensor_info compute_local_shape",
    )
)
