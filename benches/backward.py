"""Large layers beside PyTorch, forward and backward: `python benches/backward.py [--torch PYTHON] [--filter REGEX]`.

A `forward` case is the call without gradients; a `backward` case is the walk back alone, through a graph that is kept;
a `step` is both. Options, turns and ratios are those of `kernels.py`. Ratios above 1 mean that torchlike is faster.
"""

from __future__ import annotations

import _turns

LAYERS = {
    "mm": ("x, y = leaf(512, 512), leaf(512, 512)", "torch.mm(x, y)"),
    "linear": ("x, w, b = leaf(256, 768), leaf(3072, 768), leaf(3072)", "F.linear(x, w, b)"),
    "conv3x3": ("x, w = leaf(4, 64, 56, 56), leaf(64, 64, 3, 3)", "F.conv2d(x, w, None, 1, 1)"),
    "conv3x3_deep": (
        "x, w = leaf(4, 256, 14, 14), leaf(256, 256, 3, 3)",
        "F.conv2d(x, w, None, 1, 1)",
    ),
    "conv3x3_last": (
        "x, w = leaf(4, 512, 7, 7), leaf(512, 512, 3, 3)",
        "F.conv2d(x, w, None, 1, 1)",
    ),
    "conv3x3_stride2": (
        "x, w = leaf(4, 64, 56, 56), leaf(128, 64, 3, 3)",
        "F.conv2d(x, w, None, 2, 1)",
    ),
    "conv3x3_bias": (
        "x, w, b = leaf(2, 32, 64, 64), leaf(32, 32, 3, 3), leaf(32)",
        "F.conv2d(x, w, b, 1, 1)",
    ),
    "conv3x3_channels_last": (
        "x, w = last(leaf(4, 64, 56, 56)), last(leaf(64, 64, 3, 3))",
        "F.conv2d(x, w, None, 1, 1)",
    ),
    "conv1x1": ("x, w = leaf(4, 64, 56, 56), leaf(256, 64, 1, 1)", "F.conv2d(x, w)"),
    "conv7x7_stem": (
        "x, w = leaf(2, 3, 224, 224), leaf(64, 3, 7, 7)",
        "F.conv2d(x, w, None, 2, 3)",
    ),
    "depthwise": (
        "x, w = leaf(4, 128, 56, 56), leaf(128, 1, 3, 3)",
        "F.conv2d(x, w, None, 1, 1, 1, 128)",
    ),
    "depthwise_small": (
        "x, w = leaf(8, 256, 14, 14), leaf(256, 1, 3, 3)",
        "F.conv2d(x, w, None, 1, 1, 1, 256)",
    ),
    "depthwise_stride2": (
        "x, w = leaf(4, 128, 56, 56), leaf(128, 1, 3, 3)",
        "F.conv2d(x, w, None, 2, 1, 1, 128)",
    ),
    "softmax": ("x = leaf(2048, 512)", "F.softmax(x, -1)"),
    "log_softmax": ("x = leaf(512, 4096)", "F.log_softmax(x, -1)"),
    "softmax_bf16": ("x = leaf(2048, 512, dtype=torch.bfloat16)", "F.softmax(x, -1)"),
    "layer_norm": (
        "x, w, b = leaf(1024, 768), leaf(768), leaf(768)",
        "F.layer_norm(x, (768,), w, b)",
    ),
    "rms_norm": ("x, w = leaf(1024, 768), leaf(768)", "F.rms_norm(x, (768,), w)"),
    "batch_norm": (
        "x, w, b = leaf(8, 64, 56, 56), leaf(64), leaf(64); m, v = torch.zeros(64), torch.ones(64)",
        "F.batch_norm(x, m, v, w, b, True)",
    ),
    "batch_norm_channels_last": (
        "x, w, b = last(leaf(8, 64, 56, 56)), leaf(64), leaf(64); m, v = torch.zeros(64), torch.ones(64)",
        "F.batch_norm(x, m, v, w, b, True)",
    ),
    "gelu": ("x = leaf(1024, 3072)", "F.gelu(x)"),
    "gelu_tanh": ("x = leaf(1024, 3072)", "F.gelu(x, approximate='tanh')"),
    "silu": ("x = leaf(1024, 3072)", "F.silu(x)"),
    "relu": ("x = leaf(8, 64, 56, 56)", "F.relu(x)"),
    "cross_entropy": ("x, t = leaf(512, 4096), torch.arange(512) * 8", "F.cross_entropy(x, t)"),
    "embedding": (
        "w, t = leaf(8000, 256), (torch.arange(4096) * 7919) % 8000",
        "F.embedding(t, w)",
    ),
    "attention": (
        "q, k, v = leaf(2, 8, 256, 64), leaf(2, 8, 256, 64), leaf(2, 8, 256, 64)",
        "F.scaled_dot_product_attention(q, k, v)",
    ),
    "attention_causal": (
        "q, k, v = leaf(2, 8, 256, 64), leaf(2, 8, 256, 64), leaf(2, 8, 256, 64)",
        "F.scaled_dot_product_attention(q, k, v, is_causal=True)",
    ),
    "max_pool": ("x = leaf(8, 64, 112, 112)", "F.max_pool2d(x, 3, 2, 1)"),
    "avg_pool": ("x = leaf(8, 64, 56, 56)", "F.avg_pool2d(x, 2)"),
    "max_pool_pairs": ("x = leaf(8, 32, 32, 32)", "F.max_pool2d(x, 2)"),
    "lstm_few": ("layer, x = torch.nn.LSTM(128, 128), leaf(32, 8, 128)", "layer(x)[0]"),
    "lstm": ("layer, x = torch.nn.LSTM(256, 256), leaf(32, 16, 256)", "layer(x)[0]"),
}
"""The leaves of a case and its call."""

