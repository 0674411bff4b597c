"""Reading archives of TorchScript: the tree of objects is data, the code is parsed, and neither is run."""

from __future__ import annotations

import io
import os
import zipfile
from typing import Any

from torchlike import _C
from torchlike._opaque import Opaque
from torchlike._rebuild_builders import OpaqueBuilder
from torchlike.jit._errors import CompilationUnitError
from torchlike.jit._grammar import MAX_TEXT
from torchlike.jit._module import RecursiveScriptModule
from torchlike.jit._unit import Class, Instance, Unit, named_tuple
from torchlike.serialization import _source

_TOTAL = 256 << 20
"""Bytes of all files of code together."""


class _Objects(dict[str, Any]):
    """The names that the tree of an archive may call: containers with types, and the archive's own classes."""

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (
            isinstance(name, str) and name.startswith("__torch__.")
        )

    def __missing__(self, name: str) -> Any:
        if not name.startswith("__torch__."):
            raise KeyError(name)
        return OpaqueBuilder("__torch__", name)


def _typed(value: Any, kind: Any) -> Any:
    return value


def _plain_list(value: Any) -> Any:
    return list(value)


_CALLS = _Objects(
    {
        "torch.jit._pickle.restore_type_tag": _typed,
        "torch.jit._pickle.build_intlist": _plain_list,
        "torch.jit._pickle.build_doublelist": _plain_list,
        "torch.jit._pickle.build_boollist": _plain_list,
        "torch.jit._pickle.build_tensorlist": _plain_list,
        "torch.jit._pickle.restore_type_tag_": _typed,
    }
)


class _Code:
    """The files of code of an archive, read when they are asked for."""

    def __init__(self, archive: zipfile.ZipFile, root: str) -> None:
        self.texts: dict[str, str] = {}
        total = 0
        for info in archive.infolist():
            name = info.filename
            if not (name.startswith(f"{root}/code/") and name.endswith(".py")):
                continue
            total += info.file_size
            if info.file_size > MAX_TEXT or total > _TOTAL:
                raise CompilationUnitError(f"the code of the archive is too large: {name!r}")
            with archive.open(info) as file:
                data = file.read(MAX_TEXT + 1)
            if len(data) > MAX_TEXT:
                raise CompilationUnitError(f"the code of the archive is too large: {name!r}")
            prefix = name[len(root) + 6 : -3].replace("/", ".")
            try:
                self.texts[prefix] = data.decode()
            except UnicodeDecodeError as e:
                raise CompilationUnitError(f"{name!r} is no text: {e}") from None


class _Builder:
    """Makes modules and objects of what the tree holds."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.made: dict[int, Any] = {}

    def value(self, value: Any) -> Any:
        """A value of the tree with modules and objects in place of what stands for them."""
        if isinstance(value, Opaque):
            known = self.made.get(id(value))
            return self.object(value) if known is None else known
        if isinstance(value, list):
            if id(value) not in self.made:
                items: list[Any] = []
                self.made[id(value)] = items
                items.extend(self.value(v) for v in value)
            return self.made[id(value)]
        if isinstance(value, tuple):
            return tuple(self.value(v) for v in value)
        if isinstance(value, dict):
            if id(value) not in self.made:
                pairs: dict[Any, Any] = {}
                self.made[id(value)] = pairs
                pairs.update((self.value(k), self.value(v)) for k, v in value.items())
            return self.made[id(value)]
        return value

    def object(self, value: Opaque) -> Any:
        """A module, tuple, member or object of a class of the archive."""
        if value.module != "__torch__":
            raise CompilationUnitError(
                f"the archive holds an object of {value.module}.{value.name}"
            )
        spec = self.unit.get_class(value.name)
        if spec.kind == "NamedTuple":
            return named_tuple(spec)(*(self.value(a) for a in value.args))
        if spec.kind == "Enum":
            return self.member(spec, value)
        state = value.state
        if state is not None and not isinstance(state, dict):
            raise CompilationUnitError(f"the state of {value.name} is no dictionary")
        if spec.kind == "Module" or (not spec.kind and "__parameters__" in spec.text):
            module = RecursiveScriptModule(spec, self.unit)
            self.made[id(value)] = module
            module._fill({str(k): self.value(v) for k, v in (state or {}).items()})
            return module
        made = Instance(spec)
        self.made[id(value)] = made
        made.__dict__.update(
            (str(k), self.value(v))
            for k, v in (state or {}).items()
            if not str(k).startswith("_spec")
        )
        return made

    def member(self, spec: Class, value: Opaque) -> Any:
        """A member of an enumeration, by its value."""
        for name in spec.constants:
            member = self.unit.member(spec, name)
            if value.args and member.value == value.args[0]:
                return member
        raise CompilationUnitError(f"{spec.name} has no such member")


def load(
    f: Any,
    map_location: Any = None,
    _extra_files: dict[str, Any] | None = None,
    _restore_shapes: bool = False,
) -> RecursiveScriptModule:
    """Reads an archive that `torch.jit.save` or `jit.save` wrote, from a path, bytes or a file.

    With `map_location="meta"` only the tree and the code are read: each tensor knows its bytes in the file, and
    `torchlike.materialize` reads them. The code is parsed, checked and interpreted; nothing in an archive is executed.
    `_extra_files` is a dictionary whose values are set to the contents of the files of these names.

    Raises:
        CompilationUnitError: if the code is damaged, too large, or holds what TorchScript has not.
        RuntimeError: if the file is no archive of TorchScript.
    """
    if isinstance(f, str | os.PathLike):
        if not os.path.exists(f):
            raise ValueError(f"The provided filename {f} does not exist")
        if os.path.isdir(f):
            raise ValueError(f"The provided filename {f} is a directory")
    file, _, is_path = _source(f)
    made, _ = _C._load(file, map_location, False, None, _CALLS, 0, False, script=True)
    tree, constants = made
    with zipfile.ZipFile(file if is_path else io.BytesIO(file)) as archive:
        root = archive.namelist()[0].partition("/")[0]
        code = _Code(archive, root)
        if _extra_files is not None:
            _read_extra(archive, root, _extra_files)
    unit = Unit(code.texts, [])
    builder = _Builder(unit)
    unit.constants = [
        builder.value(c) for c in (constants if isinstance(constants, list | tuple) else [])
    ]
    module = builder.value(tree)
    if not isinstance(module, RecursiveScriptModule):
        raise CompilationUnitError("the archive holds no module")
    return module


def _read_extra(archive: zipfile.ZipFile, root: str, wanted: dict[str, Any]) -> None:
    names = set(archive.namelist())
    for name in wanted:
        if f"{root}/extra/{name}" in names:
            info = archive.getinfo(f"{root}/extra/{name}")
            if info.file_size > _TOTAL:
                raise RuntimeError(f"jit.load: the extra file {name!r} is too large")
            wanted[name] = archive.read(info)
