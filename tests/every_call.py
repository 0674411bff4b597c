"""Every row of the operator table in every form, for every dtype and many layouts: does any write beyond its memory?

    python tests/every_call.py [--rows REGEX] [--dtypes float32,complex32] [--jobs N]

The calls run in processes of their own under glibc's checking allocator, with every block at its exact size. Results do
not matter, and refusals are as good as results. A process that dies names its call, which fails the run, and the rows
after it go on in another.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import mmap
import os
import re
import subprocess
import sys
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor

CHECKS = {
    "LD_PRELOAD": "libc_malloc_debug.so.0",
    "MALLOC_CHECK_": "3",
    "MALLOC_PERTURB_": "165",
    "TORCHLIKE_PLAIN_ALLOC": "1",
}
FUNCTION, METHOD, IN_PLACE, OUT = 1, 2, 4, 8
ATTEMPTS = 3
SECONDS = 300
NOTE = 200


def dtypes(torch):
    """All dtypes by one of their names, but those that nothing computes with."""
    names = {v: k for k, v in list(vars(torch).items()) if isinstance(v, torch.dtype)}
    return sorted((n, d) for d, n in names.items() if not n.startswith(("q", "bits")))


def layouts(torch, dtype):
    """Three tensors of every kind of layout; those of a dtype that cannot be filled hold zeros."""

    def make(*shape):
        t = torch.zeros(shape, dtype=dtype)
        with contextlib.suppress(RuntimeError, TypeError):
            t.copy_((torch.arange(t.numel()) % 5 + 1).reshape(shape))
        return t

    image = make(2, 4, 6, 6)
    yield "odd", [make(1001)] * 3
    yield "matrix", [make(5, 5), make(5, 5), make(5, 5)]
    yield "transposed", [make(7, 67).t()] * 3
    yield "expanded", [make(1, 9).expand(11, 9), make(11, 9), make(11, 1).expand(11, 9)]
    yield "offset", [make(9, 70)[1:, 3:], make(8, 67), make(8, 134)[:, ::2]]
    yield "broadcast", [make(13, 1, 5), make(3, 1), make(5)]
    yield "scalar", [make(), make(), make()]
    yield "mixed", [make(65), torch.ones(65), make()]
    yield "empty", [make(0, 3), make(0, 3), make(3)]
    yield "image", [image, image, make(4)]
    yield "channels_last", [image.contiguous(memory_format=torch.channels_last)] * 3


def parameters(schema):
    """(type, name, has a default) of each parameter of a schema."""
    end = schema.index(") -> ") if " -> " in schema else schema.rindex(")")
    for text in re.split(r", (?![^\[(]*[\])])", schema[1:end]):
        if m := re.match(r"(\S+) (\w+)(=.*)?$", text):
            yield m[1].rstrip("?"), m[2], m[3] is not None


def value(torch, kind, name, tensors, attempt):
    """A value for a parameter of a type; attempts differ."""
    if kind in ("Tensor", "Operand"):
        t = next(tensors)
        if attempt and re.search("ind|target|length|offset|mask|condition|repeats", name):
            return torch.zeros(
                t.shape, dtype=torch.bool if re.search("mask|cond", name) else torch.int64
            )
        return t
    if kind.startswith("Tensor"):
        return [next(tensors), next(tensors)]
    if m := re.match(r"(int|float)\??\[(.?)\]", kind):
        if not m[2]:
            return [[0], list(next(tensors).shape), [1, 1]][attempt]
        return [attempt] * (int(m[2]) if m[2].isdigit() else 1)
    if m := re.match(r"bool\[(\d?)\]", kind):
        return [attempt != 1] * int(m[1] or 2)
    if kind == "Scalar[]":
        return [1, 0.5]
    if kind == "Generator":
        return torch.default_generator
    return {
        "int": attempt,
        "float": (0.5, 1.0, 0.0)[attempt],
        "Scalar": (1, 0.5, 2)[attempt],
        "bool": attempt == 1,
        "str": ("mean", "sum", "amax")[attempt],
        "dtype": (torch.float32, torch.float64, torch.bfloat16)[attempt],
        "device": "cpu",
        "format": torch.contiguous_format,
        "layout": torch.strided,
    }[kind]


def arguments(torch, schema, tensors, attempt):
    """Positional and keyword arguments; the last attempt gives those with defaults, too."""
    source = itertools.cycle(tensors)
    wanted = [p for p in parameters(schema) if not p[2] or attempt == 2]
    return {name: value(torch, kind, name, source, attempt) for kind, name, _ in wanted}


def outputs(torch, result):
    """Values for `out=`: to be resized, with gaps, of a wider and of a narrower type."""
    results = result if isinstance(result, tuple) else (result,)
    if not all(isinstance(r, torch.Tensor) for r in results):
        return
    for make in (
        lambda r: torch.empty(0, dtype=r.dtype),
        lambda r: torch.empty((*r.shape, 2), dtype=r.dtype)[..., 0],
        lambda r: torch.empty(r.shape, dtype=torch.complex128),
        lambda r: torch.empty(r.shape, dtype=torch.float16),
    ):
        made = tuple(make(r) for r in results)
        yield made if isinstance(result, tuple) else made[0]


def calls(torch, row, tensors, attempt):
    """The calls of a row in each of its forms, to be tried one by one."""
    path, schema, forms, _ = row
    *modules, name = path.partition("#")[0].split(".")
    holder = torch
    for m in modules:
        holder = getattr(holder, m, None)
    kw = arguments(torch, schema, tensors, attempt)
    args = [kw.pop(n) for n in list(kw)[:1]]
    function = getattr(holder, name, None)
    if forms & FUNCTION:
        yield "function", lambda: function(*args, **kw)
    if not forms & (FUNCTION | METHOD | IN_PLACE | OUT):
        yield "row", lambda: torch._C._call_row(row[0], False, tuple(args), kw)
    if forms & METHOD:
        yield "method", lambda: getattr(args[0], name)(**kw)
    if forms & OUT:
        try:
            result = function(*args, **kw)
        except Exception:
            return
        for k, out in enumerate(outputs(torch, result)):
            yield f"out {k}", lambda out=out: function(*args, **kw, out=out)
    if forms & IN_PLACE:
        yield "in place", lambda: getattr(args[0], f"{name}_")(**kw)


def try_rows(first, last, chosen, types, note):
    """Tries the rows of a range. What is tried is noted beforehand, for the process may die of it."""
    import torchlike as torch

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    named = [(n, d) for n, d in dtypes(torch) if not types or n in types]
    for index, row in enumerate(torch._C._op_table()[first:last], first):
        if not chosen.search(row[0]):
            continue
        answered = 0
        plain = all(kind.startswith("Tensor") for kind, _, _ in parameters(row[1]))
        attempts = range(1 if plain else ATTEMPTS)
        for type_name, dtype in named:
            for (layout, tensors), attempt in itertools.product(layouts(torch, dtype), attempts):
                for form, call in calls(torch, row, tensors, attempt):
                    text = f"{index} {row[0]} {form} {type_name} {layout} attempt {attempt}"
                    note[:NOTE] = text.encode().ljust(NOTE)
                    try:
                        call()
                        answered += 1
                    except Exception:
                        pass
        if row[2] & (FUNCTION | METHOD) and not answered:
            print(f"no call answered: {row[0]}", flush=True)


def ended(command, note):
    """The exit code of a process, or "time" if it tried nothing new for too long."""
    process = subprocess.Popen(command, env={**os.environ, **CHECKS})
    seen = None
    while seen != note[:NOTE]:
        seen = note[:NOTE]
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(SECONDS)
    process.kill()
    process.wait()
    return "time"


def watch(first, last, options):
    """Runs the rows of a range in processes until none is left; how many calls a process died of."""
    deaths = 0
    with tempfile.NamedTemporaryFile() as file:
        file.truncate(mmap.PAGESIZE)
        note = mmap.mmap(file.fileno(), 0)
        command = [sys.executable, __file__, "--note", file.name, *options]
        while first < last:
            note[:NOTE] = b" " * NOTE
            code = ended([*command, "--range", str(first), str(last)], note)
            if code == 0:
                break
            text = note[:NOTE].decode().strip()
            deaths += 1
            print(f"died ({code}): {text}", flush=True)
            first = int(text.split()[0]) + 1 if text else last
    return deaths


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="", help="regular expression on the names of rows")
    parser.add_argument("--dtypes", default="", help="names with commas between")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--range", type=int, nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--note", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.note:
        with open(args.note, "r+b") as file, mmap.mmap(file.fileno(), 0) as note:
            try_rows(
                *args.range,
                re.compile(args.rows),
                args.dtypes.split(",") if args.dtypes else [],
                note,
            )
        return
    import torchlike

    count = len(torchlike._C._op_table())
    step = -(-count // (args.jobs * 8))
    options = ["--rows", args.rows, "--dtypes", args.dtypes]
    with ThreadPoolExecutor(args.jobs) as pool:
        ranges = [(k, min(k + step, count)) for k in range(0, count, step)]
        deaths = sum(pool.map(lambda r: watch(*r, options), ranges))
    print(f"{count} rows, {deaths} deaths")
    sys.exit(deaths > 0)


if __name__ == "__main__":
    main()
