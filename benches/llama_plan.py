"""A training step of Llama 405B's shape on meta, and its plan: `python benches/llama_plan.py [--layers 126]`.

One sequence of 8192 tokens in bfloat16, attention as its products (as PyTorch runs it on meta), AdamW. Prints the
milliseconds of building, of each part of the step, and of the plan; the plan's FLOPs and peak; and the memory it took.
"""

from __future__ import annotations

import argparse
import resource
import time

import torchlike as torch
from torchlike import nn
from torchlike.nn import functional as F

WIDTH, HEADS, GROUPS, SIZE, HIDDEN, WORDS, TOKENS = 16384, 128, 8, 128, 53248, 128256, 8192
LIKE = {"device": "meta", "dtype": torch.bfloat16}
EXACT = 21_507_478_231_449_600


def linear(a, b):
    """A layer without a bias."""
    return nn.Linear(a, b, bias=False, **LIKE)


class Layer(nn.Module):
    """Attention with groups of heads, and a gated network."""

    def __init__(self):
        super().__init__()
        self.q, self.o = linear(WIDTH, WIDTH), linear(WIDTH, WIDTH)
        self.k, self.v = linear(WIDTH, GROUPS * SIZE), linear(WIDTH, GROUPS * SIZE)
        self.gate, self.up, self.down = (
            linear(WIDTH, HIDDEN),
            linear(WIDTH, HIDDEN),
            linear(HIDDEN, WIDTH),
        )
        self.before, self.between = nn.RMSNorm(WIDTH, **LIKE), nn.RMSNorm(WIDTH, **LIKE)

    def attention(self, x):
        b, n, _ = x.shape
        q = self.q(x).view(b, n, HEADS, SIZE).transpose(1, 2)
        k = self.k(x).view(b, n, GROUPS, SIZE).transpose(1, 2).repeat_interleave(HEADS // GROUPS, 1)
        v = self.v(x).view(b, n, GROUPS, SIZE).transpose(1, 2).repeat_interleave(HEADS // GROUPS, 1)
        weights = (q @ k.transpose(-2, -1) * SIZE**-0.5).softmax(-1)
        return self.o((weights @ v).transpose(1, 2).reshape(b, n, WIDTH))

    def forward(self, x):
        x = x + self.attention(self.before(x))
        y = self.between(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Model(nn.Module):
    """Words, layers, words."""

    def __init__(self, layers):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH, **LIKE)
        self.layers = nn.ModuleList(Layer() for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(WIDTH, **LIKE), linear(WIDTH, WORDS)

    def forward(self, ids):
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def timed(f):
    """The result of a call, and its milliseconds."""
    start = time.perf_counter()
    made = f()
    return made, (time.perf_counter() - start) * 1e3


def step(model, optimizer, ids):
    """Milliseconds of the parts of a step."""
    out, forward = timed(lambda: model(ids).sum())
    _, backward = timed(out.backward)
    _, update = timed(optimizer.step)
    optimizer.zero_grad()
    return forward, backward, update


def main():
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=126)
    layers = parser.parse_args().layers
    model, build = timed(lambda: Model(layers))
    ids = torch.empty(1, TOKENS, dtype=torch.int64, device="meta")
    optimizer = torch.optim.AdamW(model.parameters())
    parts = min((step(model, optimizer, ids) for _ in range(5)), key=sum)
    names = zip(("forward", "backward", "AdamW"), parts, strict=True)
    print(
        f"build {build:.1f} ms; step {sum(parts):.1f} ms: "
        + ", ".join(f"{n} {t:.1f}" for n, t in names)
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    plan, took = timed(
        lambda: torch.plan(model, ids, step="train", optimizer="adamw", device="cuda")
    )
    more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(
        f"plan {took:.0f} ms: {plan.steps:,} steps, {plan.values:,} storages, {more / 1024:.1f} MiB more memory at most"
    )
    exact = " (exactly PyTorch's)" if plan.flops == EXACT else ""
    peak = plan.peak["cuda:0"].bytes / 2**40
    print(
        f"FLOPs {plan.flops:,}{exact}; peak {peak:.3f} TiB; {plan.time('h100'):.1f} s on one H100"
    )


if __name__ == "__main__":
    main()
