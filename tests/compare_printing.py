"""Loads every .pt file below a folder here and in PyTorch, and compares what is printed of it.

python tests/compare_printing.py FOLDER --torch-python PYTHON
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

# A process for each file: PyTorch's own does not survive all of them.
_PRINT = """
import glob, json, os, sys, warnings
warnings.filterwarnings("ignore")
module, folder = sys.argv[1:]
M = __import__(module)
for path in sorted(glob.glob(folder + "/**/*.pt", recursive=True)):
    for where in ("cpu", "meta"):
        if os.fork():
            os.wait()
            continue
        try:
            made = M.load(path, map_location=where, weights_only=False)
        except Exception:
            os._exit(0)
        try:
            text = repr(made).replace("torchlike", "torch")
        except Exception as e:
            text = f"{type(e).__name__}: {e}"
        print(json.dumps([f"{os.path.relpath(path, folder)} on {where}", text]), flush=True)
        os._exit(0)
"""


def texts(python: str, module: str, folder: str) -> dict[str, str]:
    """What each file that loads is printed as, by file and device."""
    command = [python, "-c", _PRINT, module, folder]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    return dict(json.loads(line) for line in run.stdout.splitlines())


def main() -> None:
    """Runs the script."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("--torch-python", required=True)
    args = parser.parse_args()
    ours = texts(sys.executable, "torchlike", args.folder)
    theirs = texts(args.torch_python, "torch", args.folder)
    both = ours.keys() & theirs.keys()
    other = sorted(name for name in both if ours[name] != theirs[name])
    for name in other:
        print(f"{name}:\n{theirs[name]}\n{ours[name]}\n")
    print(f"{len(both) - len(other)} of {len(both)} that both load are printed alike")


if __name__ == "__main__":
    main()
