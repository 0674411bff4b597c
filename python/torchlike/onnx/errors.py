"""What exporting may complain of."""

from torchlike.onnx import OnnxExporterError


class UnsupportedOperatorError(OnnxExporterError):
    """An operator that ONNX has not."""


class SymbolicValueError(OnnxExporterError):
    """A value that is not known while a model is exported."""
