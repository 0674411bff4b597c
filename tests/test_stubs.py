"""The stubs say everything that the extension module has."""

from __future__ import annotations

import ast
import types
from pathlib import Path

import pytest

import torchlike as torch
from torchlike import _C

PACKAGE = Path(torch.__file__).parent


def names(path: str, within: str | None = None) -> set[str]:
    """The names that a stub defines, at its top or in one of its classes."""
    body = ast.parse((PACKAGE / path).read_text()).body
    if within is not None:
        body = next(n for n in body if isinstance(n, ast.ClassDef) and n.name == within).body
    found = set()
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
    return found


def public(obj: object) -> set[str]:
    """The names of an object that every object does not have, but for modules of a package that were imported."""
    given = {"__module__", "__dict__", "__weakref__", "__all__", "__file__", "__loader__"}
    given |= {"__name__", "__package__", "__spec__", "__new__", "__getattr__", "__annotations__"}
    own = set(dir(obj)) - set(dir(object)) - given
    return {name for name in own if not isinstance(getattr(obj, name, None), types.ModuleType)}


def test_the_extension_module_is_said_whole():
    assert public(_C) <= names("_C.pyi")


@pytest.mark.parametrize("cls", [_C.Tensor, _C.UntypedStorage, _C.Generator, _C.device, _C.dtype])
def test_its_classes_are_said_whole(cls):
    said = names("_C.pyi", cls.__name__)
    if cls is _C.Tensor:
        said |= names("_functions.pyi", "TensorOps")
    assert {n for n in public(cls) if n not in ("__copy__", "__deepcopy__")} <= said


@pytest.mark.parametrize(
    ("module", "path"),
    [
        (torch.linalg, "linalg/__init__.pyi"),
        (torch.special, "special/__init__.pyi"),
        (torch.signal.windows, "signal/windows/__init__.pyi"),
        (torch.nn.functional, "nn/functional.pyi"),
    ],
)
def test_namespaces_are_said_whole(module, path):
    ours = {n for n in vars(module) if not n.startswith("_")}
    said = names(path) | set(torch.nn._compositions.__all__)
    assert ours <= said


def test_no_stub_has_a_name_for_everything():
    for path in PACKAGE.rglob("*.pyi"):
        assert "def __getattr__" not in path.read_text(), path
