"""FLOPs by module and operator, as PyTorch counts them: a multiplication and an addition are two."""

from __future__ import annotations

import functools
from collections import defaultdict
from math import prod
from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike import _C
from torchlike.utils._python_dispatch import TorchDispatchMode
from torchlike.utils._pytree import tree_map
from torchlike.utils.module_tracker import ModuleTracker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["FlopCounterMode", "flop_registry", "register_flop_formula"]

Shape = Any

aten: Any = torch.ops.aten

flop_registry: dict[Any, Callable[..., int]] = {}
"""What counts the FLOPs of an operator, by operator."""


def _shape(value: Any) -> Any:
    return value.shape if isinstance(value, _C.Tensor) else value


def _known(*names: str) -> list[Any]:
    """Those of these operators that there are."""
    return [op for op in (getattr(aten, name, None) for name in names) if op is not None]


def _by_shape(formula: Callable[..., int]) -> Callable[..., int]:
    """A formula of shapes as one of tensors."""

    @functools.wraps(formula)
    def of_values(*args: Any, out_val: Any = None, **kwargs: Any) -> int:
        args, kwargs, out = tree_map(_shape, (args, kwargs, out_val))
        return formula(*args, out_shape=out, **kwargs)

    return of_values


def register_flop_formula(targets: Any, get_raw: bool = False) -> Callable[[Any], Any]:
    """A decorator: the function counts the FLOPs of operators.

    Args:
        targets: an operator of `torchlike.ops`, or a list of them.
        get_raw: the function takes the operator's arguments, and the result as `out_val`; else shapes in place of
            tensors, and `out_shape`.

    Raises:
        ValueError: if a target is no operator.
        RuntimeError: if an operator has a formula already.
    """

    def register(formula: Callable[..., int]) -> Callable[..., int]:
        counting = formula if get_raw else _by_shape(formula)
        for target in targets if isinstance(targets, (list, tuple)) else [targets]:
            if not isinstance(target, type(aten.mm)):
                raise ValueError(
                    f"register_flop_formula(targets): expected each target to be OpOverloadPacket (i.e. "
                    f"torch.ops.mylib.foo), got {target} which is of type {type(target)}"
                )
            if target in flop_registry:
                raise RuntimeError(f"duplicate registrations for {target}")
            flop_registry[target] = counting
        return formula

    return register


@register_flop_formula(aten.mm)
def mm_flop(a_shape: Shape, b_shape: Shape, *args: Any, out_shape: Any = None, **kw: Any) -> int:
    """[m, k] times [k, n]: 2 m n k."""
    m, k = a_shape
    _, n = b_shape
    return m * n * 2 * k


@register_flop_formula(aten.addmm)
def addmm_flop(
    self_shape: Shape, a_shape: Shape, b_shape: Shape, out_shape: Any = None, **kw: Any
) -> int:
    """As `mm`; the addition is not counted."""
    return mm_flop(a_shape, b_shape)


@register_flop_formula(aten.bmm)
def bmm_flop(a_shape: Shape, b_shape: Shape, out_shape: Any = None, **kw: Any) -> int:
    """[b, m, k] times [b, k, n]: 2 b m n k."""
    b, m, k = a_shape
    _, _, n = b_shape
    return b * m * n * 2 * k


@register_flop_formula(aten.baddbmm)
def baddbmm_flop(
    self_shape: Shape, a_shape: Shape, b_shape: Shape, out_shape: Any = None, **kw: Any
) -> int:
    """As `bmm`; the addition is not counted."""
    return bmm_flop(a_shape, b_shape)


def conv_flop_count(
    x_shape: Shape, w_shape: Shape, out_shape: Shape, transposed: bool = False
) -> int:
    """A product for each position of the result, or of the input if transposed."""
    positions = (x_shape if transposed else out_shape)[2:]
    c_out, c_in, *window = w_shape
    return prod(positions) * prod(window) * x_shape[0] * c_out * c_in * 2


@register_flop_formula(_known("convolution", "_convolution"))
def conv_flop(
    x_shape: Shape, w_shape: Shape, _bias: Any, _stride: Any, _padding: Any, _dilation: Any, transposed: bool,
    *args: Any, out_shape: Any = None, **kwargs: Any,
) -> int:  # fmt: skip
    """FLOPs of a convolution; those of the bias are not counted."""
    return conv_flop_count(x_shape, w_shape, out_shape, transposed)


