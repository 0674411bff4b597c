"""ONNX: nothing is exported; what libraries say about exporting is kept."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Any

from torchlike import _absent, _lazy

__all__ = [
    "ExportableModule",
    "InputObserver",
    "ONNXProgram",
    "OnnxExporterError",
    "export",
    "is_in_onnx_export",
]

_why = "torchlike writes no ONNX files"


class OnnxExporterError(RuntimeError):
    """A model could not be exported."""


class TrainingMode(Enum):
    """In which mode a model is exported."""

    EVAL = 0
    PRESERVE = 1
    TRAINING = 2


class OperatorExportTypes(Enum):
    """What becomes of operators that ONNX has not."""

    ONNX = 0
    ONNX_ATEN = 1
    ONNX_ATEN_FALLBACK = 2
    ONNX_FALLTHROUGH = 3


class TensorProtoDataType(IntEnum):
    """ONNX's numbers of dtypes."""

    UNDEFINED = 0
    FLOAT = 1
    UINT8 = 2
    INT8 = 3
    UINT16 = 4
    INT16 = 5
    INT32 = 6
    INT64 = 7
    STRING = 8
    BOOL = 9
    FLOAT16 = 10
    DOUBLE = 11
    UINT32 = 12
    UINT64 = 13
    COMPLEX64 = 14
    COMPLEX128 = 15
    BFLOAT16 = 16


_symbolics: dict[tuple[str, int], Any] = {}


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: Any, opset_version: int) -> None:
    """Keeps how an operator would be exported."""
    _symbolics[symbolic_name, opset_version] = symbolic_fn


def unregister_custom_op_symbolic(symbolic_name: str, opset_version: int) -> None:
    """Forgets how an operator would be exported."""
    _symbolics.pop((symbolic_name, opset_version), None)


def is_in_onnx_export() -> bool:
    """False."""
    return False


export = _absent.function(__name__, "export", _why)
dynamo_export = _absent.function(__name__, "dynamo_export", _why)
select_model_mode_for_export = _absent.function(__name__, "select_model_mode_for_export", _why)
ONNXProgram = _absent.kind(__name__, "ONNXProgram", _why)
ExportOptions = _absent.kind(__name__, "ExportOptions", _why)
ExportableModule = _absent.kind(__name__, "ExportableModule", _why)
InputObserver = _absent.kind(__name__, "InputObserver", _why)

__getattr__ = _lazy.submodules(
    "onnx",
    *("errors", "operators", "symbolic_helper", "utils"),
    *(f"symbolic_opset{n}" for n in (9, 11, 12)),
)
