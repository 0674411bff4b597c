"""A GPU for machines without one: builds the emulator in `gpu/`, and runs a command that finds it.

`python tests/emulated_gpu.py COMMAND...`; the emulator takes the place of CUDA's driver and libraries, and runs
kernels on the CPU, a thread after another. `EMULATED_GPUS` is how many GPUs there are (1). `EMULATED_ORDER=random`
lets threads and blocks run in any order, so that a barrier that is missing shows.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "gpu"
COMPILER = os.environ.get("CXX", "g++")
FLAGS = ["-std=c++17", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-U_FORTIFY_SOURCE"]


def can_be_built():
    """Whether there is a compiler for it."""
    return shutil.which(COMPILER) is not None


def build():
    """The folder of the libraries, named by what they are built from, as are the kernels kept beside them."""
    texts = [p.read_bytes() for p in sorted(SOURCES.iterdir())]
    name = hashlib.sha256(b"\0".join(texts)).hexdigest()[:16]
    folder = HERE.parent / "target" / "emulated-gpu" / name
    if (folder / "ready").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)

    def library(name, *args):
        subprocess.run([COMPILER, *FLAGS, "-o", folder / f"lib{name}.so", *args], check=True)

    prelude = SOURCES / "prelude.hpp"
    library("cuda", SOURCES / "driver.cpp", SOURCES / "threads.cpp", "-ldl")
    defined = [f'-DPRELUDE="{prelude}"', f'-DCOMPILER="{COMPILER}"']
    library("nvrtc", *defined, SOURCES / "compiler.cpp")
    for name in ("cublas", "cufft"):
        library(
            name, "-O3", SOURCES / "libraries.cpp", f"-L{folder}", "-lcuda", "-Wl,-rpath,$ORIGIN"
        )
    (folder / "ready").touch()
    return folder


def environment(**more):
    """The variables of a process that finds the emulator."""
    folder = build()
    paths = [str(folder), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    kept = {"LD_LIBRARY_PATH": ":".join(paths), "TORCHLIKE_KERNEL_CACHE": str(folder / "kernels")}
    return {**os.environ, **kept, **more}


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(subprocess.run(sys.argv[1:], env=environment(), check=False).returncode)
