"""What planning costs: fake calls, twins, modes, counting FLOPs, whole plans; beside PyTorch with `--torch PYTHON`.

    python benches/planning.py --torch /path/to/python/with/torch

Times are the best of several turns, in microseconds where nothing else is said; ratios are PyTorch's time over ours.
"""

import argparse
import json
import subprocess
import sys
import time


def best(f, number=1, turns=7):
    """Seconds of one call, in the best turn."""
    found = []
    for _ in range(turns):
        start = time.perf_counter()
        for _ in range(number):
            f()
        found.append((time.perf_counter() - start) / number)
    return min(found)


def measure(torch):
    """Seconds by name."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch._subclasses.meta_utils import MetaConverter
    from torch.utils.flop_counter import FlopCounterMode

    out = {}
    meta = torch.empty(8, 8, device="meta")
    out["meta add"] = best(lambda: meta + meta, 2000)
    mode = FakeTensorMode()
    with mode:
        fake = torch.empty(8, 8)
        out["fake add"] = best(lambda: fake + fake, 300)

    def enter():
        with mode:
            pass

    out["enter a mode"] = best(enter, 300)
    tensors = [torch.empty(2, 2) for _ in range(10_000)]

    def convert():
        converter = MetaConverter()
        return [converter(t) for t in tensors]

    out["10,000 twins"] = best(convert, turns=3)
    with torch.device("meta"):
        layers = [torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True) for _ in range(12)]
        model, x = torch.nn.Sequential(*layers), torch.empty(2, 16, 64)

    def count():
        with FlopCounterMode(display=False) as counter:
            model(x).sum().backward()
        return counter.get_total_flops()

    out["FLOPs of 12 layers"] = best(count, turns=3)

    def bare():
        model(x).sum().backward()

    out["the same, uncounted"] = best(bare, turns=3)
    if hasattr(torch, "plan"):
        out["plan of 12 layers"] = best(
            lambda: torch.plan(model, x, step="train", optimizer="adamw"), turns=3
        )
    else:
        from torch.distributed._tools.mem_tracker import MemTracker

        def track():
            tracker = MemTracker()
            optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
            tracker.track_external(model, x, optimizer)
            with tracker:
                bare()
                optimizer.step()

        out["plan of 12 layers"] = best(track, turns=2)
    return out


def main():
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--torch", metavar="PYTHON", help="an interpreter with PyTorch")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        import torch

        torch.set_num_threads(1)
        print(json.dumps(measure(torch)))
        return
    import torchlike
    from torchlike.compat import install_as_torch

    torchlike.set_num_threads(1)
    install_as_torch()
    import torch

    own = measure(torch)
    theirs = {}
    if asked.torch:
        done = subprocess.run(
            [asked.torch, __file__, "--child"], capture_output=True, text=True, check=True
        )
        theirs = json.loads(done.stdout.splitlines()[-1])
    print(f"{'':<24}{'us':>12}{'PyTorch':>14}{'ratio':>10}")
    for name, seconds in own.items():
        other = theirs.get(name)
        beside = f"{other * 1e6:>14,.1f}{other / seconds:>9.1f}x" if other else ""
        print(f"{name:<24}{seconds * 1e6:>12,.2f}{beside}")
    print(f"fake add / meta add: {own['fake add'] / own['meta add']:.2f}")


if __name__ == "__main__":
    sys.exit(main())
