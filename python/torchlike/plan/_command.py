"""`torchlike plan`, `torchlike validate` and `torchlike check`: a model without data, from the shell.

SPEC is `package.module:factory`, whose code is run: it gives a module when it is called, or is one.
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = ("plan", "validate", "check")

_TYPES = {
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "i32": "int32", "i64": "int64",
    "u8": "uint8", "bool": "bool",
}  # fmt: skip


_OUT = "-"
"""The name of a file that stands for what is printed."""


class _Refused(Exception):
    """A mistake in what was asked for."""


def _model(spec: str) -> Any:
    import torchlike as torch

    where, _, name = spec.partition(":")
    if not name:
        raise _Refused(f"SPEC must be package.module:factory, got {spec!r}")
    sys.path.insert(0, "")
    try:
        made = getattr(importlib.import_module(where), name)
    except (ImportError, AttributeError) as e:
        raise _Refused(f"cannot load {spec}: {e}") from e
    if isinstance(made, torch.nn.Module):
        return made
    try:
        with torch.device("meta"):
            made = made()
    except Exception as e:
        raise _Refused(f"{spec} raises {type(e).__name__}: {e}") from e
    if not isinstance(made, torch.nn.Module):
        raise _Refused(f"{spec} gives {type(made).__name__}, not a module")
    return made


def _input(text: str) -> tuple[str, Any]:
    """`name=f32[8,3,224,224]`, or without the name."""
    import torchlike as torch

    head, eq, shape = text.rpartition("=")
    kind, bracket, sizes = shape.partition("[")
    if not bracket or not sizes.endswith("]") or kind not in _TYPES:
        raise _Refused(
            f"an input is [NAME=]TYPE[SIZES] as x=f32[8,128], TYPE one of {', '.join(_TYPES)}; got {text!r}"
        )
    try:
        numbers = [int(n) for n in sizes[:-1].split(",") if n.strip()]
        made = torch.empty(numbers, dtype=getattr(torch, _TYPES[kind]), device="meta")
    except (ValueError, RuntimeError) as e:
        raise _Refused(f"{text!r}: {e}") from e
    return (head if eq else ""), made


def _inputs(texts: Sequence[str]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    pairs = [_input(t) for t in texts]
    return tuple(t for n, t in pairs if not n), {n: t for n, t in pairs if n}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="torchlike", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (
        ("plan", "memory and FLOPs of a step"),
        ("validate", "shapes through forward, and backward"),
    ):
        one = commands.add_parser(name, help=text)
        one.add_argument("spec", metavar="SPEC")
        one.add_argument("--input", action="append", default=[], metavar="[NAME=]TYPE[SIZES]")
        one.add_argument("--train", nargs="?", const="", metavar="OPTIMIZER")
        one.add_argument("--device", default="cpu")
        if name == "plan":
            one.add_argument("--mesh", metavar="NAME=SIZE,...", help="ranks, as dp=128,tp=8")
            one.add_argument(
                "--parallel", metavar="FILE", help="how the model lies on the mesh, TOML"
            )
            one.add_argument(
                "--pipeline",
                metavar="NAME=VALUE,...",
                help="a training step on ranks with stages, as ranks=4,microbatches=16,schedule=1f1b,stages=8",
            )
            one.add_argument(
                "--json",
                metavar="FILE",
                help="the plan as JSON; - prints it in place of the report",
            )
            one.add_argument("--svg", metavar="FILE")
            one.add_argument("--html", metavar="FILE")
            one.add_argument("--verify", action="store_true", help="run it for real, too")
    one = commands.add_parser("check", help="names, shapes and types of a checkpoint, for a model")
    one.add_argument("spec", metavar="SPEC")
    one.add_argument("checkpoint")
    return parser


def _mesh(text: str) -> dict[str, int]:
    """`dp=128,tp=8`."""
    sizes = {}
    for part in text.split(","):
        name, _, size = part.strip().partition("=")
        if not name.isidentifier() or not size.isdecimal() or int(size) < 1:
            raise _Refused(f"--mesh is NAME=SIZE,... as dp=128,tp=8; got {text!r}")
        sizes[name] = int(size)
    return sizes


def _parallel(path: str) -> dict[str, Any]:
    """A table for each dimension: `fsdp = ["layers.*"]`, or styles by pattern."""
    try:
        import tomllib
    except ImportError:
        raise _Refused("--parallel reads TOML, which needs Python 3.11 or newer") from None
    try:
        with open(path, "rb") as f:
            return tomllib.load(f)
    except (OSError, tomllib.TOMLDecodeError) as e:
        raise _Refused(f"cannot read {path}: {e}") from e


def _pipeline(text: str) -> dict[str, Any]:
    """`ranks=4,microbatches=16`, and what else `pipeline` takes."""
    given: dict[str, Any] = {}
    kinds = {
        "ranks": int,
        "microbatches": int,
        "stages": int,
        "link": float,
        "schedule": str,
        "profile": str,
    }
    for part in text.split(","):
        name, _, value = part.strip().partition("=")
        try:
            given[name] = kinds[name](value)
        except (KeyError, ValueError):
            raise _Refused(
                f"--pipeline is NAME=VALUE,... of {', '.join(kinds)}; got {part!r} in {text!r}"
            ) from None
    if "ranks" not in given or "microbatches" not in given:
        raise _Refused(f"--pipeline needs ranks and microbatches; got {text!r}")
    return given


def _make(asked: Any) -> Any:
    from torchlike import device
    from torchlike.plan._make import make, optimizer_named

    try:
        optimizer = optimizer_named(asked.train) if asked.train else None
        device(asked.device)
    except (ValueError, RuntimeError) as e:
        raise _Refused(str(e)) from e
    inputs, kwargs = _inputs(asked.input)
    spread: dict[str, Any] = {}
    if getattr(asked, "mesh", None):
        mesh = _mesh(asked.mesh)
        # Without a word on how, parameters are cut along all ranks of the first dimension.
        how = _parallel(asked.parallel) if asked.parallel else {next(iter(mesh)): "fsdp"}
        spread = {"mesh": mesh, "parallel": how}
    return make(
        _model(asked.spec),
        inputs,
        kwargs=kwargs,
        step="forward" if asked.train is None else "train",
        optimizer=optimizer,
        device=asked.device,
        **spread,
    )


def _staged(asked: Any) -> int:
    """A pipeline: its report, and its files."""
    from torchlike.plan._pipeline import pipeline

    if asked.mesh or asked.html or asked.verify:
        raise _Refused(
            "--pipeline goes with --json and --svg, not with --mesh, --html and --verify"
        )
    inputs, kwargs = _inputs(asked.input)
    made = pipeline(
        _model(asked.spec),
        inputs,
        kwargs=kwargs,
        optimizer=asked.train or None,
        device=asked.device,
        **_pipeline(asked.pipeline),
    )
    if asked.json != _OUT:
        print(made)
    if asked.svg:
        made.svg(asked.svg)
    if asked.json == _OUT:
        print(json.dumps(made.as_dict(), indent=1))
    elif asked.json:
        Path(asked.json).write_text(json.dumps(made.as_dict(), indent=1))
    return 0


def _plan(asked: Any) -> int:
    if asked.pipeline:
        return _staged(asked)
    plan = _make(asked)
    said = [str(plan)]
    if plan.mesh:
        from torchlike.plan._rules import report

        said.append(report())
    if asked.json == _OUT:
        said = [json.dumps(plan.as_dict(), indent=1)]
    elif asked.json:
        plan.save(asked.json)
    for path, write in ((asked.svg, plan.svg), (asked.html, plan.html)):
        if path:
            write(path)
    print("\n\n".join(said))
    if asked.verify:
        result = plan.verify()
        print(f"\n{result}", file=sys.stderr if asked.json == _OUT else sys.stdout)
        return 0 if result.equal else 1
    return 0


def _validate(asked: Any) -> int:
    plan = _make(asked)
    print(f"ok: {plan.steps:,} steps")
    return 0


def _shown(name: Any) -> str:
    """A name of a file, which may hold what a terminal would obey."""
    text = str(name)
    return text if text.isprintable() else repr(text)[1:-1]


def _check(asked: Any) -> int:
    import torchlike as torch

    own = _model(asked.spec).state_dict()
    try:
        found = torch.load(asked.checkpoint, map_location="meta", weights_only=True)
    except Exception as e:
        raise _Refused(str(e)) from e
    found = found.get("state_dict", found) if isinstance(found, dict) else found
    if not isinstance(found, dict):
        raise _Refused(f"{asked.checkpoint} holds {type(found).__name__}, not tensors by name")
    lines = [f"missing: {n}" for n in own if n not in found]
    lines += [f"unexpected: {_shown(n)}" for n in found if n not in own]
    for name in own:
        a, b = own[name], found.get(name)
        if not isinstance(a, torch.Tensor) or b is None:
            continue
        if not isinstance(b, torch.Tensor):
            lines.append(f"differs: {name} is a tensor, the file has {type(b).__name__}")
        elif a.shape != b.shape or a.dtype != b.dtype:
            lines.append(
                f"differs: {name} is {a.dtype}{list(a.shape)}, the file has {b.dtype}{list(b.shape)}"
            )
    print("\n".join(lines) or f"ok: {len(own)} tensors")
    return 1 if lines else 0


def main(arguments: Sequence[str]) -> int:
    """Runs a command; 0: fine, 1: something does not fit, 2: it cannot be run."""
    asked = _parser().parse_args(arguments)
    # Names of tensors may be what a terminal cannot show.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        return {"plan": _plan, "validate": _validate, "check": _check}[asked.command](asked)
    except BrokenPipeError:
        raise
    except (_Refused, OSError) as e:
        print(f"torchlike {asked.command}: {e}", file=sys.stderr)
        return 2
    except Exception as e:
        print(f"torchlike {asked.command}: {type(e).__name__}: {e}", file=sys.stderr)
        return 1
