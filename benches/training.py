"""Training beside PyTorch: equal losses, checkpoints that go on in the other library, and what a step costs.

    python benches/training.py --torch /path/to/python/with/torch [--only equal|resume|speed]

`equal`: 200 steps of four models with two optimizers; the largest relative difference of a loss. `resume`: 100
steps in one library, a file, 100 in the other, against an uninterrupted run. `speed`: forward, backward and AdamW;
ratios above 1 mean that torchlike is faster.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from training_models import KINDS, Run

RUNS = [(kind, name) for kind in KINDS for name in ("SGD", "AdamW")]


def job(module: str, request: dict[str, Any]) -> Any:
    """What an interpreter is asked for."""
    torch = importlib.import_module(module)
    torch.set_num_threads(request.get("threads", 1))
    if request["what"] == "speed":
        return speed(torch, request["kind"], request["batch"])
    run = Run(torch, request["kind"], request["optimizer"], getattr(torch, request["dtype"]))
    if request["what"] == "start":
        torch.save({"model": run.model.state_dict(), "x": run.x}, request["file"])
        return None
    if request.get("start"):
        start = torch.load(request["start"])
        run.model.load_state_dict(start["model"])
        run.x = start["x"]
    if request["what"] == "first":
        losses = run.steps(100)
        torch.save(run.state(), request["file"])
        return losses
    if request["what"] == "second":
        run.load(torch.load(request["file"]))
        return run.steps(100)
    return run.steps(200)


def speed(torch: Any, kind: str, batch: int) -> float:
    """Seconds of a step, the best of about two seconds."""
    nn = torch.nn
    torch.manual_seed(0)
    if kind == "mlp":
        model: Any = nn.Sequential(
            nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
        )
        x = torch.randn(batch, 256)
    elif kind == "cnn":
        model = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
            nn.Flatten(), nn.Linear(64, 10),
        )  # fmt: skip
        x = torch.randn(batch, 3, 32, 32)
    elif kind == "lstm":
        model = nn.LSTM(64, 128, batch_first=True)
        x = torch.randn(batch, 32, 64)
    else:
        model = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
        x = torch.randn(batch, 32, 128)
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        out = model(x)
        (out[0] if kind == "lstm" else out).square().mean().backward()
        optimizer.step()

    for _ in range(3):
        step()
    best, stop = float("inf"), time.perf_counter() + 2
    while time.perf_counter() < stop:
        start = time.perf_counter()
        step()
        best = min(best, time.perf_counter() - start)
    return best


def ask(python: str, module: str, level: str = "", **request: Any) -> Any:
    """The answer of another process; `level` says which vector instructions PyTorch may use."""
    command = [python, __file__, "--job", module, json.dumps(request)]
    env = os.environ | ({"ATEN_CPU_CAPABILITY": level} if level else {})
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.strip().splitlines()[-1])


def apart(a: list[float], b: list[float]) -> float:
    """The largest relative difference."""
    return max(abs(x - y) / abs(y) for x, y in zip(a, b, strict=True))


def main() -> None:
    """Prints a line a case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch", help="an interpreter that has PyTorch")
    parser.add_argument("--only", choices=["equal", "resume", "speed"])
    parser.add_argument("--job", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        print(json.dumps(job(args.job[0], json.loads(args.job[1]))))
        return
    if not args.torch:
        parser.error("--torch is needed: everything here is a comparison")
    ours, theirs = (sys.executable, "torchlike"), (args.torch, "torch")
    if args.only in (None, "equal"):
        with tempfile.TemporaryDirectory() as folder:
            for dtype in ("float64", "float32"):
                for kind, name in RUNS:
                    about = {"kind": kind, "optimizer": name, "dtype": dtype}
                    # Random numbers depend on the instructions in PyTorch, so that all begin with one file.
                    about["start"] = file = str(Path(folder) / "start.pt")
                    ask(*theirs, what="start", file=file, **(about | {"start": None}))
                    about["what"] = "whole"
                    mine, its = ask(*ours, **about), ask(*theirs, **about)
                    others = [ask(*theirs, level=level, **about) for level in ("avx2", "default")]
                    others.append(ask(*theirs, threads=2, **about))
                    spread = max(apart(o, its) for o in others)
                    line = f"{dtype} {kind:12} {name:6} largest difference {apart(mine, its):.1e}"
                    print(f"{line}, PyTorch's from itself {spread:.1e}", flush=True)
    if args.only in (None, "resume"):
        with tempfile.TemporaryDirectory() as folder:
            file = str(Path(folder) / "checkpoint.pt")
            for kind, name in RUNS:
                about = {"kind": kind, "optimizer": name, "dtype": "float64"}
                whole = ask(*theirs, what="whole", **about)
                for first, second in ((ours, theirs), (theirs, ours), (ours, ours)):
                    losses = ask(*first, what="first", file=file, **about) + ask(
                        *second, what="second", file=file, **about
                    )
                    print(
                        f"{kind:12} {name:6} {first[1]:>9} then {second[1]:9} {apart(losses, whole):.1e}",
                        flush=True,
                    )
    if args.only in (None, "speed"):
        for threads in (1, 2):
            for kind in KINDS:
                for batch in (8, 256 if kind != "cnn" else 128):
                    best = [
                        min(
                            ask(*who, what="speed", kind=kind, batch=batch, threads=threads)
                            for _ in range(2)
                        )
                        for who in (ours, theirs)
                    ]
                    mine, its = (f"{seconds * 1e3:8.2f} ms" for seconds in best)
                    line = f"{kind:12} batch {batch:4} threads {threads} {mine}  PyTorch {its}"
                    print(f"{line}  x{best[1] / best[0]:.2f}", flush=True)


if __name__ == "__main__":
    main()
