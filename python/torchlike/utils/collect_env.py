"""What to tell in a report of an error."""

from __future__ import annotations

import platform
import sys

import torchlike


def get_pretty_env_info() -> str:
    """Versions and machine as lines of text."""
    from torchlike.backends.cpu import get_cpu_capability

    rows = {
        "torchlike version": str(torchlike.__version__),
        "Python version": sys.version.replace("\n", " "),
        "OS": platform.platform(),
        "CPU capability": get_cpu_capability(),
        "Is CUDA available": str(torchlike.cuda.is_available()),
    }
    return "\n".join(f"{name}: {value}" for name, value in rows.items())


def main() -> None:
    """Prints them."""
    print(get_pretty_env_info())


if __name__ == "__main__":
    main()
