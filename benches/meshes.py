"""A training step of a 405B model on meta, with tensor parallelism on a mesh of 128 x 8 ranks: this library, or PyTorch
where it is installed. Usage: meshes.py [torch] [LAYERS]"""

from __future__ import annotations

import sys
import time
from typing import Any

if "torch" in sys.argv:
    import torch
else:
    import torchlike as torch

import importlib

HOME = torch.__name__
nn, F = torch.nn, torch.nn.functional
HIDDEN, WIDE, HEADS, GROUPS = 16384, 53248, 128, 8


class Layer(nn.Module):
    """Attention and a gated MLP."""

    def __init__(self) -> None:
        super().__init__()
        narrow = HIDDEN // HEADS * GROUPS
        self.norm1, self.norm2 = nn.RMSNorm(HIDDEN), nn.RMSNorm(HIDDEN)
        self.q, self.k, self.v = (
            nn.Linear(HIDDEN, n, bias=False) for n in (HIDDEN, narrow, narrow)
        )
        self.o = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.up, self.gate = (nn.Linear(HIDDEN, WIDE, bias=False) for _ in range(2))
        self.down = nn.Linear(WIDE, HIDDEN, bias=False)

    def forward(self, x: Any) -> Any:
        """Both, with what they are added to."""
        h = self.norm1(x)
        q, k, v = (
            f(h).unflatten(-1, (-1, HIDDEN // HEADS)).transpose(1, 2)
            for f in (self.q, self.k, self.v)
        )
        times = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(a.transpose(1, 2).flatten(2))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def main() -> None:
    """Prints the times and the collectives."""
    count = int(sys.argv[-1]) if sys.argv[-1].isdigit() else 126
    dist = importlib.import_module(f"{HOME}.distributed")
    fake = importlib.import_module(f"{HOME}.testing._internal.distributed.fake_pg")
    meshes = importlib.import_module(f"{HOME}.distributed.device_mesh")
    parallel = importlib.import_module(f"{HOME}.distributed.tensor.parallel")
    debug = importlib.import_module(f"{HOME}.distributed.tensor.debug")
    dist.init_process_group("fake", rank=0, world_size=1024, store=fake.FakeStore())
    mesh = meshes.init_device_mesh("cpu", (128, 8), mesh_dim_names=("dp", "tp"))
    with torch.device("meta"):
        net = nn.Sequential(*(Layer() for _ in range(count)))
    col, row = parallel.ColwiseParallel, parallel.RowwiseParallel
    styles = {"q": col, "k": col, "v": col, "o": row, "up": col, "gate": col, "down": row}
    start = time.perf_counter()
    for layer in net:
        parallel.parallelize_module(layer, mesh["tp"], {n: s() for n, s in styles.items()})
    print(f"parallelize {time.perf_counter() - start:.3f} s")
    for turn in ("first", "second", "third"):
        start = time.perf_counter()
        with debug.CommDebugMode() as comm:
            net(torch.empty(1, 8192, HIDDEN, device="meta", requires_grad=True)).sum().backward()
        print(
            f"{turn} step {time.perf_counter() - start:.3f} s, {comm.get_total_counts()} collectives"
        )


if __name__ == "__main__":
    main()
