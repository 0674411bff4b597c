"""How many archives are understood: thirty models as `.pt2`, scripted and traced, read here and run, written here
and run by PyTorch.

    python benches/archives.py --torch PYTHON_WITH_TORCH [--only NAMES] [--show]

PyTorch writes archives and what its models answer at another batch size; torchlike reads and runs them. Then
torchlike writes
archives of the same models, which PyTorch runs in a process that has not seen the models.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import traceback
import warnings
from pathlib import Path

KINDS = ("pt2", "script", "trace")


def _flat(value):
    """The tensors of a result."""
    if isinstance(value, dict):
        return [t for v in value.values() for t in _flat(v)]
    if isinstance(value, list | tuple):
        return [t for v in value for t in _flat(v)]
    return [value]


def _try(results, key, f):
    try:
        f()
        results[key] = ""
    except Exception as e:
        text = traceback.format_exc() if "-v" in sys.argv else f"{type(e).__name__}: {e}"
        results[key] = text[-1500:]


def write(folder: Path, only: list[str], saved_states: bool) -> dict[str, str]:
    """Writes archives of all models, and (in PyTorch) their states and answers."""
    import torch

    sys.path.insert(0, str(Path(__file__).parent))
    from _archive_models import MODELS

    results: dict[str, str] = {}
    for name, (make, inputs) in MODELS.items():
        if only and name not in only:
            continue
        torch.manual_seed(0)
        model = make().eval()
        if saved_states:
            torch.save(model.state_dict(), folder / f"{name}.state")
            x = inputs(3)
            answers = [t.detach() for t in _flat(model(*x))]
            torch.save({"x": list(x), "y": answers}, folder / f"{name}.io")
        else:
            model.load_state_dict(torch.load(folder / f"{name}.state"))
        mark = "" if saved_states else "own_"
        example = inputs(2)

        def pt2(model=model, example=example, name=name, mark=mark):
            dims = ({0: torch.export.Dim("batch", min=2, max=64)},)
            torch.export.save(
                torch.export.export(model, example, dynamic_shapes=dims),
                folder / f"{mark}{name}.pt2",
            )

        def script(model=model, name=name, mark=mark):
            torch.jit.save(torch.jit.script(model), str(folder / f"{mark}{name}.script"))

        def trace(model=model, example=example, name=name, mark=mark):
            torch.jit.save(
                torch.jit.trace(model, example, strict=False), str(folder / f"{mark}{name}.trace")
            )

        for kind, f in (("pt2", pt2), ("script", script), ("trace", trace)):
            _try(results, f"{kind}/{name}", f)
    return results


def read(folder: Path, mark: str, wanted: list[str]) -> dict[str, str]:
    """Reads archives and runs them on the recorded inputs."""
    import torch

    results: dict[str, str] = {}
    for key in wanted:
        kind, name = key.split("/")

        def run(kind=kind, name=name):
            io = torch.load(folder / f"{name}.io")
            path = str(folder / f"{mark}{name}.{kind}")
            model = torch.export.load(path).module() if kind == "pt2" else torch.jit.load(path)
            found = _flat(model(*io["x"]))
            assert len(found) == len(io["y"]), "another number of results"
            for a, b in zip(found, io["y"], strict=True):
                torch.testing.assert_close(a.detach(), b, rtol=1e-4, atol=1e-4)

        _try(results, key, run)
    return results


def _step(python: str, folder: Path, what: str, **given) -> dict[str, str]:
    text = json.dumps({"folder": str(folder), "what": what, **given})
    done = subprocess.run(
        [python, __file__, "--step", text], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    return json.loads(done.stdout.splitlines()[-1])


def step(text: str) -> None:
    """One process: writes or reads, and prints what failed."""
    warnings.simplefilter("ignore")
    given = json.loads(text)
    if given["own"]:
        from torchlike.compat import install_as_torch

        install_as_torch()
    folder = Path(given["folder"])
    if given["what"] == "write":
        found = write(folder, given["only"], not given["own"])
    else:
        found = read(folder, given["mark"], given["wanted"])
    print(json.dumps(found))


def main() -> None:
    """Prints the four numbers of each kind."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--torch", default=sys.executable, help="a Python that has PyTorch")
    parser.add_argument("--only", default="", help="names of models, separated by commas")
    parser.add_argument("--show", action="store_true", help="print what failed")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    args, _ = parser.parse_known_args()
    if args.step:
        step(args.step)
        return
    only = [n for n in args.only.split(",") if n]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        theirs = _step(args.torch, folder, "write", own=False, only=only)
        made = [k for k, e in theirs.items() if not e]
        here = _step(sys.executable, folder, "read", own=True, mark="", wanted=made)
        ours = _step(sys.executable, folder, "write", own=True, only=only)
        written = [k for k, e in ours.items() if not e]
        there = _step(args.torch, folder, "read", own=False, mark="own_", wanted=written)
    for kind in KINDS:
        mine = [k for k in made if k.startswith(kind)]
        good = sum(not here[k] for k in mine)
        back = sum(not e for k, e in there.items() if k.startswith(kind))
        whole = sum(k.startswith(kind) for k in ours)
        print(
            f"{kind:<7} read and run here {good}/{len(mine)} ({good / max(1, len(mine)):.0%})   written "
            f"here and run by PyTorch {back}/{whole} ({back / max(1, whole):.0%})"
        )
    if args.show:
        for title, found in (
            ("PyTorch writes", theirs),
            ("read here", here),
            ("written here", ours),
            ("PyTorch reads", there),
        ):
            for key, error in found.items():
                if error:
                    print(f"--- {title}: {key}\n{error}")


if __name__ == "__main__":
    main()
