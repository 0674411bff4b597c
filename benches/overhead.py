"""What a call costs, beside PyTorch: `python benches/overhead.py [--gradients | --transforms] [--torch PYTHON]`.

Each case runs in this interpreter and, if a Python with PyTorch is named (or TORCHLIKE_BENCH_TORCH is set), in
that one, taking turns; the best turn counts. Ratios above 1 mean torchlike is faster.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import timeit

CASES = {
    "a + b": "a + b",
    "add(a, b)": "torch.add(a, b)",
    "relu": "torch.relu(a)",
    "a * 2.0": "a * 2.0",
    "sum": "a.sum()",
    "view": "a.view(16)",
    "transpose": "a.transpose(0, 1)",
    "a[0]": "a[0]",
    "matmul": "a @ b",
    "softmax": "torch.softmax(a, -1)",
    "layer_norm": "F.layer_norm(a, (4,))",
    "linear": "F.linear(a, b)",
    "cat": "torch.cat([a, b])",
    "empty": "torch.empty(4, 4, device=dev)",
    ".shape": "a.shape",
    ".dtype": "a.dtype",
    "numpy": "c.numpy()",
    "from_numpy": "torch.from_numpy(n)",
    "as_tensor": "torch.as_tensor(n)",
    "finfo": "torch.finfo(torch.float32)",
}
GRADIENTS = {
    "a * b": "a * b",
    "x * b": "x * b",
    "a.sum()": "a.sum()",
    "x.sum()": "x.sum()",
    "a.view(16)": "a.view(16)",
    "x.view(16)": "x.view(16)",
    "100 mul": "y = x\nfor _ in range(100): y = y * b\ny.sum().backward(); x.grad = None",
    "20 Linear": "layers(b).sum().backward()\nfor p in parameters: p.grad = None",
}
TRANSFORMS = {
    "vmap mm": "vmap(torch.mm)(m, m)",
    "vmap linear": "vmap(F.linear, in_dims=(0, None))(rows, weight)",
    "vmap conv2d": "vmap(F.conv2d, in_dims=(0, None))(images, kernels)",
    "vmap softmax": "vmap(lambda t: t.softmax(-1))(m)",
    "vmap layer_norm": "vmap(lambda t: F.layer_norm(t, (32,)))(m)",
    "grad of each": "vmap(grad(loss), in_dims=(None, 0, 0))(state, images[:, 0], labels)",
    "grad": "grad(lambda t: t.sin().sum())(a)",
    "jvp": "jvp(torch.sin, (a,), (b,))",
    "jacrev": "jacrev(lambda t: t.sin() @ t)(a)",
    "hessian": "hessian(lambda t: (t.sin() @ t).sum())(a)",
}
SETUP = """
import {module} as torch
F = torch.nn.functional
dev = {device!r}
a = torch.ones(4, 4, device=dev); b = torch.ones(4, 4, device=dev)
c = torch.ones(4, 4); n = c.numpy()
x = torch.ones(4, 4, device=dev, requires_grad=True)
layers = torch.nn.Sequential(*[torch.nn.Linear(4, 4, device=dev) for _ in range(20)])
parameters = list(layers.parameters())
"""
SETUP_TRANSFORMS = """
from {module}.func import functional_call, grad, hessian, jacrev, jvp, vmap
m = torch.randn(64, 32, 32, device=dev)
rows, weight = torch.randn(64, 16, 32, device=dev), torch.randn(24, 32, device=dev)
images, kernels = torch.randn(64, 2, 3, 8, 8, device=dev), torch.randn(4, 3, 3, 3, device=dev)
labels = torch.arange(64, device=dev) % 5
net = torch.nn.Sequential(
    torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(36, 5)
).to(dev)
state = {{k: v.detach() for k, v in net.named_parameters()}}
def loss(state, x, y):
    return F.cross_entropy(functional_call(net, state, x[None]), y[None])
"""


def measure(module: str, device: str, cases: dict[str, str], turns: int) -> dict[str, float]:
    """Nanoseconds a call, the best of some turns."""
    out = {}
    for name, code in cases.items():
        setup = SETUP + SETUP_TRANSFORMS if cases is TRANSFORMS else SETUP
        timer = timeit.Timer(code, setup.format(module=module, device=device))
        n = 20 if "\n" in code or cases is TRANSFORMS else 2000
        out[name] = min(timer.timeit(n) for _ in range(turns)) / n * 1e9
    return out


def main() -> None:
    """Prints a table a device."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--torch", default=os.environ.get("TORCHLIKE_BENCH_TORCH"))
    parser.add_argument("--worker")
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--gradients",
        action="store_true",
        help="what recording a call of x costs, and walking back",
    )
    parser.add_argument("--transforms", action="store_true", help="functions of torchlike.func")
    args = parser.parse_args()
    if args.worker:
        cases = GRADIENTS if args.gradients else TRANSFORMS if args.transforms else CASES
        print(json.dumps(measure(args.worker, args.device, cases, 5)))
        return
    for device in ("meta", "cpu"):
        ours: dict[str, float] = {}
        theirs: dict[str, float] = {}
        for _ in range(3):
            for python, module, best in (
                (sys.executable, "torchlike", ours),
                (args.torch, "torch", theirs),
            ):
                if python is None:
                    continue
                command = [python, __file__, "--worker", module, "--device", device]
                command += ["--gradients"] * args.gradients
                command += ["--transforms"] * args.transforms
                found = json.loads(
                    subprocess.run(command, capture_output=True, check=True, text=True).stdout
                )
                for name, ns in found.items():
                    best[name] = min(ns, best.get(name, ns))
        print(f"\n{device:<15}{'torchlike ns':>14}{'torch ns':>12}{'ratio':>8}")
        for name, ns in ours.items():
            beside = f"{theirs[name]:>12.0f}{theirs[name] / ns:>8.1f}" if theirs else ""
            print(f"{name:<15}{ns:>14.0f}{beside}")


if __name__ == "__main__":
    main()
