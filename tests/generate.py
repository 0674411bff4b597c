"""Writes what is derived from the op table: the stubs of its functions and `docs/ops.md`.

`python tests/generate.py` writes the files; with `--check` it only says whether they are as they should be.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from torchlike import _C
from torchlike.nn import _compositions

ROOT = Path(__file__).resolve().parent.parent
FUNCTION, METHOD, INPLACE, OUT, INPLACE_FUNCTION = 1, 2, 4, 8, 256

TYPES = {
    "Tensor": "Tensor",
    "Operand": "Tensor | Number",
    "Tensor[]": "Sequence[Tensor]",
    "Tensor[*]": "Sequence[Tensor] | Tensor",
    "Tensor?[]": "Sequence[Tensor | None]",
    "int": "builtins.int",
    "int[]": "Sequence[builtins.int]",
    "int[*]": "Sequence[builtins.int]",
    "float": "builtins.float",
    "float[]": "Sequence[builtins.float]",
    "bool": "builtins.bool",
    "bool[]": "Sequence[builtins.bool]",
    "Scalar": "Number",
    "Scalar[]": "Sequence[Number]",
    "str": "str",
    "dtype": "_dtype | type",
    "device": "_device | str | builtins.int",
    "layout": "_layout",
    "format": "_memory_format",
    "Generator": "Generator",
}
RETURNS = {
    "bool": "builtins.bool",
    "int": "builtins.int",
    "Scalar": "Number",
    "Size": "tuple[builtins.int, ...]",
    "Tensor[]": "tuple[Tensor, ...]",
}
KEYWORDS = {"from", "in", "is", "lambda", "global", "with", "as"}


_FUNCTIONAL = """from torchlike.nn import grad as grad
from torchlike.nn._compositions import *
from torchlike.overrides import handle_torch_function as handle_torch_function
from torchlike.overrides import has_torch_function as has_torch_function
from torchlike.overrides import has_torch_function_unary as has_torch_function_unary
from torchlike.overrides import has_torch_function_variadic as has_torch_function_variadic"""

# Stubs of the modules below the root: the namespace in the table, and what else the module has.
NAMESPACES = {
    "_optim.pyi": ("_optim",),
    "linalg/__init__.pyi": ("linalg", "from torchlike._C import _LinAlgError as LinAlgError"),
    "nn/functional.pyi": ("nn.functional", _FUNCTIONAL),
    "signal/windows/__init__.pyi": ("signal.windows",),
    "special/__init__.pyi": ("special",),
    "fft/__init__.pyi": ("fft",),
}


def split(text: str) -> list[str]:
    """Splits at commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "[(") - (c in "])")
        if c == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    parts.append(text[start:].strip())
    return [p for p in parts if p]


def annotation(kind: str) -> str:
    """The Python type of a schema kind."""
    optional = kind.endswith("?") and kind != "Tensor?[]"
    base = kind.removesuffix("?") if optional else kind
    text = TYPES.get(base) or "builtins.int | Sequence[builtins.int]"  # int[2] and the like
    return f"{text} | None" if optional else text


def parameters(schema: str, method: bool) -> tuple[list[str], str]:
    """The parameters as stub text, and the return annotation."""
    args, _, returns = schema.removeprefix("(").rpartition(") -> ")
    if not args and returns:
        args, returns = schema.removeprefix("(").removesuffix(")"), "Tensor"
    out: list[str] = []
    for i, part in enumerate(split(args)):
        if part == "*":
            out.append("*")
            continue
        kind, _, rest = part.partition(" ")
        name, _, default = rest.partition("=")
        if i == 0 and method:
            out.append("self")
            continue
        name = "input" if name == "self" else name
        if name in KEYWORDS:
            name += "_"
        out.append(f"{name}: {annotation(kind)}" + (" = ..." if default else ""))
    if not returns or returns == "Tensor":
        result = "Tensor"
    elif returns.startswith("("):
        result = "tuple[" + ", ".join("Tensor" for _ in split(returns.strip("()"))) + "]"
    else:
        result = RETURNS.get(returns, "Any")
    return order_defaults(out), result


def with_varargs(signature: str) -> list[str]:
    """A size may also be given as separate integers: a second signature says so."""
    found = re.search(r"(\w+): Sequence\[builtins\.int\](?=[,)])", signature)
    if not found or "(*" in signature or "*, " in signature[: found.start()]:
        return [signature]
    rest = signature[found.end() :].replace(", *,", ",", 1)
    return [signature, signature[: found.start()] + f"*{found[1]}: builtins.int" + rest]


def order_defaults(params: list[str]) -> list[str]:
    """A parameter without default after one with default gets one too: the core checks what is missing."""
    seen = star = False
    fixed = []
    for p in params:
        star |= p == "*"
        if " = ..." in p:
            seen = True
        elif seen and not star and p != "self":
            p += " = ..."
        fixed.append(p)
    return fixed


