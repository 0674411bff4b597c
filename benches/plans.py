"""Plans beside runs for real: peaks to the byte, and FLOPs as `FlopCounterMode` counts them.

    python benches/plans.py CASES.py

`models(torch)` in that file gives `{name: (build, shapes)}`; a shape may be `(dtype, shape)`. Each model is planned and
forward, and as a training step with Adam.
"""

import argparse
import importlib.util
import sys
import warnings

import torchlike as torch
from torchlike.plan._make import total
from torchlike.utils.flop_counter import FlopCounterMode


def table(path):
    """The models of a file."""
    spec = importlib.util.spec_from_file_location("cases", path)
    cases = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(cases)
    return cases.models(torch)


def made(shape):
    """Zeros for a shape, or a type and a shape."""
    kind, shape = shape if isinstance(shape[0], str) else ("float32", shape)
    return torch.zeros(shape, dtype=getattr(torch, kind))


def counted(model, inputs, train):
    """FLOPs of a run for real."""
    with FlopCounterMode(display=False) as counter, torch.set_grad_enabled(train):
        out = model(*inputs)
        if train:
            total(out).backward()
    return counter.get_total_flops()


def main():
    """Prints what differs, and how many are equal."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cases", metavar="CASES.py")
    warnings.simplefilter("ignore")
    runs = peaks = flops = untrained = 0
    for name, (build, shapes) in table(parser.parse_args().cases).items():
        for step in ("forward", "train"):
            model, inputs = build(), tuple(map(made, shapes))
            train = step == "train"
            if train and not any(p.requires_grad for p in model.parameters()):
                untrained += 1
                continue
            plan = torch.plan(model, inputs, step=step, optimizer="adam" if train else None)
            done, counts = plan.verify(), counted(model, inputs, train)
            runs, peaks, flops = runs + 1, peaks + done.equal, flops + (counts == plan.flops)
            if not done.equal or counts != plan.flops:
                print(f"{name} {step}: {done}; FLOPs {plan.flops:,}, counted {counts:,}")
    print(f"{peaks} of {runs} peaks equal, FLOPs of {flops}; {untrained} have nothing to train")


if __name__ == "__main__":
    sys.exit(main())
