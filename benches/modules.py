"""What walking, saving and printing a model costs, beside PyTorch: `python benches/modules.py [--torch PYTHON]`.

The model has the tree of a ResNet-50 (161 modules, 161 parameters, 159 buffers) on the meta device. Each turn runs
in this interpreter and, if a Python with PyTorch is named (or TORCHLIKE_BENCH_TORCH is set), in that one; the best
turn counts. Ratios above 1 mean torchlike is faster.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import timeit
from typing import Any

CASES = {
    "named_modules": "list(m.named_modules())",
    "modules": "list(m.modules())",
    "named_children": "list(m.stages.named_children())",
    "named_parameters": "list(m.named_parameters())",
    "parameters": "list(m.parameters())",
    "named_buffers": "list(m.named_buffers())",
    "state_dict": "m.state_dict()",
    "load_state_dict": "m.load_state_dict(s, assign=True)",
    "repr": "repr(m)",
    "train": "m.train()",
    "apply": "m.apply(id)",
    "zero_grad": "m.zero_grad()",
}
# What models do in every call, of containers of three modules.
CALLS = {
    "sequential": "chain(x)",
    "list_item": "numbered[1]",
    "sequential_item": "chain[1]",
    "dict_item": "named['a']",
    "parameter": "empty.__init__(); empty.weight = p",
}


def bottleneck(nn: Any, inside: int, mid: int, stride: int) -> Any:
    """One block of a ResNet, as a tree (it is never called)."""
    block = nn.Module()
    block.reduce, block.norm1 = nn.Conv2d(inside, mid, 1, bias=False), nn.BatchNorm2d(mid)
    block.spatial = nn.Conv2d(mid, mid, 3, stride, 1, bias=False)
    block.norm2 = nn.BatchNorm2d(mid)
    block.grow, block.norm3 = nn.Conv2d(mid, 4 * mid, 1, bias=False), nn.BatchNorm2d(4 * mid)
    block.act = nn.ReLU(inplace=True)
    if stride != 1 or inside != 4 * mid:
        block.shortcut = nn.Sequential(
            nn.Conv2d(inside, 4 * mid, 1, stride, bias=False), nn.BatchNorm2d(4 * mid)
        )
    return block


def resnet50(nn: Any) -> Any:
    """The tree of a ResNet-50."""
    model = nn.Module()
    model.stem = nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
    )
    width, stages = 64, []
    for i, (mid, depth) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        blocks = []
        for j in range(depth):
            blocks.append(bottleneck(nn, width, mid, 2 if i and not j else 1))
            width = 4 * mid
        stages.append(nn.Sequential(*blocks))
    model.stages = nn.Sequential(*stages)
    model.pool, model.head = nn.AdaptiveAvgPool2d(1), nn.Linear(width, 1000)
    return model


def measure(module: str) -> dict[str, float]:
    """Microseconds a call, the best of some turns."""
    torch = __import__(module)
    with torch.device("meta"):
        model = resnet50(torch.nn)
    nn = torch.nn
    three = [nn.Identity() for _ in range(3)]
    names = {
        "m": model,
        "s": model.state_dict(),
        "chain": nn.Sequential(*three),
        "numbered": nn.ModuleList(three),
        "named": nn.ModuleDict({"a": three[0]}),
        "empty": nn.Module(),
        "p": nn.Parameter(torch.zeros(2)),
        "x": torch.zeros(2),
    }

    def best(code: str, number: int) -> float:
        turns = timeit.repeat(code, globals=names, number=number, repeat=7, timer=time.process_time)
        return min(turns) / number * 1e6

    trees = {name: best(code, 20) for name, code in CASES.items()}
    return trees | {name: best(code, 2000) for name, code in CALLS.items()}


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--torch", default=os.environ.get("TORCHLIKE_BENCH_TORCH"))
    parser.add_argument("--worker")
    args = parser.parse_args()
    if args.worker:
        print(json.dumps(measure(args.worker)))
        return
    ours: dict[str, float] = {}
    theirs: dict[str, float] = {}
    for _ in range(3):
        for python, module, best in (
            (sys.executable, "torchlike", ours),
            (args.torch, "torch", theirs),
        ):
            if python is None:
                continue
            command = [python, __file__, "--worker", module]
            found = json.loads(
                subprocess.run(command, capture_output=True, check=True, text=True).stdout
            )
            for name, us in found.items():
                best[name] = min(us, best.get(name, us))
    print(f"{'ResNet-50':<18}{'torchlike us':>14}{'torch us':>12}{'ratio':>8}")
    for name, us in ours.items():
        beside = f"{theirs[name]:>12.1f}{theirs[name] / us:>8.2f}" if theirs else ""
        print(f"{name:<18}{us:>14.1f}{beside}")


if __name__ == "__main__":
    main()
