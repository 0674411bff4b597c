"""Finding the call whose gradient fails."""

from __future__ import annotations

import traceback
import warnings
from typing import Any

from torchlike import _C

__all__ = ["detect_anomaly", "set_detect_anomaly"]

_STACK = "traceback_"


def _made(node: Any) -> None:
    """Notes where a node's call was made."""
    node.metadata[_STACK] = traceback.format_stack()


def _failed(node: Any) -> None:
    """Tells where the call of a node that fails was made."""
    stack = node.metadata.get(_STACK)
    if stack is None:
        warnings.warn(
            f"Error detected in {node.name()}. No forward pass information available. Enable detect "
            "anomaly during forward pass for more information.",
            stacklevel=2,
        )
        return
    warnings.warn(
        f"Error detected in {node.name()}. Traceback of forward call that caused the error:\n"
        + "".join(stack),
        stacklevel=2,
    )


class detect_anomaly:
    """Inside, a backward pass that fails tells where the failing call was made.

    With ``check_nan`` gradients that are no numbers are errors.
    """

    def __init__(self, check_nan: bool = True) -> None:
        self._check_nan = check_nan
        self._before = _C._anomaly()
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should only "
            "be enabled for debugging.",
            stacklevel=2,
        )

    def __enter__(self) -> None:
        _C._set_anomaly(True, self._check_nan)

    def __exit__(self, *exc: object) -> None:
        _C._set_anomaly(*self._before)


class set_detect_anomaly:
    """Switches the detection at once; as a context manager, until its end."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self._before = _C._set_anomaly(mode, check_nan)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        _C._set_anomaly(*self._before)
