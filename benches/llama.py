"""Layers of Llama 70B on meta: `python benches/llama.py [--layers 80] [--torch PYTHON] [--torch-layers 8]`.

Prints the milliseconds of building, of a forward pass that is recorded for gradients, and of the way back, and how many
nodes the graph has a layer; beside PyTorch, which may run fewer layers, the ratios a layer: above 1 torchlike is
faster.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from typing import Any

WIDTH, HEADS, GROUPS, SIZE, HIDDEN, TOKENS = 8192, 64, 8, 128, 28672, 128


def layer_class(torch: Any) -> Any:
    """One layer: attention with groups of heads, and a gated network."""
    nn, F = torch.nn, torch.nn.functional
    like = {"device": "meta", "dtype": torch.bfloat16}

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()

            def linear(a: int, b: int) -> Any:
                return nn.Linear(a, b, bias=False, **like)

            self.q, self.o = linear(WIDTH, WIDTH), linear(WIDTH, WIDTH)
            self.k, self.v = linear(WIDTH, GROUPS * SIZE), linear(WIDTH, GROUPS * SIZE)
            self.gate, self.up = linear(WIDTH, HIDDEN), linear(WIDTH, HIDDEN)
            self.down = linear(HIDDEN, WIDTH)
            self.before, self.between = nn.RMSNorm(WIDTH, **like), nn.RMSNorm(WIDTH, **like)

        def forward(self, x: Any) -> Any:
            batch, tokens, _ = x.shape
            h = self.before(x)

            def heads(t: Any, count: int) -> Any:
                return t.view(batch, tokens, count, SIZE).transpose(1, 2)

            k, v = (
                heads(part(h), GROUPS).repeat_interleave(HEADS // GROUPS, 1)
                for part in (self.k, self.v)
            )
            a = F.scaled_dot_product_attention(heads(self.q(h), HEADS), k, v, is_causal=True)
            x = x + self.o(a.transpose(1, 2).reshape(batch, tokens, WIDTH))
            h = self.between(x)
            return x + self.down(F.silu(self.gate(h)) * self.up(h))

    return Layer


def nodes(root: Any) -> int:
    """How many nodes a graph has."""
    seen, todo = set(), [root]
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            todo += [to for to, _ in node.next_functions]
    return len(seen)


def measure(module: str, layers: int) -> dict[str, float]:
    """Milliseconds, the best of some turns."""
    torch = importlib.import_module(module)
    layer = layer_class(torch)
    start = time.perf_counter()
    model = torch.nn.Sequential(*[layer() for _ in range(layers)])
    best = {"build": time.perf_counter() - start}
    x = torch.empty(1, TOKENS, WIDTH, device="meta", dtype=torch.bfloat16)
    for _ in range(7):
        times = [time.perf_counter()]
        total = model(x).sum()
        times.append(time.perf_counter())
        count = nodes(total.grad_fn)
        times.append(time.perf_counter())
        total.backward()
        times.append(time.perf_counter())
        for p in model.parameters():
            p.grad = None
        for name, took in (("forward", times[1] - times[0]), ("backward", times[3] - times[2])):
            best[name] = min(took, best.get(name, took))
    return {**{k: 1e3 * v for k, v in best.items()}, "nodes": count}


def main() -> None:
    """Prints a line a measure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=80)
    parser.add_argument("--torch", default=os.environ.get("TORCHLIKE_BENCH_TORCH"))
    parser.add_argument("--torch-layers", type=int, default=8)
    parser.add_argument("--worker")
    args = parser.parse_args()
    if args.worker:
        print(json.dumps(measure(args.worker, args.layers)))
        return

    def run(python: str, module: str, layers: int) -> dict[str, float]:
        command = [python, __file__, "--worker", module, "--layers", str(layers)]
        found = subprocess.run(command, capture_output=True, check=True, text=True).stdout
        return {k: v / layers for k, v in json.loads(found).items()}

    ours = run(sys.executable, "torchlike", args.layers)
    theirs = run(args.torch, "torch", args.torch_layers) if args.torch else {}
    print(f"{args.layers} layers{'torchlike':>16}{'a layer':>10}{'torch':>10}{'ratio':>8}")
    for name, each in ours.items():
        beside = f"{theirs[name]:>10.2f}{theirs[name] / each:>8.1f}" if theirs else ""
        print(f"{name:<10}{each * args.layers:>15.1f}{each:>10.3f}{beside}")


if __name__ == "__main__":
    main()
