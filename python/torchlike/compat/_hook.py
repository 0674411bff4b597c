"""The line that lets every process of a Python ask for torchlike in place of PyTorch, and its removal.

Python runs the line when it starts; without `TORCHLIKE_AS_TORCH=1` in the environment it does nothing.
"""

from __future__ import annotations

import sysconfig
from pathlib import Path

NAME = "torchlike_as_torch.pth"
LINE = (
    'import os; os.environ.get("TORCHLIKE_AS_TORCH") == "1" and '
    '__import__("torchlike.compat").compat.install_as_torch()\n'
)


def path() -> Path:
    """Where the line stands, or would stand: in the folder of this Python's packages."""
    return Path(sysconfig.get_path("purelib")) / NAME


def install() -> Path:
    """Writes the line.

    Raises:
        OSError: if the folder cannot be written.
    """
    file = path()
    file.write_text(LINE)
    return file


def remove() -> bool:
    """Removes the line; whether there was one."""
    file = path()
    if not file.exists():
        return False
    file.unlink()
    return True


def command(args: list[str]) -> int:
    """`torchlike hook install`, `remove` or `status`; returns the exit code."""
    import sys

    what = args[0] if len(args) == 1 else ""
    if what == "install":
        print(f"wrote {install()}: with TORCHLIKE_AS_TORCH=1 `import torch` gives torchlike")
    elif what == "remove":
        print(f"removed {path()}" if remove() else "there is no hook")
    elif what == "status":
        print(path() if path().exists() else "there is no hook")
    else:
        print("usage: torchlike hook install|remove|status", file=sys.stderr)
        return 2
    return 0
