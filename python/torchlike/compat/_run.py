"""Programs for PyTorch, run with torchlike in its place: `python -m torchlike script.py ...`."""

from __future__ import annotations

import os
import runpy
import sys


def wanted(args: list[str]) -> bool:
    """Whether a command line names a program: a file of Python's, a folder or archive of one, `-m` or `-c`."""
    if not args:
        return False
    first = args[0]
    if first in ("-m", "-c"):
        return len(args) > 1
    return first.endswith((".py", ".pyw", ".pyz")) or os.path.isfile(
        os.path.join(first, "__main__.py")
    )


def run(args: list[str]) -> None:
    """Runs the program as `__main__`, as the interpreter would, after `import torch` has come to give torchlike.

    Raises:
        SystemExit: if there is no such file.
    """
    from torchlike.compat import install_as_torch

    install_as_torch()
    first, rest = args[0], args[1:]
    if first == "-m":
        sys.argv = rest
        sys.path[0] = os.getcwd()
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.path[0] = ""
        import __main__

        exec(compile(rest[0], "<string>", "exec"), vars(__main__))
    else:
        sys.argv = args
        if not os.path.exists(first):
            sys.exit(f"torchlike: can't open file {first!r}: there is none")
        path = os.path.abspath(first)
        sys.path[0] = os.path.dirname(path)
        runpy.run_path(path, run_name="__main__")
