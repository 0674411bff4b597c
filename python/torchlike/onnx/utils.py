"""Exporting by hand."""

from torchlike import _absent

globals().update(
    _absent.names(
        __name__,
        "torchlike writes no ONNX files",
        "export export_to_pretty_string select_model_mode_for_export unconvertible_ops",
    )
)