def table() -> list[tuple[str, str, str, int, str]]:
    """Rows (module, name, schema, forms, sentence), aliases included."""
    rows = []
    for full, schema, forms, doc in _C._op_table():
        module, _, name = full.partition("#")[0].rpartition(".")
        rows.append((module, name, schema, forms, doc))
    by_path: dict[str, list[tuple[str, int, str]]] = {}
    for module, name, schema, forms, doc in rows:
        by_path.setdefault(f"{module}.{name}".lstrip("."), []).append((schema, forms, doc))
    for alias, target in _C._op_aliases():
        module, _, name = alias.rpartition(".")
        # Below the module, other names are those of functions alone.
        kept = FUNCTION | OUT if module else -1
        rows += [(module, name, s, forms & kept, doc) for s, forms, doc in by_path[target]]
    return rows


def functions(namespace: str) -> dict[str, list[str]]:
    """The signatures of a module's functions, by name."""
    found: dict[str, list[str]] = {}
    for module, name, schema, forms, _ in table():
        if module != namespace or not forms & FUNCTION:
            continue
        params, result = parameters(schema, method=False)
        if forms & INPLACE_FUNCTION:
            found.setdefault(f"{name}_", []).append(f"({', '.join(params)}) -> {result}: ...")
        if forms & OUT:
            star = [] if "*" in params else ["*"]
            params = [*params, *star, "out: Tensor | Sequence[Tensor] | None = ..."]
        found.setdefault(name, []).append(f"({', '.join(params)}) -> {result}: ...")
    return found


def methods() -> dict[str, list[str]]:
    """The signatures of the methods of Tensor, by name."""
    found: dict[str, list[str]] = {}
    for _, name, schema, forms, _ in table():
        for flag, method_name in ((METHOD, name), (INPLACE, f"{name}_")):
            if forms & flag:
                params, result = parameters(schema, method=True)
                found.setdefault(method_name, []).append(f"({', '.join(params)}) -> {result}: ...")
    return found


def header(*imports: str) -> list[str]:
    """The first lines of a stub, with what its own imports are."""
    return [
        "# Generated by tests/generate.py from the op table; do not edit.",
        "# fmt: off",
        "# ruff: noqa",
        '# mypy: disable-error-code="overload-cannot-match, overload-overlap, misc"',
        "import builtins",
        "from collections.abc import Sequence",
        "from typing import Any, overload",
        "",
        *imports,
        "from torchlike._C import Generator, Tensor",
        "from torchlike._C import device as _device",
        "from torchlike._C import dtype as _dtype",
        "from torchlike._C import layout as _layout",
        "from torchlike._C import memory_format as _memory_format",
        "",
    ]


def root_stub() -> str:
    """The stub of all root functions and of the methods of Tensor."""
    lines = header()
    lines += ["Number = builtins.bool | builtins.int | builtins.float | builtins.complex", ""]
    lines += definitions(functions(""), "")
    lines += ["", "class TensorOps:"]
    lines += definitions(methods(), "    ")
    return "\n".join(lines) + "\n"


def namespace_stub(namespace: str, *imports: str) -> str:
    """The stub of a module whose functions are all in the table, apart from what it imports."""
    lines = header(*imports)
    lines.insert(-1, "from torchlike._functions import Number")
    found = functions(namespace)
    if namespace == "nn.functional":
        found = {name: said for name, said in found.items() if name not in _compositions.__all__}
    return "\n".join(lines + definitions(found, "")) + "\n"


def definitions(found: dict[str, list[str]], indent: str) -> list[str]:
    """`def` lines, with `@overload` where there are several."""
    lines = []
    for name in sorted(found):
        signatures = list(dict.fromkeys(v for s in found[name] for v in with_varargs(s)))
        for signature in signatures:
            if len(signatures) > 1:
                lines.append(f"{indent}@overload")
            lines.append(f"{indent}def {name}{signature}")
    return lines


def page() -> str:
    """The docs page: one line a public name and overload."""
    lines = [
        "# Operators",
        "",
        "Generated by `make bless` from the op table. Forms: **f**unction, **m**ethod, **i**n-place, **o**ut.",
        "",
        "| name | forms | signature | |",
        "|---|---|---|---|",
    ]
    rows = sorted(
        {
            (f"{m}.{n}".lstrip("."), s, f, d)
            for m, n, s, f, d in table()
            if f and not n.startswith("_")
        }
    )
    for path, schema, forms, doc in rows:
        letters = "".join(c for c, bit in zip("fmio", (1, 2, 4, 8), strict=True) if forms & bit)
        lines.append(f"| `{path}` | {letters} | `{schema.replace('|', '/')}` | {doc} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Writes or checks the files."""
    python = ROOT / "python/torchlike"
    files = {python / path: namespace_stub(*about) for path, about in NAMESPACES.items()}
    files |= {python / "_functions.pyi": root_stub(), ROOT / "docs/ops.md": page()}
    stale = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is stale: run `make bless`")
        return 1 if stale else 0
    for path in stale:
        path.write_text(files[path])
        print(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