@register_flop_formula(aten.convolution_backward)
def conv_backward_flop(
    grad_out_shape: Shape, x_shape: Shape, w_shape: Shape, _bias: Any, _stride: Any, _padding: Any, _dilation: Any,
    transposed: bool, _output_padding: Any, _groups: int, output_mask: Sequence[bool], out_shape: Any,
) -> int:  # fmt: skip
    """FLOPs of the gradients that are asked for: of the input a convolution back, of the weight one over examples."""

    def swapped(shape: Shape) -> list[int]:
        return [shape[1], shape[0], *shape[2:]]

    count = 0
    if output_mask[0]:
        count += conv_flop_count(grad_out_shape, w_shape, out_shape[0], not transposed)
    if output_mask[1]:
        first, second = (grad_out_shape, x_shape) if transposed else (x_shape, grad_out_shape)
        count += conv_flop_count(swapped(first), swapped(second), swapped(out_shape[1]), False)
    return count


def sdpa_flop_count(query_shape: Shape, key_shape: Shape, value_shape: Shape) -> int:
    """Scores, and their product with the values."""
    b, h, q, d = query_shape
    k, v = key_shape[2], value_shape[3]
    return bmm_flop((b * h, q, d), (b * h, d, k)) + bmm_flop((b * h, q, k), (b * h, k, v))


@register_flop_formula(
    _known(
        "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_cudnn_attention",
    )
)
def sdpa_flop(
    query_shape: Shape,
    key_shape: Shape,
    value_shape: Shape,
    *args: Any,
    out_shape: Any = None,
    **kw: Any,
) -> int:
    """FLOPs of attention, all positions counted whatever the mask."""
    return sdpa_flop_count(query_shape, key_shape, value_shape)


def sdpa_backward_flop_count(
    grad_out_shape: Shape, query_shape: Shape, key_shape: Shape, value_shape: Shape
) -> int:
    """The scores again, and the gradients of scores, values, queries and keys."""
    b, h, q, d = query_shape
    k, v = key_shape[2], value_shape[3]
    n = b * h
    return (
        bmm_flop((n, q, d), (n, d, k))
        + bmm_flop((n, q, v), (n, v, k))
        + bmm_flop((n, k, q), (n, q, v))
        + bmm_flop((n, q, k), (n, k, d))
        + bmm_flop((n, d, q), (n, q, k))
    )


@register_flop_formula(
    _known(
        "_scaled_dot_product_efficient_attention_backward",
        "_scaled_dot_product_flash_attention_backward",
        "_scaled_dot_product_cudnn_attention_backward",
    )
)
def sdpa_backward_flop(
    grad_out_shape: Shape, query_shape: Shape, key_shape: Shape, value_shape: Shape, *args: Any, out_shape: Any = None,
    **kwargs: Any,
) -> int:  # fmt: skip
    """FLOPs of attention's backward pass."""
    return sdpa_backward_flop_count(grad_out_shape, query_shape, key_shape, value_shape)


_SUFFIXES = ("", "K", "M", "B", "T")


