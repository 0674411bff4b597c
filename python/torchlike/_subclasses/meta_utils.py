"""Tensors on meta that stand for others: views, ties, strides and flags as they are, and no elements.

A twin knows where its elements are: `torchlike.materialize(twin)` copies them from the original.
"""

from __future__ import annotations

from typing import Any

import torchlike as torch
from torchlike import _C

__all__ = ["Converter", "MetaConverter", "assert_metadata_eq"]


_ROWS, _COLUMNS = ("crow_indices", "col_indices"), ("ccol_indices", "row_indices")
_COMPRESSED = {
    torch.sparse_csr: _ROWS,
    torch.sparse_bsr: _ROWS,
    torch.sparse_csc: _COLUMNS,
    torch.sparse_bsc: _COLUMNS,
}


class Converter:
    """Makes tensors without elements that stand for others, always the same for the same.

    Args:
        core: the core's side of a fake mode; None for twins on meta.
    """

    def __init__(self, core: Any = None, twins: Any = None) -> None:
        self._core = core
        self.twins = _C._Twins(core) if twins is None else twins

    def convert(self, t: Any) -> Any:
        """The tensor that stands for `t`.

        Raises:
            TypeError: for what is no tensor.
        """
        if not isinstance(t, _C.Tensor):
            raise TypeError(f"cannot create weak reference to '{type(t).__name__}' object")
        converted = getattr(type(t), "_converted", None)
        if converted is not None:
            return converted(t, self.convert)
        made = self.twins.of(t)
        if made is None:
            made = self._with_history(t)
            self.twins.remember(t, made)
        if self._core is not None and isinstance(t, torch.nn.Buffer):
            made._is_buffer = True
        return made

    def _with_history(self, t: Any) -> Any:
        """A result that wants a gradient: a result of a leaf of its own."""
        from torchlike._subclasses.fake_tensor import UnsupportedFakeTensorException

        if t.layout is torch.sparse_coo and self._core is None:
            # As large, with nothing in it.
            n = t.sparse_dim()
            made = torch.sparse_coo_tensor(
                torch.empty(n, 0, dtype=torch.int64, device="meta"),
                torch.empty(0, *t.shape[n:], dtype=t.dtype, device="meta"),
                t.shape,
                device="meta",
                is_coalesced=t.is_coalesced(),
            )
            return made.requires_grad_(t.requires_grad)
        if t.layout in _COMPRESSED and self._core is None:
            outer, inner = (self.convert(getattr(t, name)()) for name in _COMPRESSED[t.layout])
            values = self.convert(t.values().detach())
            made = torch.sparse_compressed_tensor(
                outer, inner, values, t.shape, dtype=t.dtype, layout=t.layout, device="meta"
            )
            return made.requires_grad_(t.requires_grad)
        if t.is_quantized or t.layout is not torch.strided:
            kind = "quantized" if t.is_quantized else str(t.layout)
            raise UnsupportedFakeTensorException(
                f"no tensor without elements stands for a {kind} one yet"
            )
        with torch.enable_grad():
            if t._base is not None:
                base = self.convert(t._base)
                return base.as_strided(t.shape, t.stride(), t.storage_offset())
            return self.twins.of(t.detach()).requires_grad_().clone()


_OPTIONS = frozenset(("callback", "source", "symbolic_context", "trace"))


class MetaConverter(_C._Twins):
    """Makes meta tensors that stand for others: `MetaConverter()(t)` is the twin of `t`; what is no tensor stays
    what it is. `hit` counts tensors, `miss` those without a twin.

    Tensors on one storage give tensors on one storage; the same tensor gives the same twin as long as that lives. The
    options of PyTorch's (`callback`, `source`, `symbolic_context`, `trace`) change nothing here.
    """

    miss = 0

    def __init__(self, *, copy_data: bool = False) -> None:
        if copy_data:
            raise NotImplementedError(
                "MetaConverter(copy_data=True): a twin gets its elements by torchlike.materialize()"
            )

    def _check(self, shape_env: Any, options: dict[str, Any] | None) -> None:
        """Refuses options that are none, and symbolic sizes."""
        if not getattr(shape_env, "assume_static_by_default", shape_env is None):
            raise NotImplementedError("MetaConverter(shape_env=): sizes are numbers here")
        unknown = [name for name in options or () if name not in _OPTIONS]
        if unknown:
            raise TypeError(f"__call__() got an unexpected keyword argument '{unknown[0]}'")

    def _convert(self, t: Any) -> Any:
        """The twin of a tensor that is more than a strided one."""
        return Converter(twins=self).convert(t)

    def successful(self) -> bool:
        """True if tensors were converted, and nothing else was asked for."""
        return self.hit > 0 and self.miss == 0


def assert_metadata_eq(assert_eq: Any, m1: Any, m2: Any, *, skip_symbolic: bool = False) -> None:
    """Compares what two tensors look like with a function of two values that raises if they differ."""
    for name in ("dtype", "shape", "requires_grad", "is_leaf", "layout", "device"):
        if name != "device":
            assert_eq(getattr(m1, name), getattr(m2, name))
    assert_eq(m1.is_conj(), m2.is_conj())
    assert_eq(m1.is_neg(), m2.is_neg())
    if m1.layout is torch.strided:
        assert_eq(m1.stride(), m2.stride())
        assert_eq(m1.storage_offset(), m2.storage_offset())
