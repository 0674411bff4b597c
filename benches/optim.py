"""What a step of an optimizer costs, beside PyTorch: `python benches/optim.py [--torch PYTHON] [--threads N]`.

Each case runs in this interpreter and, if a Python with PyTorch is named (or TORCHLIKE_BENCH_TORCH is set), in that
one, taking turns; the best turn counts. Ratios above 1 mean torchlike is faster than PyTorch's default.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from typing import Any

LARGE, SMALL, MODEL = [4_000_000], [100] * 400, [1 << 16] * 16
CASES: dict[str, tuple[str, dict[str, Any], list[int], str]] = {
    "AdamW, 4M floats": ("AdamW", {}, LARGE, "cpu"),
    "AdamW fused, 4M floats": ("AdamW", {"fused": True}, LARGE, "cpu"),
    "AdamW, 400 small": ("AdamW", {}, SMALL, "cpu"),
    "AdamW fused, 400 small": ("AdamW", {"fused": True}, SMALL, "cpu"),
    "AdamW, 723 on meta": ("AdamW", {}, [1 << 20] * 723, "meta"),
    **{
        f"{name}{' momentum' if options else ''}, 1M floats": (name, options, MODEL, "cpu")
        for name, options in (
            ("SGD", {}),
            ("SGD", {"momentum": 0.9}),
            ("Adam", {}),
            ("Adagrad", {}),
            ("Adadelta", {}),
            ("Adamax", {}),
            ("ASGD", {}),
            ("NAdam", {}),
            ("RAdam", {}),
            ("RMSprop", {}),
            ("Rprop", {}),
            ("Adafactor", {}),
        )
    },
    "Muon, 16 matrices": ("Muon", {}, MODEL, "matrices"),
}


def measure(module: str, threads: int, only: str) -> dict[str, float]:
    """Seconds a step of each case takes in this interpreter."""
    torch = __import__(module)
    torch.set_num_threads(threads)
    found = {}
    for label, (name, options, sizes, where) in CASES.items():
        if only not in label:
            continue
        device = "meta" if where == "meta" else "cpu"
        shapes = [(256, n // 256) if where == "matrices" else (n,) for n in sizes]
        ps = [torch.nn.Parameter(torch.ones(s, device=device)) for s in shapes]
        for p in ps:
            p.grad = torch.full_like(p, 0.5)
        optimizer = getattr(torch.optim, name)(ps, **options)
        for _ in range(2):
            optimizer.step()
        best = float("inf")
        stop = time.perf_counter() + 0.7
        while time.perf_counter() < stop:
            start = time.perf_counter()
            optimizer.step()
            best = min(best, time.perf_counter() - start)
        found[label] = best
    return found


def other(python: str, args: argparse.Namespace) -> dict[str, float]:
    """The same by another interpreter."""
    command = [python, __file__, "--module", "torch", "--threads", str(args.threads)]
    out = subprocess.run(
        [*command, "--only", args.only, "--json"], check=True, capture_output=True, text=True
    )
    return json.loads(out.stdout)


def main() -> None:
    """Prints a line a case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch", default=os.environ.get("TORCHLIKE_BENCH_TORCH"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    parser.add_argument("--module", default="torchlike")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    ours = measure(args.module, args.threads, args.only)
    if args.json:
        json.dump(ours, sys.stdout)
        return
    theirs = other(args.torch, args) if args.torch else {}
    again = measure(args.module, args.threads, args.only) if args.torch else ours
    for label, seconds in ours.items():
        best = min(seconds, again[label])
        line = f"{label:32} {best * 1e6:10.1f} us"
        if label in theirs:
            line += f"   {theirs[label] / best:6.2f} x PyTorch's {theirs[label] * 1e6:.1f} us"
        print(line)


if __name__ == "__main__":
    main()
