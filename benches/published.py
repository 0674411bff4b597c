"""Large published models on meta, in torchlike and in PyTorch: `python benches/published.py --torch PYTHON`.

Both Pythons need transformers. Prints milliseconds, the least of several runs, of importing transformers with the
model's module (in fresh processes), of building Llama-3-70B and Mixtral-8x22B with `from_config`, and of a forward pass
of 128 tokens; and the ratios: above 1 torchlike is faster.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from typing import Any

LLAMA = {
    "vocab_size": 128256,
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
}
MIXTRAL = {
    "vocab_size": 32768,
    "hidden_size": 6144,
    "intermediate_size": 16384,
    "num_hidden_layers": 56,
    "num_attention_heads": 48,
    "num_key_value_heads": 8,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
MODELS = {"Llama-3-70B": ("LlamaConfig", LLAMA), "Mixtral-8x22B": ("MixtralConfig", MIXTRAL)}


def least(run: Any, times: int) -> float:
    """Milliseconds of the fastest of several runs."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return 1e3 * min(found)


def side(module: str, times: int) -> dict[str, float]:
    """The figures of one library."""
    if module == "torchlike":
        import torchlike.compat

        torchlike.compat.install_as_torch()
    start = time.perf_counter()
    import torch
    import transformers

    _ = transformers.LlamaForCausalLM
    figures = {"import": 1e3 * (time.perf_counter() - start)}
    for name, (config, settings) in MODELS.items():
        made = getattr(transformers, config)(**settings)

        def build(made: Any = made) -> Any:
            with torch.device("meta"):
                return transformers.AutoModelForCausalLM.from_config(made, dtype=torch.bfloat16)

        model = build()
        ids = torch.zeros(1, 128, dtype=torch.long, device="meta")

        def forward(model: Any = model, ids: Any = ids) -> None:
            with torch.no_grad():
                model(ids)

        forward()
        figures[f"{name} build"] = least(build, times)
        figures[f"{name} forward"] = least(forward, times)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch", default="python", help="a Python with PyTorch and transformers")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--side", choices=["torch", "torchlike"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(side(options.side, options.times)))
        return
    found = {}
    for who, python in (("torchlike", sys.executable), ("torch", options.torch)):
        command = [python, __file__, "--side", who, "--times", str(options.times)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found[who] = json.loads(done.stdout.splitlines()[-1])
    for what, ours in found["torchlike"].items():
        theirs = found["torch"][what]
        print(f"{what:24} {ours:9.1f} ms  PyTorch {theirs:9.1f} ms  {theirs / ours:6.1f} x")


if __name__ == "__main__":
    main()
