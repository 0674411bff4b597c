"""A training step of Llama 405B's shape on meta, and its plan: `python benches/llama_plan.py [--layers 126]`.

One sequence of 8192 tokens in bfloat16, attention as its products (as PyTorch runs it on meta), AdamW. Prints the
milliseconds of building, of each part of the step, and of the plan; the plan's FLOPs and peak; and the memory it took.
With `--mesh` also of the plan of one rank of 128 x 8, with `--pipeline` of 16 ranks with stages.
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
        # Of a rank's share of the heads, if the layers are cut.
        q, k, v = (f(x).unflatten(-1, (-1, SIZE)).transpose(1, 2) for f in (self.q, self.k, self.v))
        k, v = (t.repeat_interleave(HEADS // GROUPS, 1) for t in (k, v))
        weights = (q @ k.transpose(-2, -1) * SIZE**-0.5).softmax(-1)
        return self.o((weights @ v).transpose(1, 2).flatten(2))

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


TP = {f"layers.*.{n}": "colwise" for n in ("q", "k", "v", "gate", "up")}
TP |= {f"layers.*.{n}": "rowwise" for n in ("o", "down")}


def on_mesh(model, ids):
    """Prints what plans of one of 1024 ranks take: tensor parallelism over 8 of them, FSDP over 128."""
    for turn in ("first", "second"):
        plan, took = timed(
            lambda: torch.plan(
                model,
                ids,
                step="train",
                optimizer="adamw",
                device="cuda",
                mesh={"dp": 128, "tp": 8},
                parallel={"tp": TP, "dp": {"fsdp": ["layers.*"]}},
            )
        )
        peak = plan.peak["cuda:0"].bytes / 2**30
        print(
            f"{turn} plan on a mesh of 128 x 8: {took:.0f} ms, {plan.steps:,} steps, {len(plan.comms):,} collectives, "
            f"peak {peak:.1f} GiB"
        )


def on_pipeline(model, ids):
    """Prints what the plan of a pipeline takes, and what it says."""
    pipe, took = timed(
        lambda: torch.plan.pipeline(
            model, ids, ranks=16, microbatches=64, optimizer="adamw", device="cuda"
        )
    )
    print(
        f"pipeline of 16 ranks, 64 microbatches: {took:.0f} ms; {pipe.bubble:.1%} waiting, "
        f"{pipe.peak / 2**40:.2f} TiB on the fullest rank"
    )


def main():
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=126)
    parser.add_argument("--mesh", action="store_true", help="also plan it on a mesh")
    parser.add_argument("--pipeline", action="store_true", help="also plan it on a pipeline")
    asked = parser.parse_args()
    layers = asked.layers
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
    if asked.mesh:
        on_mesh(model, ids)
    if asked.pipeline:
        on_pipeline(model, ids)


if __name__ == "__main__":
    main()
