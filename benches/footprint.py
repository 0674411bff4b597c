"""What it costs to have torchlike: import time beyond NumPy, and size. `python benches/footprint.py [--torch PYTHON]`

Times are processor time of fresh interpreters with warm bytecode caches, the best of some turns taken in alternation,
so that a busy machine changes them little.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import torchlike


def processor_ms(python: str, code: str, env: dict[str, str]) -> float:
    """Milliseconds of processor time that a fresh interpreter needs for some code."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([python, "-c", code], check=True, env=env)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1e3 * (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)


def imports(python: str, module: str, turns: int) -> tuple[float, float]:
    """Milliseconds of `import numpy`, and of importing a module after it."""
    with tempfile.TemporaryDirectory() as cache:
        env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        env["PYTHONPYCACHEPREFIX"] = cache
        best = [1e9, 1e9]
        for _ in range(turns):
            for k, code in enumerate(("import numpy", f"import numpy, {module}")):
                best[k] = min(best[k], processor_ms(python, code, env))
    return best[0], best[1] - best[0]


def size_mb(folder: Path) -> float:
    """Megabytes of the files in a folder, bytecode aside."""
    files = (f for f in folder.rglob("*") if f.is_file() and "__pycache__" not in f.parts)
    return sum(f.stat().st_size for f in files) / 1e6


def main() -> None:
    """Prints a line a library."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torch", default=os.environ.get("TORCHLIKE_BENCH_TORCH"))
    parser.add_argument("--turns", type=int, default=9)
    args = parser.parse_args()
    numpy, beyond = imports(sys.executable, "torchlike", args.turns)
    folder = Path(torchlike.__file__).parent
    print(f"torchlike: {beyond:.0f} ms beyond NumPy ({numpy:.0f} ms), {size_mb(folder):.1f} MB")
    if args.torch:
        numpy, other = imports(args.torch, "torch", 3)
        print(f"torch: {other:.0f} ms beyond NumPy ({numpy:.0f} ms); ratio {other / beyond:.0f}")


if __name__ == "__main__":
    main()
