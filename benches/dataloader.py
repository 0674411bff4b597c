"""Batches made by worker processes: samples a second, beside PyTorch with `--torch PYTHON`.

    python benches/dataloader.py --torch /path/to/python/with/torch

Every case is a whole pass over a data set, the start of the workers included. Both take turns; the best counts.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import time

CASES = {
    "10,000 samples of 64 floats, 2 workers, batches of 32": (10_000, 64, 32, 2),
    "10,000 samples of 64 floats, 2 workers, one by one": (10_000, 64, None, 2),
    "10,000 samples of 64 floats, 2 workers, batches of 256": (10_000, 64, 256, 2),
    "512 samples of 150,528 floats, 2 workers, batches of 32": (512, 150_528, 32, 2),
    "10,000 samples of 64 floats, no workers, batches of 32": (10_000, 64, 32, 0),
}


def measure(module: str, name: str) -> float:
    """Seconds of one pass."""
    torch = importlib.import_module(module)
    data = importlib.import_module(f"{module}.utils.data")
    count, size, batch, workers = CASES[name]

    class Samples(data.Dataset):
        def __len__(self) -> int:
            return count

        def __getitem__(self, i: int) -> tuple[object, int]:
            return torch.full((size,), float(i)), i % 10

    torch.set_num_threads(1)
    loader = data.DataLoader(Samples(), batch_size=batch, num_workers=workers, shuffle=True)
    start = time.perf_counter()
    seen = 0
    for x, _ in loader:
        seen += 1 if batch is None else len(x)
    if seen != count:
        raise AssertionError(f"{seen} samples of {count}")
    return time.perf_counter() - start


def best(python: str, module: str, name: str) -> float:
    """The time of a pass in a process of its own."""
    command = [python, __file__, "--one", module, name]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return float(json.loads(out.strip().splitlines()[-1]))


def main() -> None:
    """Prints a line a case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch", help="an interpreter that has PyTorch")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(*args.one)))
        return
    for name, (count, *_) in CASES.items():
        ours, theirs = [], []
        for _ in range(args.turns):
            ours.append(best(sys.executable, "torchlike", name))
            if args.torch:
                theirs.append(best(args.torch, "torch", name))
        line = f"{name:58} {count / min(ours):10,.0f} samples/s"
        if theirs:
            line += f"   PyTorch {count / min(theirs):10,.0f}   x{min(theirs) / min(ours):.2f}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