MODELS = '''
nn = torch.nn

class Block(nn.Module):
    """Two convolutions of a ResNet, and the way past them."""

    def __init__(self, inside, out, stride):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(inside, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.norm2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.past = nn.Identity()
        if stride != 1 or inside != out:
            self.past = nn.Sequential(nn.Conv2d(inside, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.past(x))

def resnet18():
    """A ResNet-18."""
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    sizes = []
    for into, out in ((64, 64), (64, 128), (128, 256), (256, 512)):
        sizes += [(into, out, 1 if into == out else 2), (out, out, 1)]
    blocks = [Block(*size) for size in sizes]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))

class Layer(nn.Module):
    """A layer of a GPT-2."""

    def __init__(self, width=768, heads=12):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.back = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, t, c = x.shape
        parts = self.qkv(self.norm1(x)).split(c, dim=2)
        q, k, v = (p.view(n, t, self.heads, c // self.heads).transpose(1, 2) for p in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.back(y.transpose(1, 2).reshape(n, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))
'''

STEPS = {
    "resnet18": (
        "model = resnet18(); x, t = torch.randn(2, 3, 128, 128), torch.tensor([3, 700])",
        "F.cross_entropy(model(x), t)",
    ),
    "gpt2_layer": ("model = Layer(); x = torch.randn(2, 128, 768)", "model(x).square().mean()"),
}
"""A model, its input, and the loss."""

MAKERS = """
def leaf(*shape, dtype=torch.float32):
    return torch.randn(*shape).to(dtype).requires_grad_()

def last(x):
    return x.detach().to(memory_format=torch.channels_last).requires_grad_()

def back(y, leaves, seed):
    torch.autograd.grad(y, leaves, seed, retain_graph=True)

def forward(call):
    with torch.no_grad():
        call()

def step(model, loss):
    model.zero_grad()
    loss().backward()
"""

OPTIMIZERS = {
    "sgd": "torch.optim.SGD(p, 0.01)",
    "sgd_momentum": "torch.optim.SGD(p, 0.01, momentum=0.9)",
    "adamw": "torch.optim.AdamW(p, 0.01)",
}
"""Steps over a few large parameters."""


def cases() -> _turns.Cases:
    """Setup and statement of each case."""
    out = {}
    for name, (setup, call) in LAYERS.items():
        made = f"{MAKERS}\n{setup}\ncall = lambda: {call}"
        out[f"{name}/forward"] = (made, "forward(call)")
        leaves = "leaves = [t for t in list(globals().values()) if isinstance(t, torch.Tensor) and t.requires_grad]"
        if name.startswith("lstm"):
            leaves += " + list(layer.parameters())"
        seed = "y = call()\nseed = torch.randn(y.shape).to(y.dtype)"
        if "channels_last" in name:
            seed += ".to(memory_format=torch.channels_last)"
        out[f"{name}/backward"] = (f"{made}\n{leaves}\n{seed}", "back(y, leaves, seed)")
        if name == "mm":
            out["mm/backward_of_one"] = (f"{made}\n{leaves}\n{seed}", "back(y, leaves[:1], seed)")
    for name, (setup, loss) in STEPS.items():
        made = f"{MAKERS}\n{MODELS}\n{setup}"
        out[f"{name}/forward"] = (f"{made}\ncall = lambda: model(x)", "forward(call)")
        out[f"{name}/step"] = (f"{made}\nloss = lambda: {loss}", "step(model, loss)")
    for name, made in OPTIMIZERS.items():
        setup = f"p = [torch.nn.Parameter(torch.randn(n)) for n in (2_000_000, 500_000, 4096)]\no = {made}"
        out[f"{name}/update"] = (f"{setup}\nfor t in p: t.grad = torch.randn(t.shape)", "o.step()")
    return out


if __name__ == "__main__":
    _turns.main(__doc__, __file__, cases())
