"""Named tuples that ops return, made when first needed."""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from operator import itemgetter
from typing import Any

from torchlike import _naming

_classes: dict[str, type] = {}

#: Fields, and the operators whose results have them: a pickle names a class before any operator has made it.
_FIELDS = {
    "min max": "aminmax",
    "values indices": "cummax cummin kthvalue max median min mode nanmedian sort topk",
    "mantissa exponent": "frexp",
    "a tau": "geqrf",
    "hist bin_edges": "histogram histogramdd",
    "L info": "linalg_cholesky_ex",
    "eigenvalues eigenvectors": "linalg_eig linalg_eigh",
    "inverse info": "linalg_inv_ex",
    "LD pivots": "linalg_ldl_factor",
    "LD pivots info": "linalg_ldl_factor_ex",
    "solution residuals rank singular_values": "linalg_lstsq",
    "P L U": "linalg_lu lu_unpack",
    "LU pivots": "linalg_lu_factor",
    "LU pivots info": "linalg_lu_factor_ex",
    "Q R": "linalg_qr qr",
    "sign logabsdet": "linalg_slogdet slogdet",
    "result info": "linalg_solve_ex",
    "U S Vh": "linalg_svd",
    "U S V": "svd",
    "solution cloned_coefficient": "triangular_solve",
}


def _repr(self: Any) -> str:
    fields = ",\n".join(
        f"{name}={value!r}" for name, value in zip(fields_of(self), self, strict=True)
    )
    return f"{_naming.shown}.return_types.{type(self).__name__}(\n{fields})"


def _missing(self: Any, name: str) -> Any:
    kind = f"{_naming.shown}.return_types.{type(self).__name__}"
    raise AttributeError(f"'{kind}' object has no attribute '{name}'", name=name, obj=self)


def _class(name: str, fields: tuple[str, ...]) -> type:
    """The class of results of the op `name`."""
    made = _classes.get(name)
    if made is None:
        body: dict[str, Any] = {f: property(itemgetter(i)) for i, f in enumerate(fields)}
        # no `_fields`: these are no named tuples, which are made of their items one by one
        body.update(__slots__=(), __match_args__=fields, __repr__=_repr, __module__=__name__)
        body.update(n_fields=len(fields), n_sequence_fields=len(fields), n_unnamed_fields=0)
        body.update(__new__=_new, __getattr__=_missing)
        body["__reduce__"] = lambda self: (made, (tuple(self), {}))
        made = _classes[name] = type(name, (tuple,), body)
        globals()[name] = made
    return made


def _new(cls: Any, sequence: Any, dict: Any = None) -> Any:
    """A result of its items; the second argument, which pickles give, has the fields that are no items: none.

    Raises:
        TypeError: if there are more or fewer items than fields.
    """
    if type(sequence) is not tuple and not isinstance(sequence, Iterable):
        raise TypeError("constructor requires a sequence")
    made = tuple.__new__(cls, sequence)
    if len(made) == cls.n_fields and (dict is None or isinstance(dict, builtins.dict)):
        return made
    takes = f"{_naming.shown}.return_types.{cls.__name__}() takes a"
    if len(made) == cls.n_fields:
        raise TypeError(f"{takes} dict as second arg, if any")
    raise TypeError(f"{takes} {cls.n_fields}-sequence ({len(made)}-sequence given)")


def fields_of(result: Any) -> tuple[str, ...]:
    """The names of a result's items, or of those of its class; of other values, none."""
    kind = result if isinstance(result, type) else type(result)
    return kind.__match_args__ if _classes.get(kind.__name__) is kind else ()  # type: ignore[attr-defined]


def pytree_register_structseq(cls: Any) -> None:
    """Registers such a class as a node of trees; those of this module are known as it is."""
    from torchlike.utils._pytree import SequenceKey, register_pytree_node

    register_pytree_node(
        cls,
        lambda result: (list(result), None),
        lambda values, _: cls(values),
        flatten_with_keys_fn=lambda result: (
            [(SequenceKey(i), value) for i, value in enumerate(result)],
            None,
        ),
    )


def __getattr__(name: str) -> Any:
    base = name.removesuffix("_out")
    for fields, names in _FIELDS.items():
        if base in names.split():
            return _class(name, tuple(fields.split()))
    if name == "all_return_types":
        operators = sorted(name for names in _FIELDS.values() for name in names.split())
        every = [kind for name in operators for kind in (name, f"{name}_out")]
        return [__getattr__(kind) for kind in every if kind != "histogramdd_out"]
    raise AttributeError(f"module '{_naming.shown}.return_types' has no attribute '{name}'")
