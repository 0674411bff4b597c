"""Is a call on meta ever slower than the same call on a CPU tensor of one element? `python benches/meta_vs_cpu.py`

Every op with a recorded call (tests/data/ops.jsonl.gz) is timed on both devices, taking turns; the best turn counts.
Tensors are cut to one element where the op still runs; else the recorded sizes are kept. Prints the ratio
(CPU time / meta time; below 1 means that meta is slower) of the worst ops and the number below 1.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from test_ops import SAMPLES, call, decode


def one_element(value: Any) -> Any:
    """The recorded argument with every tensor cut to one element."""
    if isinstance(value, list):
        return [one_element(v) for v in value]
    if isinstance(value, dict) and "$t" in value:
        tensor = {k: v for k, v in value["$t"].items() if k not in ("stride", "offset")}
        return {"$t": {**tensor, "shape": [1] * len(tensor["shape"])}}
    return value


def prepared(sample: dict[str, Any], device: str) -> Any:
    """A function without arguments that makes the call on a device."""
    args = [decode(a, device) for a in sample["args"]]
    kwargs = {k: decode(v, device) for k, v in sample["kwargs"].items()}
    plain = {**sample, "args": [], "kwargs": {}}

    def run() -> Any:
        return call(plain, device, args, kwargs)

    return run


def runs_on_both(sample: dict[str, Any]) -> bool:
    """True if the call succeeds on the CPU and on meta."""
    try:
        for device in ("cpu", "meta"):
            prepared(sample, device)()
    except Exception:
        return False
    return True


def nanoseconds(function: Any, calls: int) -> float:
    """The time of one call, in nanoseconds."""
    start = time.perf_counter_ns()
    for _ in range(calls):
        function()
    return (time.perf_counter_ns() - start) / calls


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--show", type=int, default=25, help="how many of the worst ops are listed")
    parser.add_argument("--turns", type=int, default=9)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    cases: dict[str, dict[str, Any]] = {}
    for sample in SAMPLES:
        name = sample["id"].partition("/")[0]
        small = {
            **sample,
            "args": [one_element(a) for a in sample["args"]],
            "kwargs": {k: one_element(v) for k, v in sample["kwargs"].items()},
        }
        for candidate in (small, sample):
            if name not in cases and runs_on_both(candidate):
                cases[name] = candidate
    rows = []
    for name, sample in cases.items():
        cpu, meta = prepared(sample, "cpu"), prepared(sample, "meta")
        best = [1e18, 1e18]
        for _ in range(args.turns):
            for k, function in enumerate((cpu, meta)):
                best[k] = min(best[k], nanoseconds(function, 200))
        rows.append((best[0] / best[1], name, *best))
    rows.sort()
    print(f"{'op':<44}{'cpu ns':>10}{'meta ns':>10}{'ratio':>8}")
    for ratio, name, cpu_ns, meta_ns in rows[: args.show]:
        print(f"{name:<44}{cpu_ns:>10.0f}{meta_ns:>10.0f}{ratio:>8.2f}")
    slower = sum(ratio < 1 for ratio, *_ in rows)
    beyond = sum(ratio < 0.95 for ratio, *_ in rows)
    print(f"{len(rows)} ops: meta slower in {slower}, by more than 5 % in {beyond}")


if __name__ == "__main__":
    main()
