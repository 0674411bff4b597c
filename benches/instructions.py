"""Instructions of a call: `python benches/instructions.py [--before PYTHON]`, with valgrind installed.

Callgrind counts each case in this interpreter and, if a Python with another build of torchlike is named, in that one.
Tensors are on meta, but for `h` and `r`, which are on the host, and `u` and `v`, which are fake. `x` and `y` want
gradients: `there and back` is a call and the walk back from it. A plan's tape runs in the case `taped add`.
The counts do not depend on what else the machine does. Those of the loop around a call are subtracted.
"""

from __future__ import annotations

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

CASES = {
    "empty": "pass",
    "a + b": "a + b",
    "a + 1.0": "a + 1.0",
    "relu": "torch.relu(a)",
    "linear": "F.linear(a, b, c)",
    "softmax": "torch.softmax(a, -1)",
    "sum": "a.sum()",
    "max_dim": "a.max(1)",
    "var": "a.var(0)",
    "topk": "a.topk(2)",
    "cat": "torch.cat([a, b])",
    "view": "a.view(16)",
    "unsqueeze": "a.unsqueeze(0)",
    "a[0]": "a[0]",
    "a[1:3]": "a[1:3]",
    "flatten": "torch.flatten(a)",
    "detach": "a.detach()",
    "Parameter": "torch.nn.Parameter(a)",
    "zeros": "torch.zeros(4, 4, device='meta')",
    "host silu": "F.silu(h)",
    "host number": "h + 1.0",
    "host row": "h - r",
    "host outer": "torch.outer(r, r)",
    "host in place": "h.add_(h)",
    "host topk": "h.topk(2)",
    "host any": "h.any()",
    "host cat": "torch.cat([h, h])",
    "tracked mul": "x * b",
    "there and back": "torch.autograd.grad(x * y, (x, y), a)",
    "fake add": "u + v",
    "fake linear": "F.linear(u, v)",
    "taped add": "a + b",
    "twin": "MetaConverter()(a)",
}
CALLS = 1000
SCRIPT = """
import os, subprocess, sys
import torchlike as torch
F = torch.nn.functional
a, b, c = (torch.ones(*n, device="meta") for n in ((4, 4), (4, 4), (4,)))
h, r = torch.ones(4, 4), torch.ones(4)
x, y = (t.clone().requires_grad_() for t in (a, b))
from torchlike._subclasses.fake_tensor import FakeTensorMode
from torchlike._subclasses.meta_utils import MetaConverter
u, v = map(FakeTensorMode().from_tensor, (torch.ones(4, 4), torch.ones(4, 4)))
def control(*args):
    subprocess.run(["callgrind_control", *args, str(os.getpid())], stdout=subprocess.DEVNULL)
for name, call in {cases!r}.items():
    code = compile("for _ in range({calls}):\\n " + call, name, "exec")
    program = torch._C._Program() if name.startswith("taped") else None
    if program:
        program.start()
    exec(code)
    control("-z")
    exec(code)
    control("-d", name)
    if program:
        program.stop()
"""


def count(python: str) -> dict[str, float]:
    """Instructions a call, by case."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out"
        script = SCRIPT.format(cases=CASES, calls=CALLS)
        tool = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}"]
        subprocess.run([*tool, python, "-c", script], check=True, capture_output=True)
        found = {}
        for dump in pathlib.Path(folder).glob("out.*"):
            text = dump.read_text()
            name = re.search(r"^desc: Trigger: dump (.*)$", text, re.MULTILINE)
            total = re.search(r"^summary: (\d+)", text, re.MULTILINE)
            if name and total:
                found[name[1].strip()] = int(total[1])
        return {name: (found[name] - found["empty"]) / CALLS for name in CASES if name != "empty"}


def main() -> None:
    """Prints a line a case: the counts before and now, and their ratio."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--before", help="a Python with another build of torchlike")
    args = parser.parse_args()
    now = count(sys.executable)
    before = count(args.before) if args.before else {}
    for name, n in now.items():
        ratio = f"{before[name]:9.0f}   x{n / before[name]:.2f}" if before else ""
        print(f"{name:15}{n:9.0f}{ratio}")


if __name__ == "__main__":
    main()
