"""What it costs to have torchlike: import time beyond NumPy, and size.

`python benches/footprint.py [--torch PYTHON] [--build]`; with `--build` also what a release build from nothing takes,
and the size of its library. Times of imports are processor time of fresh interpreters with warm bytecode caches, the
best of some turns taken in alternation, so that a busy machine changes them little.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
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


def size_mb(folder: Path) -> tuple[float, float]:
    """Megabytes of the compiled and of the other files in a folder, bytecode aside."""
    files = [f for f in folder.rglob("*") if f.is_file() and "__pycache__" not in f.parts]
    everything = sum(f.stat().st_size for f in files)
    compiled = sum(f.stat().st_size for f in files if f.suffix == ".so")
    return compiled / 1e6, (everything - compiled) / 1e6


def build() -> str:
    """A release build from nothing, in a folder of its own, in words."""
    with tempfile.TemporaryDirectory() as target:
        call = ["cargo", "build", "--quiet", "--release", "--features", "python,cli,cuda", "--lib"]
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        env = os.environ | {"CARGO_TARGET_DIR": target}
        subprocess.run(call, check=True, env=env, cwd=Path(__file__).parents[1])
        took, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        made = Path(target, "release").glob("libtorchlike.*")
        size = sum(f.stat().st_size for f in made if f.suffix in {".so", ".dylib"}) / 1e6
    return f"{took:.0f} s ({spent:.0f} s of {os.cpu_count()} processors) for a library of {size:.1f} MB"


def main() -> None:
    """Prints a line a library."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torch", default=os.environ.get("TORCHLIKE_BENCH_TORCH"))
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--build", action="store_true")
    args = parser.parse_args()
    numpy, beyond = imports(sys.executable, "torchlike", args.turns)
    compiled, other = size_mb(Path(torchlike.__file__).parent)
    size = f"{compiled + other:.1f} MB, {compiled:.1f} of them compiled"
    print(f"torchlike: {beyond:.0f} ms beyond NumPy ({numpy:.0f} ms), {size}")
    if args.build:
        print(f"release build: {build()}")
    if args.torch:
        numpy, other = imports(args.torch, "torch", 3)
        print(f"torch: {other:.0f} ms beyond NumPy ({numpy:.0f} ms); ratio {other / beyond:.0f}")


if __name__ == "__main__":
    main()