def _suffix_for(number: int) -> int:
    """Which suffix a table has for a total: numbers of up to four digits have none, of up to seven `K`, and so on."""
    return max(0, min(len(_SUFFIXES) - 1, (len(str(number)) - 2) // 3))


def _shown(number: int, suffix: int) -> str:
    """A number in thousands, millions ...; without a suffix no digits are shown that say nothing."""
    scaled = number / 1000**suffix
    return f"{scaled:.3f}{_SUFFIXES[suffix]}" if suffix else f"{scaled:g}"


def _lines(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A table: the first column to the left, the others to the right, two more characters than its title at least."""
    widths = [max([len(h) + 2, *(len(r[i]) for r in rows)]) for i, h in enumerate(head)]

    def line(cells: tuple[str, ...]) -> str:
        rest = [c.rjust(w) for c, w in zip(cells[1:], widths[1:], strict=True)]
        return "  ".join([cells[0].ljust(widths[0]), *rest])

    return "\n".join([line(head), "  ".join("-" * w for w in widths), *map(line, rows)])


class FlopCounterMode:
    """Counts the FLOPs of all operators that run inside, by module and operator; works on every device, meta too.

    Args:
        mods: not used; modules are followed by themselves.
        depth: how deep the table goes.
        display: print the table at the end.
        custom_mapping: formulas for operators, beside `flop_registry` or in place of it.

    >>> with FlopCounterMode(display=False) as counter:
    ...     model(x).sum().backward()
    >>> counter.get_total_flops()
    """

    def __init__(
        self,
        mods: Any = None,
        depth: int = 2,
        display: bool = True,
        custom_mapping: dict[Any, Any] | None = None,
    ) -> None:
        if mods is not None:
            import warnings

            warnings.warn(
                "mods argument is not needed anymore, you can stop passing it", stacklevel=2
            )
        self.flop_counts: dict[str, dict[Any, int]] = defaultdict(lambda: defaultdict(int))
        self.depth, self.display = depth, display
        given = (custom_mapping or {}).items()
        own = {op: f if getattr(f, "_get_raw", False) else _by_shape(f) for op, f in given}
        self.flop_registry = {**flop_registry, **own}
        self.mod_tracker = ModuleTracker()
        self.mode: _Mode | None = None

    def get_total_flops(self) -> int:
        """All of them."""
        return sum(self.flop_counts["Global"].values())

    def get_flop_counts(self) -> dict[str, dict[Any, int]]:
        """FLOPs by operator, by the name of the module; "Global" has all."""
        return {name: dict(counts) for name, counts in self.flop_counts.items()}

    def get_table(self, depth: int | None = None) -> str:
        """A table of modules down to a depth, their FLOPs, and the part of the total that these are."""
        depth = self.depth if depth is None else depth
        total = self.get_total_flops()
        suffix = _suffix_for(total)

        def row(label: str, count: int) -> tuple[str, ...]:
            return label, _shown(count, suffix), f"{count / total:.2%}" if total else "0%"

        def of(name: str, indent: str) -> list[tuple[str, ...]]:
            counts = self.flop_counts[name]
            rows = [row(f"{indent} - {op}", n) for op, n in counts.items()]
            return [row(indent + name, sum(counts.values())), *rows]

        names = sorted(name for name in self.flop_counts if name != "Global")
        names = [n for n in names if depth is None or n.count(".") < depth]
        # a module that all of it belongs to stands for the whole
        whole = any(sum(self.flop_counts[n].values()) >= total for n in names)
        apart = "Global" in self.flop_counts and not whole
        rows = of("Global", "") if apart else []
        for name in names:
            rows += of(name, " " * (name.count(".") + apart))
        return _lines(("Module", "FLOP", "% Total"), rows or [("Global", "0", "0%")])

    def __enter__(self) -> FlopCounterMode:
        self.flop_counts.clear()
        self.mod_tracker.__enter__()
        self.mode = _Mode(self)
        self.mode.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        if self.mode is not None:
            self.mode.__exit__(*exc)
            self.mode = None
        self.mod_tracker.__exit__()
        if self.display:
            print(self.get_table(self.depth))

    def _count(self, func: Any, out: Any, args: Any, kwargs: Any) -> None:
        formula = self.flop_registry.get(func)
        if formula is not None:
            count = formula(*args, **kwargs, out_val=out)
            for name in self.mod_tracker.parents:
                self.flop_counts[name][func] += count


_OF_PRODUCTS = frozenset(flop_registry)


class _Mode(TorchDispatchMode):
    def __init__(self, counter: FlopCounterMode) -> None:
        super().__init__()
        self.counter = counter
        # Formulas of somebody else may be of any operator.
        self._passes_elements = _OF_PRODUCTS.issuperset(counter.flop_registry)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        packet = func._overloadpacket
        if packet not in self.counter.flop_registry and not func.has_kernel_for_dispatch_key(
            "Meta"
        ):
            with self:
                apart = func.decompose(*args, **kwargs)
            if apart is not NotImplemented:
                return apart
        out = func(*args, **kwargs)
        self.counter._count(packet, out, args, kwargs)
        return out
