"""What a GPU takes for calls, kernels and steps of models, beside PyTorch's where it is installed.

    python benches/cuda.py [--torch PYTHON] [--filter TEXT]

Times are the best of several rounds, with the device waited for at the end of each; ratios above 1 are in our favour.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator

Cases = Iterator[tuple[str, Callable[[], object]]]


def calls(torch) -> Cases:
    """Small tensors: what a call costs."""
    a = torch.randn(8, 8, device="cuda")
    i = torch.arange(8, device="cuda")
    for name, f in {
        "add": lambda: a + a,
        "relu": lambda: a.relu(),
        "sum": lambda: a.sum(),
        "mm": lambda: a @ a,
        "softmax": lambda: a.softmax(-1),
        "index_select": lambda: a.index_select(0, i),
        "layer_norm": lambda: torch.nn.functional.layer_norm(a, (8,)),
        "empty": lambda: torch.empty(8, device="cuda"),
    }.items():
        yield f"call {name}", f


def kernels(torch) -> Cases:
    """Large tensors: what memory and the multiprocessors give."""
    functional = torch.nn.functional
    x = torch.randn(64, 1024, 1024, device="cuda")
    y = torch.randn(64, 1024, 1024, device="cuda")
    half = x.to(torch.bfloat16)
    w = torch.randn(1024, device="cuda")
    words = torch.randint(0, 50000, (64, 512), device="cuda")
    table = torch.randn(50000, 1024, device="cuda")
    image = torch.randn(64, 64, 56, 56, device="cuda")
    filters = torch.randn(64, 64, 3, 3, device="cuda")
    logits = torch.randn(4096, 50000, device="cuda")
    classes = torch.randint(0, 50000, (4096,), device="cuda")
    square = torch.randn(4096, 4096, device="cuda").to(torch.bfloat16)
    heads = torch.randn(8, 16, 1024, 64, device="cuda").to(torch.bfloat16)
    flat = torch.randn(1 << 22, device="cuda")
    systems = torch.randn(64, 128, 128, device="cuda")
    single = square.float()
    small_image, small_filters = image.bfloat16(), filters.bfloat16()
    for name, f in {
        "add": lambda: x + y,
        "exp": lambda: x.exp(),
        "transposed add": lambda: x.transpose(1, 2) + y,
        "to bfloat16": lambda: x.to(torch.bfloat16),
        "add bfloat16": lambda: half + half,
        "sum": lambda: x.sum(),
        "sum rows": lambda: x.sum(-1),
        "sum columns": lambda: x.sum(1),
        "max rows": lambda: x.max(-1),
        "var rows": lambda: x.var(-1),
        "softmax": lambda: x.softmax(-1),
        "softmax bfloat16": lambda: half.softmax(-1),
        "layer_norm": lambda: functional.layer_norm(x, (1024,), w, w),
        "cumsum": lambda: x.cumsum(-1),
        "sort 4M": lambda: flat.sort(),
        "topk 50 of 50000": lambda: logits.topk(50),
        "embedding": lambda: functional.embedding(words, table),
        "cross_entropy": lambda: functional.cross_entropy(logits, classes),
        "mm bfloat16 4096": lambda: square @ square,
        "conv2d 3x3": lambda: functional.conv2d(image, filters, padding=1),
        "max_pool2d": lambda: functional.max_pool2d(image, 2),
        "attention": lambda: functional.scaled_dot_product_attention(
            heads, heads, heads, is_causal=True
        ),
        "rand": lambda: torch.rand(1 << 26, device="cuda"),
        "dropout": lambda: functional.dropout(x, 0.1),
        "gelu bfloat16": lambda: functional.gelu(half),
        "transposed copy bfloat16": lambda: half.transpose(1, 2).contiguous(),
        "cat": lambda: torch.cat([x, y], -1),
        "where": lambda: torch.where(x > 0, x, y),
        "argmax columns": lambda: x.argmax(1),
        "norm": lambda: x.norm(),
        "masked_select": lambda: flat.masked_select(flat > 0),
        "nonzero": lambda: (flat > 0).nonzero(),
        "index_add": lambda: torch.zeros(50000, 1024, device="cuda").index_add(
            0, words.flatten(), x.view(-1, 1024)[: words.numel()]
        ),
        "sort rows": lambda: logits[:, :4096].contiguous().sort(-1),
        "mm float32 4096": lambda: single @ single,
        "normal": lambda: torch.randn(1 << 26, device="cuda"),
        "conv2d bfloat16": lambda: functional.conv2d(small_image, small_filters),
        "depthwise 3x3": lambda: functional.conv2d(image, filters[:, :1], padding=1, groups=64),
        "group_norm": lambda: functional.group_norm(image, 8),
        "batch_norm": lambda: functional.batch_norm(image, None, None, training=True),
        "interpolate": lambda: functional.interpolate(image, scale_factor=2.0, mode="bilinear"),
        "fft": lambda: torch.fft.fft(x),
        "solve": lambda: torch.linalg.solve(systems, systems),
    }.items():
        yield f"kernel {name}", f


def gradients(torch) -> Cases:
    """Passes there and back of large tensors."""
    functional = torch.nn.functional

    def leaf(*shape: int, dtype=torch.float32):
        return torch.randn(*shape, device="cuda").to(dtype).requires_grad_()

    x, half = leaf(16, 1024, 1024), leaf(16, 1024, 1024, dtype=torch.bfloat16)
    w, b = leaf(1024), leaf(1024)
    image, filters = leaf(64, 64, 56, 56), leaf(64, 64, 3, 3)
    single, scale = leaf(64, 1, 3, 3), leaf(64)
    table, words = leaf(50000, 1024), torch.randint(0, 50000, (64, 512), device="cuda")
    logits = leaf(4096, 50000)
    classes = torch.randint(0, 50000, (4096,), device="cuda")
    q, k, v = (leaf(8, 16, 1024, 64, dtype=torch.bfloat16) for _ in range(3))
    for name, f in {
        "softmax": lambda: x.softmax(-1),
        "softmax bfloat16": lambda: half.softmax(-1),
        "layer_norm": lambda: functional.layer_norm(x, (1024,), w, b),
        "layer_norm bfloat16": lambda: functional.layer_norm(
            half, (1024,), w.bfloat16(), b.bfloat16()
        ),
        "gelu": lambda: functional.gelu(x),
        "embedding": lambda: functional.embedding(words, table),
        "cross_entropy": lambda: functional.cross_entropy(logits, classes),
        "attention": lambda: functional.scaled_dot_product_attention(q, k, v, is_causal=True),
        "conv2d 3x3": lambda: functional.conv2d(image, filters, padding=1),
        "depthwise 3x3": lambda: functional.conv2d(image, single, padding=1, groups=64),
        "batch_norm": lambda: functional.batch_norm(image, None, None, scale, scale, True),
        "group_norm": lambda: functional.group_norm(image, 8, scale, scale),
        "max_pool2d": lambda: functional.max_pool2d(image, 3, 2, 1),
        "avg_pool2d": lambda: functional.avg_pool2d(image, 2),
        "interpolate": lambda: functional.interpolate(image, scale_factor=2.0, mode="bilinear"),
    }.items():

        def there_and_back(f=f):
            f().sum().backward()

        yield f"gradient {name}", there_and_back


def _gpt(torch):
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, width: int, heads: int) -> None:
            super().__init__()
            self.heads = heads
            self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(
                nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
            )

        def forward(self, x):
            n, t, c = x.shape
            parts = self.qkv(self.before(x)).view(n, t, 3, self.heads, c // self.heads)
            q, k, v = parts.permute(2, 0, 3, 1, 4)
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(n, t, c))
            return x + self.mlp(self.after(x))

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(50304, 768), nn.Embedding(1024, 768)
            self.blocks = nn.Sequential(*[Block(768, 12) for _ in range(12)])
            self.norm, self.head = nn.LayerNorm(768), nn.Linear(768, 50304, bias=False)

        def forward(self, i):
            x = self.words(i) + self.places(torch.arange(i.shape[1], device=i.device))
            return self.head(self.norm(self.blocks(x)))

    return GPT()


def _resnet(torch):
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, a: int, b: int, stride: int) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(a, b, 3, stride, 1, bias=False),
                nn.BatchNorm2d(b),
                nn.ReLU(),
                nn.Conv2d(b, b, 3, 1, 1, bias=False),
                nn.BatchNorm2d(b),
            )
            same = a == b and stride == 1
            self.way = (
                nn.Identity()
                if same
                else nn.Sequential(nn.Conv2d(a, b, 1, stride, bias=False), nn.BatchNorm2d(b))
            )

        def forward(self, x):
            return (self.body(x) + self.way(x)).relu()

    widths = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1)]
    widths += [(128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1)]
    return nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
        *[Block(*w) for w in widths],
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(512, 1000),
    )


def models(torch) -> Cases:
    """Forward passes and whole steps of training."""
    functional = torch.nn.functional
    for name, make, inputs, classes in (
        ("GPT-2", _gpt, lambda: torch.randint(0, 50000, (4, 512), device="cuda"), (4 * 512, 50000)),
        ("ResNet-18", _resnet, lambda: torch.randn(32, 3, 224, 224, device="cuda"), (32, 1000)),
    ):
        torch.manual_seed(0)
        model, x = make(torch).to("cuda"), inputs()
        y = torch.randint(0, classes[1], (classes[0],), device="cuda")
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

        def forward(model=model, x=x):
            with torch.no_grad():
                return model(x)

        def step(model=model, x=x, y=y, optimizer=optimizer):
            out = model(x)
            loss = functional.cross_entropy(out.reshape(-1, out.shape[-1]), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        def mixed(step=step):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                return step()

        yield f"model {name} forward", forward
        yield f"model {name} step", step
        yield f"model {name} step, bfloat16", mixed


def best(torch, f: Callable[[], object]) -> float:
    """Seconds of a call, the best of some rounds."""
    for _ in range(3):
        f()
    torch.cuda.synchronize()
    start = time.perf_counter()
    f()
    torch.cuda.synchronize()
    count = max(1, min(100, int(0.02 / (time.perf_counter() - start))))
    least = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(count):
            f()
        torch.cuda.synchronize()
        least = min(least, (time.perf_counter() - start) / count)
    return least


def measure(module: str, wanted: str) -> None:
    """Times of one library, a line of JSON each."""
    warnings.simplefilter("ignore")
    torch = __import__(module)
    torch.backends.cudnn.allow_tf32 = True  # what PyTorch does unless it is told otherwise
    for part in (calls, kernels, gradients, models):
        for name, f in part(torch):
            if wanted not in name:
                continue
            try:
                print(json.dumps([name, best(torch, f)]), flush=True)
            except Exception as e:  # the other library goes on
                print(json.dumps([name, f"{type(e).__name__}: {e}"[:200]]), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch", default=sys.executable, help="an interpreter that has PyTorch")
    parser.add_argument("--filter", default="")
    parser.add_argument("--module")
    asked = parser.parse_args()
    if asked.module:
        measure(asked.module, asked.filter)
        return

    import torchlike

    if not torchlike.cuda.is_available():
        print("no GPU")
        return

    def times(python: str, module: str) -> dict[str, float | str]:
        command = [python, __file__, "--module", module, "--filter", asked.filter]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(done.stderr[-500:], file=sys.stderr)
        return dict(json.loads(line) for line in done.stdout.splitlines())

    ours, theirs = times(sys.executable, "torchlike"), times(asked.torch, "torch")
    for name, t in ours.items():
        other = theirs.get(name)
        if isinstance(t, str):
            print(f"{name:32} {t}")
        elif isinstance(other, float):
            print(f"{name:32} {t * 1e6:12.1f} us  x{other / t:.2f}")
        else:
            print(f"{name:32} {t * 1e6:12.1f} us")
    ratios = [
        other / t
        for name, t in ours.items()
        if isinstance(t, float) and isinstance(other := theirs.get(name), float)
    ]
    if ratios:
        product = 1.0
        for r in ratios:
            product *= r ** (1 / len(ratios))
        print(f"CUDA geomean x{product:.2f} (min x{min(ratios):.2f}) over {len(ratios)} cases")


if __name__ == "__main__":
    main()
