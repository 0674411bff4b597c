"""Every public name occurs in a test: in the text of one, in the table of layers, or in the table of operators."""

from __future__ import annotations

import pathlib
import re
import types

import test_layer_table
import torchlike

HERE = pathlib.Path(__file__).parent


def words_of_tests() -> set[str]:
    """Words of the tests and the tutorial, layers of `test_layer_table.py`, and operators (`test_table.py`)."""
    texts = [*HERE.glob("*.py"), *(HERE.parent / "docs/tutorial").glob("*.md")]
    words = {w for t in texts for w in re.findall(r"\w+", t.read_text())}
    words |= {name for name, *_ in test_layer_table.LAYERS + test_layer_table.LOSSES}
    words |= {path.split("#")[0].split(".")[-1] for path, *_ in torchlike._C._op_table()}
    return words | {alias.split(".")[-1] for alias, _ in torchlike._C._op_aliases()}


def public(module: types.ModuleType, path: str, seen: set[str]) -> dict[str, str]:
    """Paths of the functions and classes that a module and those below it offer, with their last word."""
    if module.__name__ in seen:
        return {}
    seen.add(module.__name__)
    found: dict[str, str] = {}
    for name in getattr(module, "__all__", dir(module)):
        # Classes of results are made by the operators that return them.
        hidden = name.startswith("_") or name == "return_types"
        value = None if hidden else getattr(module, name, None)
        home = getattr(value, "__module__", None) or ""
        if isinstance(value, types.ModuleType):
            if value.__name__.startswith("torchlike."):
                found |= public(value, f"{path}.{name}", seen)
        elif callable(value) and home.startswith("torchlike"):
            found[f"{path}.{name}"] = name
    return found


def test_every_public_path_occurs_in_a_test() -> None:
    words = words_of_tests()
    paths = public(torchlike, "torchlike", set()).items()
    missing = [path for path, name in paths if not {name, name.rstrip("_")} & words]
    assert not missing, missing
