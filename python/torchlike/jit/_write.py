"""Writing archives of TorchScript: the code as it stands, the objects as a pickle, the tensors as a stream."""

from __future__ import annotations

import enum
import struct
from typing import TYPE_CHECKING, Any

import torchlike
from torchlike import _zip_writer
from torchlike.jit._module import ScriptFunction, ScriptModule, placeholder
from torchlike.jit._types import parts_of
from torchlike.jit._unit import Class, Instance

if TYPE_CHECKING:
    from torchlike.jit._unit import Unit

Tensor = torchlike.Tensor
_STORAGES = {
    torchlike.float32: "FloatStorage", torchlike.float64: "DoubleStorage", torchlike.float16: "HalfStorage",
    torchlike.bfloat16: "BFloat16Storage", torchlike.int64: "LongStorage", torchlike.int32: "IntStorage",
    torchlike.int16: "ShortStorage", torchlike.int8: "CharStorage", torchlike.uint8: "ByteStorage",
    torchlike.bool: "BoolStorage", torchlike.complex64: "ComplexFloatStorage",
    torchlike.complex128: "ComplexDoubleStorage",
}  # fmt: skip


class _Pickle:
    """The opcodes of a tree of objects. Tensors are noted, and their bytes come later."""

    def __init__(self, allow_meta: bool) -> None:
        self.out = bytearray(b"\x80\x02")
        self.allow_meta = allow_meta
        self.storages: dict[int, tuple[str, Any]] = {}
        self.memo: dict[int, int] = {}
        self.kept: list[Any] = []

    def value(self, value: Any, kind: str, path: str) -> None:
        """A value of a type."""
        out = self.out
        if value is None:
            out += b"N"
        elif value is True or value is False:
            out += b"\x88" if value else b"\x89"
        elif isinstance(value, enum.Enum):
            raise NotImplementedError(f"jit.save: {path!r} is a member of an enumeration")
        elif isinstance(value, int):
            out += self._integer(value)
        elif isinstance(value, float):
            out += b"G" + struct.pack(">d", value)
        elif isinstance(value, complex):
            self.name("builtins", "complex")
            out += (
                b"(G" + struct.pack(">d", value.real) + b"G" + struct.pack(">d", value.imag) + b"tR"
            )
        elif isinstance(value, str):
            data = value.encode()
            out += b"X" + struct.pack("<I", len(data)) + data
        elif isinstance(value, Tensor):
            self.tensor(value, path)
        elif isinstance(value, ScriptModule | Instance):
            self.object(value, path)
        elif isinstance(value, tuple):
            kinds = parts_of(kind) or [""] * len(value)
            out += b"("
            for i, (item, k) in enumerate(zip(value, kinds, strict=False)):
                self.value(item, k, f"{path}.{i}")
            out += b"t"
        elif isinstance(value, list | dict):
            self.container(value, kind, path)
        elif isinstance(value, torchlike.dtype):
            from torchlike.jit._functions import DTYPES

            self.value(next(n for n, d in DTYPES.items() if d == value), "int", path)
        elif isinstance(value, torchlike.device):
            self.reduce("torch", "device", lambda: self.value(str(value), "str", path))
        else:
            raise NotImplementedError(f"jit.save: {path!r} is a {type(value).__name__}")

    def _integer(self, value: int) -> bytes:
        if 0 <= value < 256:
            return b"K" + bytes([value])
        if -(1 << 31) <= value < 1 << 31:
            return b"J" + struct.pack("<i", value)
        return b"\x8a\x08" + struct.pack("<q", value)

    def reduce(self, module: str, name: str, arguments: Any) -> None:
        """A call of a name with one argument."""
        self.name(module, name)
        self.out += b"("
        arguments()
        self.out += b"tR"

    def name(self, module: str, name: str) -> None:
        """A name of a class or function."""
        self.out += b"c" + module.encode() + b"\n" + name.encode() + b"\n"

    def container(self, value: Any, kind: str, path: str) -> None:
        """A list or dictionary with its type."""
        out = self.out
        inner = parts_of(kind)
        self.name("torch.jit._pickle", "restore_type_tag")
        out += b"("
        if isinstance(value, dict):
            first, second = (inner + ["", ""])[:2]
            out += b"}("
            for key, item in value.items():
                self.value(key, first, f"{path}.{key}")
                self.value(item, second, f"{path}.{key}")
            out += b"u"
        else:
            out += b"]("
            for i, item in enumerate(value):
                self.value(item, inner[0] if inner else "", f"{path}.{i}")
            out += b"e"
        self.value(kind, "str", path)
        out += b"tR"

    def object(self, value: Any, path: str) -> None:
        """A module or object, once."""
        known = self.memo.get(id(value))
        if known is not None:
            self.out += b"j" + struct.pack("<I", known)
            return
        spec: Class = value._spec
        module, _, name = spec.name.rpartition(".")
        self.name(module, name)
        self.out += b")\x81"
        self.out += b"}("
        for attribute, kind in spec.attributes.items():
            if kind.startswith("Final["):
                continue
            self.value(attribute, "str", path)
            item = getattr(value, attribute, None)
            self.value(item, kind, f"{path}.{attribute}" if path else attribute)
        # PyTorch has the object only once it has all of its state.
        number = self.memo[id(value)] = len(self.memo)
        self.kept.append(value)
        self.out += b"ubr" + struct.pack("<I", number)

    def tensor(self, value: Any, path: str) -> None:
        """A tensor: its layout, and the number of its storage."""
        if value.layout is not torchlike.strided or value.dtype not in _STORAGES:
            raise NotImplementedError(
                f"jit.save: {path!r} is a tensor of {value.dtype}, {value.layout}"
            )
        if not self.allow_meta and not _zip_writer.has_values(value):
            raise RuntimeError(
                f"jit.save: {path!r} is on meta and nothing is known of its values: give it some "
                f"(torchlike.materialize, "
                "load_state_dict, or meta_init() around its construction), or write it empty with allow_meta=True"
            )
        plain = value.detach().resolve_conj().resolve_neg()
        storage = plain.untyped_storage()
        number, _ = self.storages.setdefault(storage._cdata, (str(len(self.storages)), plain))
        count = storage.nbytes() // plain.element_size()
        device = "meta" if plain.is_meta and not _zip_writer.has_values(plain) else "cpu"
        self.name("torch._utils", "_rebuild_tensor_v2")
        self.out += b"(("
        self.value("storage", "str", path)
        self.name("torch", _STORAGES[plain.dtype])
        for text in (number, device):
            self.value(text, "str", path)
        self.value(count, "int", path)
        self.out += b"tQ"
        self.value(plain.storage_offset(), "int", path)
        self.value(tuple(plain.shape), "", path)
        self.value(tuple(plain.stride()), "", path)
        self.value(bool(value.requires_grad), "bool", path)
        self.name("collections", "OrderedDict")
        self.out += b")RtR"


