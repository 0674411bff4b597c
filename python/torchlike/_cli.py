"""The `torchlike` command of the wheel: the same Rust code as the native tool, and programs for PyTorch.

`torchlike script.py ...`, `torchlike -m module ...` and `torchlike -c code` run a program in which `import torch`
gives torchlike; `torchlike hook install` lets `TORCHLIKE_AS_TORCH=1` do so for every program. `torchlike plan`,
`validate` and `check` look at a model without data.
"""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """Runs the command with the process's arguments and returns its exit code."""
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
    # Python would only note Ctrl-C down until the Rust code returns.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _C._cli(args)


if __name__ == "__main__":
    sys.exit(main())
