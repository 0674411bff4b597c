"""Finding the call whose gradient fails."""

from __future__ import annotations

import sys
import traceback
import warnings
from typing import Any

from torchlike import _C

__all__ = ["detect_anomaly", "set_detect_anomaly"]

_STACK = "traceback_"
_WITHIN = "parent_"


def _made(node: Any, within: Any) -> None:
    """Notes where a node's call was made, and by which node's run if it was by one."""
    node.metadata[_STACK] = traceback.format_stack()[:-1]
    if within is not None:
        # The node itself may be gone by the time that it is asked for.
        node.metadata[_WITHIN] = (within.name(), within.metadata)


def _failed(node: Any, _: Any) -> None:
    """Tells where the call of a node that fails was made, and those whose gradients it was a part of."""
    about, caused = f"Error detected in {node.name()}.", "caused the error"
    metadata = node.metadata
    while True:
        stack = metadata.get(_STACK)
        if stack is None:
            more = (
                "No forward pass information available. Enable detect anomaly during forward pass for more "
                "information."
            )
        else:
            more = f"Traceback of forward call that {caused}:\n" + "".join(stack)
        _tell(f"{about} {more}")
        if _WITHIN not in metadata:
            return
        name, metadata = metadata[_WITHIN]
        about = f"\n\nPrevious calculation was induced by {name}."
        caused = "induced the previous calculation"


def _tell(text: str) -> None:
    try:
        warnings.warn(text, stacklevel=4)
    except Warning as told:
        # The error of the backward pass is what is raised.
        print(told, file=sys.stderr)


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
