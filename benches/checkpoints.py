"""Loading checkpoints, side by side with PyTorch and safetensors where they are installed.

    python benches/checkpoints.py [--torch-python PYTHON] [--dir SCRATCH] [--gigabytes 2]

Every figure is the best of several in a process of its own; the files are in the page cache. `--torch-python` names an
interpreter that has PyTorch, if this one has not.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

CASES = {
    "10,000 tensors to meta": ("many.pt", "meta", None, 15),
    "10,000 tensors saved by torchlike": ("many_ours.pt", "meta", None, 15),
    "ResNet-50 to meta": ("resnet50.pt", "meta", None, 30),
    "large .pt to meta": ("large.pt", "meta", None, 30),
    "large .pt to the CPU, copied": ("large.pt", "cpu", False, 3),
    "large .pt to the CPU, mapped": ("large.pt", "cpu", True, 5),
    "large .safetensors to the CPU, mapped": ("large.safetensors", "cpu", True, 5),
    "large .safetensors to the CPU, copied": ("large.safetensors", "cpu", False, 3),
}

MEASURE = """
import json, sys, time
module, cases, folder = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
M = __import__(module)
try:
    import safetensors.torch as st
except ImportError:
    st = None
def touch(x):
    # One element of each page that has to be there anyway; mapped files stay on disk but for this.
    return sum(float(t.reshape(-1)[0]) for t in x.values())
out = {}
for name, (file, where, mmap, times) in cases.items():
    path = folder + "/" + file
    flat = file.endswith(".safetensors")
    if module == "torch" and flat and (st is None or where == "meta"):
        continue
    def load():
        if module == "torch" and flat:
            x = st.load_file(path)
            return x if mmap else {k: v.clone() for k, v in x.items()}
        kw = {} if mmap is None else {"mmap": mmap}
        return M.load(path, map_location=where, **kw)
    best = 1e9
    for _ in range(times):
        t = time.perf_counter()
        x = load()
        if where != "meta":
            touch(x)
        best = min(best, time.perf_counter() - t)
        del x
        time.sleep(0.001)
    out[name] = best
print(json.dumps(out))
"""

MAKE = """
import sys
folder, gigabytes, module = sys.argv[1], float(sys.argv[2]), sys.argv[3]
t = __import__(module)
t.save({f"layer.{i}.weight": t.zeros(64) for i in range(10_000)}, folder + "/many.pt")
net = {}
def norm(name, n):
    net.update({f"{name}.{k}": t.ones(n) for k in ("weight", "bias", "running_mean", "running_var")})
    net[name + ".num_batches_tracked"] = t.tensor(1)
def conv(name, out, into, size):
    net[name + ".weight"] = t.zeros(out, into, size, size)
conv("conv1", 64, 3, 7)
norm("bn1", 64)
into = 64
for layer, (width, blocks) in enumerate([(64, 3), (128, 4), (256, 6), (512, 3)], 1):
    for block in range(blocks):
        at = f"layer{layer}.{block}"
        for i, (out, into_, size) in enumerate([(width, into, 1), (width, width, 3), (width * 4, width, 1)], 1):
            conv(f"{at}.conv{i}", out, into_, size)
            norm(f"{at}.bn{i}", out)
        if block == 0:
            conv(at + ".downsample.0", width * 4, into, 1)
            norm(at + ".downsample.1", width * 4)
        into = width * 4
net.update({"fc.weight": t.zeros(1000, 2048), "fc.bias": t.zeros(1000)})
t.save(net, folder + "/resnet50.pt")
rows = int(gigabytes * 2**30 / 64 / 4 / 1024)
large = {f"w{i}": t.zeros(rows, 1024) for i in range(64)}
t.save(large, folder + "/large.pt")
"""


def copies(folder: str) -> None:
    """Many tensors as this library saves them; the large file again as safetensors, without a library."""
    import torchlike

    torchlike.save(torchlike.load(folder + "/many.pt"), folder + "/many_ours.pt")
    tensors = torchlike.load(folder + "/large.pt", mmap=True)
    header, at = {}, 0
    for name, t in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(t.shape), "data_offsets": [at, at + t.nbytes]}
        at += t.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder + "/large.safetensors", "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for t in tensors.values():
            f.write(memoryview(t.numpy()).cast("B"))


def make(torch_python: str, folder: str, gigabytes: float) -> None:
    """PyTorch writes the files if it is there."""
    command = ["-c", MAKE, folder, str(gigabytes)]
    theirs = subprocess.run([torch_python, *command, "torch"], capture_output=True, check=False)
    if theirs.returncode != 0:
        subprocess.run([sys.executable, *command, "torchlike"], check=True)


def measure(python: str, module: str, folder: str) -> dict[str, float]:
    run = subprocess.run(
        [python, "-c", MEASURE, module, json.dumps(CASES), folder],
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode != 0:
        print(f"{module}: {run.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return {}
    return json.loads(run.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--torch-python", default=sys.executable)
    parser.add_argument("--dir")
    parser.add_argument("--gigabytes", type=float, default=2.0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.dir or scratch
        os.makedirs(folder, exist_ok=True)
        if not os.path.exists(folder + "/large.safetensors"):
            make(args.torch_python, folder, args.gigabytes)
            copies(folder)
        # Twice by turns, so that one disturbance does not decide.
        ours: dict[str, float] = {}
        theirs: dict[str, float] = {}
        for _ in range(2):
            for python, module, best in (
                (sys.executable, "torchlike", ours),
                (args.torch_python, "torch", theirs),
            ):
                for name, seconds in measure(python, module, folder).items():
                    best[name] = min(seconds, best.get(name, seconds))
        for name in CASES:
            other = theirs.get(name)
            ratio = f"{other * 1e3:10.2f} ms {other / ours[name]:8.1f}x" if other else ""
            print(f"{name:40} {ours[name] * 1e3:10.2f} ms {ratio}")


if __name__ == "__main__":
    main()
