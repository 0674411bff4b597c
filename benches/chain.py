"""A chain of a million nodes on a stack of 256 KB: built, walked back, dropped; beside PyTorch if it is installed."""

from __future__ import annotations

import importlib
import threading
import time
from typing import Any

LENGTH = 1_000_000


def measure(torch: Any) -> tuple[float, float, float]:
    """The seconds of building, of the walk back and of dropping the chain."""
    times: list[float] = []

    def work() -> None:
        x = torch.ones(1, requires_grad=True)
        times.append(time.perf_counter())
        y = x
        for _ in range(LENGTH):
            y = y * 1.0
        times.append(time.perf_counter())
        y.backward(retain_graph=True)
        times.append(time.perf_counter())
        del y
        times.append(time.perf_counter())

    threading.stack_size(256 * 1024)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    threading.stack_size(0)
    return times[1] - times[0], times[2] - times[1], times[3] - times[2]


def main() -> None:
    """Prints a line for each library."""
    for name in ("torchlike", "torch"):
        try:
            library = importlib.import_module(name)
        except ImportError:
            continue
        build, walk, drop = measure(library)
        print(f"{name:10} build {build:6.2f} s  backward {walk:6.2f} s  drop {drop:6.2f} s")


if __name__ == "__main__":
    main()
