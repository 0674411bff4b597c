"""What benchmarks of statements have in common: libraries in processes of their own that take turns on every case."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import time

Cases = dict[str, tuple[str, str]]
"""Setup and statement of each case, by name."""


def serve(module: str, threads: int, table: Cases) -> None:
    """Answers requests of the parent: prepare a case, run it so many times."""
    reply = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    torch = __import__(module)
    torch.set_num_threads(threads)
    run = None
    for line in sys.stdin:
        what, arg = json.loads(line)
        if what == "prepare":
            setup, code = table[arg]
            run = None
            torch.manual_seed(0)
            space = {"torch": torch, "F": torch.nn.functional, "clock": time.perf_counter}
            exec(setup, space)
            exec(
                f"def run(n):\n    t = clock()\n    for _ in range(n):\n        {code}\n    return clock() - t",
                space,
            )
            run = space["run"]
            run(1)
            answer = run(1)
        else:
            answer = run(arg)
        reply.write(json.dumps(answer) + "\n")
        reply.flush()


class Side:
    """One library in a process of its own."""

    def __init__(self, script: str, python: str, module: str, threads: int) -> None:
        command = [python, script, "--serve", module, "--threads", str(threads)]
        env = dict(os.environ, OMP_NUM_THREADS=str(threads))
        if threads > 1:
            env["OMP_PROC_BIND"] = "true"  # else PyTorch's two threads may share a core
        self.child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )

    def ask(self, what: str, arg: object) -> float:
        """Seconds."""
        assert self.child.stdin and self.child.stdout
        self.child.stdin.write(json.dumps([what, arg]) + "\n")
        self.child.stdin.flush()
        line = self.child.stdout.readline()
        if not line:
            raise SystemExit(f"the process of {self.child.args} ended")
        return float(json.loads(line))

    def close(self) -> None:
        """Ends the process."""
        assert self.child.stdin
        self.child.stdin.close()
        self.child.wait()


def best(sides: list[Side], name: str, turns: int, threads: int) -> list[float]:
    """Seconds a call of each side."""
    counts = []
    for side in sides:
        spent = max(side.ask("prepare", name), 1e-7)
        counts.append(max(1, min(10_000, int(0.003 / spent))))
    times = [math.inf] * len(sides)
    order = range(len(sides))
    for turn in range(turns):
        for i in reversed(order) if turn % 2 else order:
            if threads > 1 and len(sides) > 1:
                time.sleep(0.012)  # idle threads of the other side stop spinning
            times[i] = min(times[i], sides[i].ask("run", counts[i]) / counts[i])
    return times


def mean(ratios: list[float]) -> float:
    """The geometric one."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def torch_of(named: str | None) -> str | None:
    """An interpreter with PyTorch, if there is one."""
    python = named or sys.executable
    found = subprocess.run([python, "-c", "import torch"], capture_output=True, check=False)
    return python if found.returncode == 0 else None


def compare(
    script: str, chosen: list[str], others: dict[str, tuple[str, str]], turns: int, threads: int
) -> list[list[float]]:
    """Prints a line a case and the means; the ratios of each other library."""
    sides = [Side(script, sys.executable, "torchlike", threads)]
    sides += [Side(script, python, module, threads) for python, module in others.values()]
    heads = "".join(f"{name + ' us':>14}{'ratio':>8}" for name in others)
    print(f"\n{threads} thread(s){'':<19}{'torchlike us':>14}{heads}")
    found = []
    for name in chosen:
        mine, *theirs = best(sides, name, turns, threads)
        found.append([t / mine for t in theirs])
        beside = "".join(f"{t * 1e6:>14.1f}{t / mine:>8.2f}" for t in theirs)
        print(f"{name:<30}{mine * 1e6:>14.1f}{beside}", flush=True)
    for side in sides:
        side.close()
    return [list(ratios) for ratios in zip(*found, strict=True)]


def main(doc: str | None, script: str, cases: Cases) -> None:
    """Prints one table and its geometric means."""
    parser = argparse.ArgumentParser(description=(doc or "").split("\n")[0])
    parser.add_argument("--torch", default=os.environ.get("TORCHLIKE_BENCH_TORCH"))
    parser.add_argument("--before", help="a Python with another build of torchlike")
    parser.add_argument("--filter", default="", help="only cases whose name matches")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--serve")
    args = parser.parse_args()
    if args.serve:
        serve(args.serve, int(args.threads), cases)
        return
    others = {}
    if args.before:
        others["before"] = (args.before, "torchlike")
    if torch := torch_of(args.torch):
        others["torch"] = (torch, "torch")
    if not others:
        print("no PyTorch: torchlike's times alone (name an interpreter with --torch)")
    chosen = [name for name in cases if re.search(args.filter, name)]
    all_ratios: dict[str, list[float]] = {name: [] for name in others}
    for threads in (int(t) for t in args.threads.split(",")):
        for name, ratios in zip(
            others, compare(script, chosen, others, args.turns, threads), strict=True
        ):
            slower = sorted((r, c) for r, c in zip(ratios, chosen, strict=True) if r < 0.9)
            low = ", ".join(f"{case} {ratio:.2f}" for ratio, case in slower) or "none"
            print(f"{name}: geometric mean {mean(ratios):.3f}; below 0.9: {low}")
            all_ratios[name] += ratios
    for name, ratios in all_ratios.items():
        print(f"\n{name}: geometric mean of {len(ratios)} ratios: {mean(ratios):.3f}")
