"""What torchlike is for, in four steps: plan a 70B model, run its shapes, open a checkpoint, make a part real."""

from __future__ import annotations

import os
import resource
import tempfile
import time

import torchlike as torch
from torchlike import nn
from torchlike.nn import functional as F


class Attention(nn.Module):
    """Grouped-query attention."""

    def __init__(self, dim: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.width = heads, kv_heads, dim // heads
        self.q = nn.Linear(dim, dim, bias=False)
        self.k = nn.Linear(dim, kv_heads * self.width, bias=False)
        self.v = nn.Linear(dim, kv_heads * self.width, bias=False)
        self.o = nn.Linear(dim, dim, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, _ = x.shape
        q = self.q(x).view(b, n, self.heads, self.width).transpose(1, 2)
        k = self.k(x).view(b, n, self.kv_heads, self.width).transpose(1, 2)
        v = self.v(x).view(b, n, self.kv_heads, self.width).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o(y.transpose(1, 2).reshape(b, n, -1))


class Block(nn.Module):
    """One layer: attention and a gated feed-forward network, each with a norm before."""

    def __init__(self, dim: int, hidden: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.attention = Attention(dim, heads, kv_heads)
        self.gate = nn.Linear(dim, hidden, bias=False)
        self.up = nn.Linear(dim, hidden, bias=False)
        self.down = nn.Linear(hidden, dim, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    """A decoder of the Llama family."""

    def __init__(
        self, vocab: int, dim: int, hidden: int, layers: int, heads: int, kv_heads: int
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(Block(dim, hidden, heads, kv_heads) for _ in range(layers))
        self.norm = nn.RMSNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


LLAMA_70B = {
    "vocab": 128256,
    "dim": 8192,
    "hidden": 28672,
    "layers": 80,
    "heads": 64,
    "kv_heads": 8,
}


def peak_mib() -> float:
    """The process's peak memory so far, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def table(title: str, rows: list[tuple[str, str]]) -> None:
    """A titled two-column table."""
    width = max(len(name) for name, _ in rows)
    print(f"\n{title}\n{'-' * len(title)}")
    for name, value in rows:
        print(f"  {name:<{width}}  {value}")


def timed(f):
    """The result, the milliseconds and the growth of peak memory of a call."""
    memory, start = peak_mib(), time.perf_counter()
    result = f()
    return result, (time.perf_counter() - start) * 1e3, peak_mib() - memory


def build() -> Llama:
    """The 70B shape on meta."""
    with torch.device("meta"):
        return Llama(**LLAMA_70B)


def main() -> None:
    """Runs the four steps."""
    build()  # the first call also loads code
    model, ms, grown = timed(build)
    parameters = sum(p.numel() for p in model.parameters())
    size = sum(p.nbytes for p in model.parameters())
    table(
        "1. A Llama-70B-shaped model on meta",
        [
            ("parameters", f"{parameters:,}"),
            ("bytes in float32 / bfloat16", f"{size:,} / {size // 2:,}"),
            ("tensors, modules", f"{len(list(model.parameters()))}, {len(list(model.modules()))}"),
            ("build", f"{ms:.1f} ms, +{grown:.1f} MiB"),
        ],
    )

    tokens = torch.zeros(1, 4096, dtype=torch.long, device="meta")
    with torch.no_grad():
        model(tokens)
        out, ms, grown = timed(lambda: model(tokens))
    table(
        "2. Its forward pass on meta",
        [
            ("input", str(tuple(tokens.shape))),
            ("output", str(tuple(out.shape))),
            ("forward", f"{ms:.1f} ms, +{grown:.1f} MiB"),
        ],
    )

    small = Llama(vocab=1000, dim=256, hidden=688, layers=8, heads=8, kv_heads=4)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "small.pt")
        _, save_ms, _ = timed(lambda: torch.save(small.state_dict(), path))
        state, load_ms, grown = timed(lambda: torch.load(path, map_location="meta"))
        with torch.device("meta"):
            loaded = Llama(vocab=1000, dim=256, hidden=688, layers=8, heads=8, kv_heads=4)
        loaded.load_state_dict(state, assign=True)
        layer = loaded.layers[3]
        _, real_ms, _ = timed(lambda: torch.materialize(layer))
        x = torch.randn(1, 16, 256)
        same = torch.equal(layer(x), small.layers[3](x))
        rest = all(p.is_meta for p in loaded.layers[4].parameters())
        weight = state["layers.5.gate.weight"]
        table(
            "3. A checkpoint, opened on meta",
            [
                ("file", f"{os.path.getsize(path):,} bytes, saved in {save_ms:.1f} ms"),
                ("load to meta", f"{load_ms:.2f} ms, +{grown:.1f} MiB, {len(state)} tensors"),
                ("one of them", f"{weight} from {weight.source}"),
                (
                    "materialize layer 3",
                    f"{real_ms:.2f} ms; its neighbours are still on meta: {rest}",
                ),
                ("runs on CPU like the original", str(same)),
            ],
        )
        torch.manual_seed(0)

    torch.manual_seed(0)
    eager, eager_ms, _ = timed(
        lambda: Llama(vocab=1000, dim=256, hidden=688, layers=8, heads=8, kv_heads=4)
    )
    torch.manual_seed(0)

    def deferred() -> Llama:
        with torch.nn.utils.meta_init():
            return Llama(vocab=1000, dim=256, hidden=688, layers=8, heads=8, kv_heads=4)

    later, later_ms, _ = timed(deferred)
    _, real_ms, _ = timed(lambda: torch.materialize(later.layers[6]))
    pairs = zip(later.layers[6].parameters(), eager.layers[6].parameters(), strict=True)
    table(
        "4. Deferred initialisation",
        [
            ("eager construction", f"{eager_ms:.1f} ms"),
            ("inside meta_init()", f"{later_ms:.1f} ms"),
            ("materialize layer 6 alone", f"{real_ms:.2f} ms"),
            (
                "its weights equal eager's, bit for bit",
                str(all(torch.equal(a, b) for a, b in pairs)),
            ),
            ("layer 7 is still on meta", str(all(p.is_meta for p in later.layers[7].parameters()))),
        ],
    )
    print(f"\npeak memory of the whole demo: {peak_mib():.0f} MiB")


if __name__ == "__main__":
    main()
