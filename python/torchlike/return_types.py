"""Named tuples that ops return, made when first needed."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from torchlike import _naming

_classes: dict[str, type] = {}


def _repr(self: Any) -> str:
    fields = ",\n".join(f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
    return f"{_naming.shown}.return_types.{type(self).__name__}(\n{fields})"


def _class(name: str, fields: tuple[str, ...]) -> type:
    """The class of results of the op `name`."""
    made = _classes.get(name)
    if made is None:
        body: dict[str, Any] = {f: property(itemgetter(i)) for i, f in enumerate(fields)}
        body.update(
            __slots__=(), _fields=fields, __repr__=_repr, __module__=__name__, n_fields=len(fields)
        )
        body.update(n_sequence_fields=len(fields), n_unnamed_fields=0)
        body["__reduce__"] = lambda self: (_rebuild, (name, fields, tuple(self)))
        made = _classes[name] = type(name, (tuple,), body)
        globals()[name] = made
    return made


def _rebuild(name: str, fields: tuple[str, ...], values: tuple[Any, ...]) -> Any:
    return _class(name, fields)(values)