def _module_of(obj: Any) -> tuple[ScriptModule, Unit]:
    if isinstance(obj, ScriptModule):
        return obj, obj._unit
    if isinstance(obj, ScriptFunction):
        module = placeholder(obj)
        return module, module._unit
    raise TypeError(
        f"jit.save: expected what jit.script, jit.trace or jit.load gives, got {type(obj).__name__}"
    )


def save(
    m: Any, f: Any, _extra_files: dict[str, Any] | None = None, *, allow_meta: bool = False
) -> None:
    """Writes a module or function of TorchScript to a path or a binary file, for `jit.load` here and
    `torch.jit.load` there.

    Tensors on meta that have a source are streamed from it: a path needs memory for the largest one. One without is an
    error that names it, unless `allow_meta=True` writes it as PyTorch does, without its bytes. A path gets the
    whole file or
    keeps what it had. `_extra_files` are written beside the code, by name.
    """
    module, unit = _module_of(m)
    objects, constants = _Pickle(allow_meta), _Pickle(allow_meta)
    objects.object(module, "")
    objects.out += b"."
    constants.value(tuple(unit.constants), "", "CONSTANTS")
    constants.out += b"."
    with _zip_writer.writing(f) as archive:
        archive.text("data.pkl", bytes(objects.out))
        archive.text("byteorder", "little")
        for folder, tree in (("data", objects), ("constants", constants)):
            for number, tensor in tree.storages.values():
                if _zip_writer.has_values(tensor):
                    archive.bytes(f"{folder}/{number}", _zip_writer.whole(tensor))
                else:
                    archive.text(f"{folder}/{number}", b"")
        for prefix, text in unit.texts.items():
            archive.text(f"code/{prefix.replace('.', '/')}.py", text)
        for name, data in (_extra_files or {}).items():
            archive.text(f"extra/{name}", data)
        archive.text("constants.pkl", bytes(constants.out))
        archive.text("version", "10\n")
        archive.text(".data/serialization_id", "0")
