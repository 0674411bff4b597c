"""Small random models of many families, in torchlike and in PyTorch.

    python benches/families.py --torch PYTHON [--only REGEX] [--folder DIR]

Both Pythons need transformers; the one that runs this needs no PyTorch. PyTorch builds each model, gives it weights,
saves it as `save_pretrained` does, and notes its logits and what it generates. torchlike reads that folder with
`from_pretrained` and does the same. A line a family: the largest difference (relative to the largest logit, if that is
above 1), and whether the same tokens came, greedily and by sampling. The exit status is 1 if any differs by more than
1e-4 or generates other tokens.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from _family_models import FAMILIES, WORDS

BOUND = 1e-4


def given(torch: Any, kind: str) -> dict[str, Any]:
    """The arguments of a forward pass; the same in both libraries, as they draw the same numbers."""
    made = torch.Generator().manual_seed(7)

    def tokens(*shape: int) -> Any:
        return torch.randint(3, WORDS, shape, generator=made)

    def numbers(*shape: int) -> Any:
        return torch.randn(*shape, generator=made)

    mask = torch.ones(2, 12, dtype=torch.long)
    mask[1, 9:] = 0
    return {
        "tokens": lambda: {"input_ids": tokens(2, 12)},
        "encoder": lambda: {"input_ids": tokens(2, 12), "attention_mask": mask},
        "pairs": lambda: {
            "input_ids": tokens(2, 12),
            "attention_mask": mask,
            "decoder_input_ids": tokens(2, 5),
        },
        "sound": lambda: {"input_features": numbers(2, 8, 40), "decoder_input_ids": tokens(2, 5)},
        "image": lambda: {"pixel_values": numbers(2, 3, 32, 32)},
        "both": lambda: {"input_ids": tokens(2, 12), "pixel_values": numbers(2, 3, 32, 32)},
        "wave": lambda: {"input_values": numbers(2, 400)},
    }[kind]()


def answers(torch: Any, model: Any, kind: str) -> dict[str, Any]:
    """Logits as nested lists, and the tokens of 20 greedy and 20 sampled steps."""
    model.eval()
    inputs = given(torch, kind)
    with torch.no_grad():
        result = model(**inputs)
        logits = result.logits_per_text if kind == "both" else result.logits
        found: dict[str, Any] = {
            "logits": logits.float().flatten().tolist(),
            "shape": list(logits.shape),
        }
        if kind in ("tokens", "pairs", "sound"):
            inputs.pop("decoder_input_ids", None)
            steps = {"max_new_tokens": 20, "min_new_tokens": 20}
            found["greedy"] = model.generate(**inputs, **steps, do_sample=False).tolist()
            torch.manual_seed(3)
            found["sampled"] = model.generate(
                **inputs, **steps, do_sample=True, top_k=20, top_p=0.95
            ).tolist()
    return found


def make(torch: Any, name: str, folder: Path) -> None:
    """Saves a model with weights large enough to tell models apart."""
    import transformers

    kind, config, _ = FAMILIES[name]
    model_class = getattr(transformers, kind)
    torch.manual_seed(0)
    model = model_class(model_class.config_class(**config))
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * (0.2 if p.dim() > 1 else 0.05))
    model.save_pretrained(folder)


def side(torch: Any, names: list[str], folder: Path) -> None:
    """The answers of one library, a file a family; PyTorch's makes the models."""
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    for name in names:
        kind, _, inputs = FAMILIES[name]
        reference = not hasattr(torch, "materialize")
        try:
            if reference:
                make(torch, name, folder / name)
            model = getattr(transformers, kind).from_pretrained(folder / name)
            answer = answers(torch, model, inputs)
        except Exception:
            answer = {"error": traceback.format_exc()}
        (folder / f"{name}.{'torch' if reference else 'torchlike'}.json").write_text(
            json.dumps(answer)
        )


def difference(got: list[float], wanted: list[float]) -> float:
    """The largest difference of two logits, relative to the largest logit where that is above 1."""
    if len(got) != len(wanted):
        return math.inf
    largest = max(1.0, *map(abs, wanted))
    return (
        max(
            abs(a - b) if math.isfinite(b) else 0.0 if a == b else math.inf
            for a, b in zip(got, wanted, strict=True)
        )
        / largest
    )


def compare(name: str, folder: Path) -> tuple[bool, str]:
    """Whether both libraries agree on a family, and a line that says so."""
    theirs, ours = (
        json.loads((folder / f"{name}.{who}.json").read_text()) for who in ("torch", "torchlike")
    )
    for who, answer in (("torch", theirs), ("torchlike", ours)):
        if "error" in answer:
            return False, f"{who}: {answer['error'].strip().splitlines()[-1]}"
    apart = difference(ours["logits"], theirs["logits"])
    same = {k: ours[k] == theirs[k] for k in ("greedy", "sampled") if k in theirs}
    words = "".join(f"  {k} {'same' if v else 'OTHER TOKENS'}" for k, v in same.items())
    right = apart <= BOUND and ours["shape"] == theirs["shape"] and all(same.values())
    return right, f"{apart:8.1e}{words}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch", default="python", help="a Python with PyTorch and transformers")
    parser.add_argument("--only", default="", help="families whose names match")
    parser.add_argument(
        "--folder", type=Path, help="where models and answers are kept (a temporary folder)"
    )
    parser.add_argument("--side", choices=["torch", "torchlike"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    names = [n for n in FAMILIES if re.search(options.only, n)]
    if options.side:
        if options.side == "torchlike":
            import torchlike.compat

            torchlike.compat.install_as_torch()
        import torch

        side(torch, names, options.folder)
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for who, python in (("torch", options.torch), ("torchlike", sys.executable)):
            command = [
                python,
                __file__,
                "--side",
                who,
                "--only",
                options.only,
                "--folder",
                str(folder),
            ]
            subprocess.run(
                command, check=True, env={**os.environ, "TRANSFORMERS_VERBOSITY": "error"}
            )
        lines = {name: compare(name, folder) for name in names}
    for name, (right, line) in lines.items():
        print(f"{name:16} {'ok  ' if right else 'BAD '} {line}")
    print(f"FAMILIES {sum(right for right, _ in lines.values())}/{len(lines)}")
    return 0 if all(right for right, _ in lines.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
