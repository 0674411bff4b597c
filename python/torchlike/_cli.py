"""The `torchlike` command of the wheel: the same Rust code as the native tool."""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """Runs the command with the process's arguments and returns its exit code."""
    from torchlike import _C

    # Python would only note Ctrl-C down until the Rust code returns.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _C._cli(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
