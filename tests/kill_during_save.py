"""Kills a process again and again while it saves over one file: the file must always be whole, the old or the new one.

python tests/kill_during_save.py --times 50
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torchlike as torch
from torchlike import safetensors

_CHILD = """
import sys
import torchlike as torch
from torchlike import safetensors
path, size = sys.argv[1], int(sys.argv[2])
shards = size // 4 * 4 if path.endswith(".index") else None
print("ready", flush=True)
i = 0
while True:
    i += 1
    state = {name: torch.full((size,), float(i)) for name in "abcd"}
    if path.endswith(".pt"):
        torch.save(state, path)
    elif shards:
        safetensors.save_file(state, path.removesuffix(".index"), max_shard_size=shards * 2)
    else:
        safetensors.save_file(state, path)
    print("saved", flush=True)
"""


def _whole(path: Path) -> float:
    """The number that the file is full of; an exception if it is not whole."""
    if path.name.endswith(".index"):
        import json

        index = path.with_name(path.name.removesuffix(".index") + ".index.json")
        files = json.loads(index.read_text())["weight_map"]
        state = {name: torch.load(path.with_name(file))[name] for name, file in files.items()}
    else:
        state = torch.load(path, verify=True)
    assert sorted(state) == ["a", "b", "c", "d"], sorted(state)
    numbers = {float(t.min()) for t in state.values()} | {float(t.max()) for t in state.values()}
    assert len(numbers) == 1, f"a mixture of {sorted(numbers)}"
    return numbers.pop()


def run(times: int, name: str, size: int = 500_000, seed: int = 0) -> tuple[int, int]:
    """Kills `times` savers of the file `name`; gives how often it had changed, and how many files were left behind."""
    rng = random.Random(seed)
    changed = 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        first = {n: torch.zeros(size) for n in "abcd"}
        if name.endswith(".pt"):
            torch.save(first, path)
        else:
            limit = size * 8 if name.endswith(".index") else None
            file = str(path).removesuffix(".index")
            safetensors.save_file(first, file, max_shard_size=limit)
        for turn in range(times):
            before = _whole(path)
            command = [sys.executable, "-c", _CHILD, str(path), str(size)]
            with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
                assert child.stdout is not None
                assert child.stdout.readline() == b"ready\n"
                if turn % 2:  # on a busy machine, too, some are killed that have saved
                    assert child.stdout.readline() == b"saved\n"
                time.sleep(rng.uniform(0, 0.15))
                child.kill()
            changed += _whole(path) != before
        left = len(list(path.parent.glob(".torchlike-*")))
    return changed, left


def main() -> None:
    """Runs the script."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=50)
    times = parser.parse_args().times
    for name in ("model.pt", "model.safetensors", "model.safetensors.index"):
        start = time.time()
        changed, left = run(times, name)
        print(
            f"{name}: killed {times} times, whole every time, new content {changed} times, "
            f"{left} files left behind, {time.time() - start:.0f} s"
        )


if __name__ == "__main__":
    main()
