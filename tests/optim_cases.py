"""Optimizers and schedulers with options, run the same way here and by PyTorch (`data/optim.json` has what it gives).

`python tests/optim_cases.py > tests/data/optim.json`, by a Python with PyTorch, records them anew.
"""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

# Name, class, options, and how: the shape, the type, and in how many units in the last place results may differ.
EXACT, NEAR = 0, 4
STEPS = 20


def _cases() -> dict[str, tuple[str, dict[str, Any], tuple[int, ...], str, int]]:
    options: list[tuple[str, dict[str, Any], int]] = [
        ("SGD", {"lr": 0.1, "fused": True}, EXACT),
        (
            "SGD",
            {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "nesterov": True, "fused": True},
            EXACT,
        ),
        ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.2, "maximize": True}, EXACT),
        ("Adam", {"lr": 0.01, "fused": True}, EXACT),
        ("Adam", {"lr": 0.01, "weight_decay": 0.1, "amsgrad": True, "fused": True}, EXACT),
        ("AdamW", {"lr": 0.01, "fused": True}, EXACT),
        ("AdamW", {"lr": 0.01, "maximize": True, "betas": (0.4, 0.9), "fused": True}, EXACT),
        ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1}, NEAR),
        ("Adadelta", {"lr": 0.5, "weight_decay": 0.1}, NEAR),
        ("Adamax", {"lr": 0.01, "weight_decay": 0.1}, NEAR),
        ("ASGD", {"lr": 0.1, "t0": 5.0, "lambd": 0.01}, NEAR),
        ("NAdam", {"lr": 0.01, "weight_decay": 0.1, "decoupled_weight_decay": True}, NEAR),
        ("RAdam", {"lr": 0.01, "weight_decay": 0.1}, NEAR),
        ("RMSprop", {"lr": 0.01}, NEAR),
        ("RMSprop", {"lr": 0.01, "centered": True, "momentum": 0.5, "alpha": 0.9}, NEAR),
        ("Rprop", {"lr": 0.01}, NEAR),
    ]
    return {
        f"{cls} {kw} {dtype}": (cls, kw, (64,), dtype, ulps)
        for dtype in ("float32", "float64")
        for cls, kw, ulps in options
    }


CASES = _cases()


def numbers(torch: Any, shape: tuple[int, ...], k: int, dtype: str) -> Any:
    """Numbers with few digits, others for every `k`."""
    n = 1
    for d in shape:
        n *= d
    flat = [((i * 7 + k * 13) % 19 - 9) / 8 for i in range(n)]
    return torch.tensor(flat, dtype=getattr(torch, dtype)).reshape(shape)


def trained(torch: Any, name: str, **changed: Any) -> Any:
    """The parameter after the steps of a case."""
    cls, options, shape, dtype, _ = CASES[name]
    p = torch.nn.Parameter(numbers(torch, shape, 0, dtype))
    optimizer = getattr(torch.optim, cls)([p], **{**options, **changed})
    for k in range(1, STEPS + 1):
        p.grad = numbers(torch, shape, k, dtype)
        optimizer.step()
    return p.detach()


SCHEDULES: dict[str, str] = {
    "LambdaLR": "S.LambdaLR(o, lambda e: 0.95**e)",
    "MultiplicativeLR": "S.MultiplicativeLR(o, lambda e: 0.95)",
    "StepLR": "S.StepLR(o, 7, 0.3)",
    "MultiStepLR": "S.MultiStepLR(o, [5, 9, 9, 30], 0.3)",
    "ConstantLR": "S.ConstantLR(o, 0.3, 11)",
    "LinearLR": "S.LinearLR(o, 0.1, 0.9, 23)",
    "ExponentialLR": "S.ExponentialLR(o, 0.97)",
    "PolynomialLR": "S.PolynomialLR(o, 41, 1.7)",
    "CosineAnnealingLR": "S.CosineAnnealingLR(o, 13, 0.01)",
    "CosineAnnealingWarmRestarts": "S.CosineAnnealingWarmRestarts(o, 7, 2, 0.01)",
    "CyclicLR": "S.CyclicLR(o, 0.1, 0.7, 6, 9, mode='triangular2')",
    "CyclicLR exp_range": "S.CyclicLR(o, 0.1, 0.7, 6, mode='exp_range', gamma=0.98)",
    "OneCycleLR": "S.OneCycleLR(o, 0.7, total_steps=60)",
    "OneCycleLR three": "S.OneCycleLR(o, 0.7, 60, three_phase=True, anneal_strategy='linear')",
    "SequentialLR": "S.SequentialLR(o, [S.LinearLR(o, 0.1), S.ExponentialLR(o, 0.9)], [11])",
    "ChainedScheduler": "S.ChainedScheduler([S.ConstantLR(o, 0.5, 9), S.ExponentialLR(o, 0.97)])",
    "SWALR": "torch.optim.swa_utils.SWALR(o, 0.05, 17)",
}


def rates(torch: Any, name: str, steps: int = 60) -> list[float]:
    """Rates and momenta of two groups before the first and after each step of a scheduler."""
    ps = [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]
    groups = [{"params": ps[:1], "lr": 0.5}, {"params": ps[1:]}]
    o = torch.optim.SGD(groups, lr=0.3, momentum=0.9)
    scheduler = eval(SCHEDULES[name], {"S": torch.optim.lr_scheduler, "o": o, "torch": torch})
    found = []
    for i in range(steps + 1):
        if i > 0:
            o.step()
            scheduler.step()
        found += [g[key] for g in o.param_groups for key in ("lr", "momentum")]
    return found


def digest(values: list[float]) -> str:
    """What stands for all of them, to the last bit."""
    return hashlib.sha256(" ".join(v.hex() for v in values).encode()).hexdigest()[:24]


def record(torch: Any) -> dict[str, Any]:
    """What is compared with."""
    steps = {
        name: base64.b64encode(trained(torch, name).numpy().tobytes()).decode() for name in CASES
    }
    schedules = {name: [digest(r := rates(torch, name)), r[-2:]] for name in SCHEDULES}
    return {"steps": steps, "schedules": schedules}


if __name__ == "__main__":
    import torch

    print(json.dumps(record(torch), indent=0))
