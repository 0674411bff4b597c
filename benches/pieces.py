"""Pieces of tensors of several ranks, put together: `python benches/pieces.py [--torch PYTHON] [--gigabytes 1]`.

Half of the tensors are cut along their rows, half along their columns, in four files. PyTorch's own function does the
same where a Python with PyTorch and safetensors is named.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

RANKS, WIDTH = 4, 1024

MAKE = """
import json, sys
import torchlike as torch
from torchlike.safetensors import save_file
folder, count = sys.argv[1], int(sys.argv[2])
for rank in range(4):
    rows = {f"rows{i}": torch.rand(1024, 4096) for i in range(count)}
    columns = {f"columns{i}": torch.rand(4096, 1024) for i in range(count)}
    places = {n: {"saved_offsets": [1024 * rank, 0]} for n in rows}
    places |= {n: {"saved_offsets": [0, 1024 * rank]} for n in columns}
    path = f"{folder}/shard-{rank + 1:05}-model-00001-of-00001.safetensors"
    save_file({**rows, **columns}, path, {"DCP_SHARDING_INFO": json.dumps(places), "format": "pt"})
"""

MEASURE = """
import importlib, sys, tempfile, time
module, folder, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
M = importlib.import_module(module + ".distributed.checkpoint._consolidate_hf_safetensors")
names = {f"{kind}{i}": 1 for kind in ("rows", "columns") for i in range(count)}
best = 1e9
for _ in range(3):
    with tempfile.TemporaryDirectory() as out:
        start = time.perf_counter()
        M.consolidate_safetensors_files(folder, out, names)
        best = min(best, time.perf_counter() - start)
print(best)
"""


def main() -> None:
    """Prints the seconds, and PyTorch's."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torch", metavar="PYTHON", help="a Python with PyTorch and safetensors")
    parser.add_argument("--gigabytes", type=float, default=1.0)
    asked = parser.parse_args()
    count = str(max(1, round(asked.gigabytes * 2**30 / (2 * RANKS * WIDTH * 4096 * 4))))
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-c", MAKE, folder, count], check=True)
        size = sum(p.stat().st_size for p in Path(folder).iterdir())
        took = {}
        for name, python in (("torchlike", sys.executable), ("torch", asked.torch)):
            if python:
                call = [python, "-c", MEASURE, name, folder, count]
                took[name] = float(subprocess.run(call, check=True, capture_output=True).stdout)
    other = (
        f", PyTorch {took['torch']:.2f} s ({took['torch'] / took['torchlike']:.2f}x)"
        if "torch" in took
        else ""
    )
    print(f"{size / 2**30:.2f} GiB of pieces put together: {took['torchlike']:.2f} s{other}")


if __name__ == "__main__":
    main()
