"""`import torch` gives torchlike: for code that is written for PyTorch and stays as it is.

    import torchlike.compat
    torchlike.compat.install_as_torch()
    import torch, timm, transformers

Also `python -m torchlike script.py ...`, and for programs that start by themselves `torchlike hook install`, after
which `TORCHLIKE_AS_TORCH=1` in the environment does it in every process of this Python.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import torchlike
from torchlike.compat import _children, _finder, _names
from torchlike.torch_version import TorchVersion

__all__ = ["install_as_torch", "installed_as_torch", "uninstall"]

#: The version of PyTorch that torchlike follows, as it says itself while it stands for it.
VERSION = "2.13.0+torchlike"

_before: dict[Any, Any] = {}


def installed_as_torch() -> bool:
    """Whether `import torch` gives torchlike now."""
    return bool(_before)


def install_as_torch() -> None:
    """Makes `import torch` and every `torch.x.y` give torchlike's own objects, which say `torch.` of themselves.

    An installed PyTorch is not touched. To call it again changes nothing; `uninstall` undoes it.

    Raises:
        RuntimeError: if PyTorch is imported already.
    """
    if _before:
        return
    theirs = sys.modules.get("torch")
    if theirs is not None and theirs is not torchlike:
        where = getattr(theirs, "__file__", None) or "memory"
        raise RuntimeError(
            f"PyTorch is imported already (from {where}), so `torch` cannot become torchlike: call "
            "torchlike.compat.install_as_torch() before the first `import torch`"
        )
    from torchlike import _lazy, version

    for holder in (torchlike, version):
        _before[holder] = vars(holder)["__version__"]
        own = holder is torchlike
        setattr(holder, "__version__", TorchVersion(VERSION) if own else VERSION)  # noqa: B010
    at = sys.meta_path.index(_lazy._Loaded) + 1  # what ran already is not to be found once more
    sys.meta_path[at:at] = [_finder.ALIASES, _finder.OWN]
    _names.rename("torch")
    _children.tell(True)


def uninstall() -> None:
    """Undoes `install_as_torch`: objects that programs hold stay torchlike's, and say so again."""
    if not _before:
        return
    sys.meta_path[:] = [f for f in sys.meta_path if f not in (_finder.ALIASES, _finder.OWN)]
    for holder, value in _before.items():
        holder.__version__ = value
    _before.clear()
    _names.rename("torchlike")
    _children.tell(False)
