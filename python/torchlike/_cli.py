"""The `torchlike` command of the wheel: the same Rust code as the native tool, and programs for PyTorch.

`torchlike script.py ...`, `torchlike -m module ...` and `torchlike -c code` run a program in which `import torch`
gives torchlike; `torchlike hook install` lets `TORCHLIKE_AS_TORCH=1` do so for every program. `torchlike plan`,
`validate` and `check` look at a model without data.
"""

from __future__ import annotations

import os
import signal
import sys

_MORE = """
Of models, with code that makes them (see torchlike plan --help):
  plan         memory and FLOPs of a step, without data
  validate     whether shapes fit, through forward and backward
  check        compare the names, shapes and dtypes of a checkpoint with a model's

Programs for PyTorch:
  torchlike SCRIPT.py ... | -m MODULE ... | -c CODE   run with torchlike as torch
  torchlike hook install                              let TORCHLIKE_AS_TORCH=1 do so for every program"""


def main() -> int:
    """Runs the command with the process's arguments and returns its exit code; that nobody reads on is no failure."""
    try:
        code = _main()
        sys.stdout.flush()
    except BrokenPipeError:
        # What is left to be written is dropped, or Python would complain at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


def _main() -> int:
    from torchlike import _C
    from torchlike.compat import _run

    args = sys.argv[1:]
    if _run.wanted(args):
        _run.run(args)
        return 0
    if args[:1] == ["hook"]:
        from torchlike.compat import _hook

        return _hook.command(args[1:])
    if args[:1] and args[0] in ("plan", "validate", "check"):
        from torchlike.plan import _command

        return _command.main(args)
    if args in (["-h"], ["--help"]):
        code = _C._cli(args)
        print(_MORE)
        return code
    # Python would only note Ctrl-C down until the Rust code returns.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _C._cli(args)


if __name__ == "__main__":
    sys.exit(main())
