"""Windows, which PyTorch makes in Python of lines and functions of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from torchlike import _C
from torchlike._ops import ops
from torchlike._ops.decompositions import of

if TYPE_CHECKING:
    from collections.abc import Sequence

aten: Any = ops.aten
_W = "signal.windows."


class _Window:
    """How long a window is, what it is made of, and the steps between its points."""

    def __init__(
        self,
        M: int,
        sym: bool = True,
        dtype: Any = None,
        layout: Any = None,
        device: Any = None,
        requires_grad: Any = False,
    ) -> None:
        from torchlike import get_default_dtype, strided

        self.count, self.sym = M, sym
        self.requires_grad = bool(requires_grad)
        self.like: dict[str, Any] = {
            "dtype": get_default_dtype() if dtype is None else dtype,
            "layout": strided if layout is None else layout,
            "device": _C.get_default_device() if device is None else device,
            "pin_memory": False,
        }
        self.steps = M if not sym and M > 1 else M - 1

    def line(self, first: float, last: float) -> Any:
        """Points between two, evenly."""
        return aten.linspace(first, last, self.count, **self.like)

    def middle(self) -> float:
        """Half of the way, from whose other side the points are seen."""
        return -self.steps / 2.0

    def short(self) -> Any:
        """A window of one point or none."""
        like = {n: v for n, v in self.like.items() if n != "pin_memory"}
        make = aten.ones if self.count else aten.empty.memory_format
        return self.made(make([self.count], **like))

    def made(self, window: Any) -> Any:
        """The window, with what was asked for."""
        return window.requires_grad_() if self.requires_grad else window


def _cosines(w: _Window, weights: Sequence[float]) -> Any:
    """A weighed sum of cosines of whole multiples of a turn."""
    from torchlike import tensor

    if w.count < 2:
        return w.short()
    turn = 2 * math.pi / w.steps
    line = w.line(0, (w.count - 1) * turn)
    like = {n: v for n, v in w.like.items() if n != "layout"}
    signed = [(-1) ** i * a for i, a in enumerate(weights)]
    factors = tensor(signed, dtype=like["dtype"], device=like["device"])
    multiples = aten.arange(len(signed), **like)
    column = aten.unsqueeze(factors, -1)
    waves = aten.cos(aten.mul.Tensor(aten.unsqueeze(multiples, -1), line))
    return w.made(aten.sum.dim_IntList(aten.mul.Tensor(column, waves), [0]))


@of(_W + "general_cosine")
def general_cosine(M: int, a: Sequence[float], **how: Any) -> Any:
    """Of these weights."""
    return _cosines(_Window(M, **how), list(a))


@of(_W + "general_hamming")
def general_hamming(M: int, alpha: float = 0.54, **how: Any) -> Any:
    """Of a weight and what it leaves."""
    return _cosines(_Window(M, **how), [alpha, 1.0 - alpha])


@of(_W + "hamming")
def hamming(M: int, **how: Any) -> Any:
    """Of its weight."""
    return general_hamming(M, **how)


@of(_W + "hann")
def hann(M: int, **how: Any) -> Any:
    """Of halves."""
    return general_hamming(M, 0.5, **how)


@of(_W + "blackman")
def blackman(M: int, **how: Any) -> Any:
    """Of three weights."""
    return _cosines(_Window(M, **how), [0.42, 0.5, 0.08])


@of(_W + "nuttall")
def nuttall(M: int, **how: Any) -> Any:
    """Of four weights."""
    return _cosines(_Window(M, **how), [0.3635819, 0.4891775, 0.1365995, 0.0106411])


@of(_W + "bartlett")
def bartlett(M: int, **how: Any) -> Any:
    """A triangle."""
    w = _Window(M, **how)
    if M < 2:
        return w.short()
    step = 2 / w.steps
    return w.made(aten.rsub.Scalar(aten.abs(w.line(-1, -1 + (M - 1) * step)), 1))


@of(_W + "cosine")
def cosine(M: int, **how: Any) -> Any:
    """Half a turn of the sine."""
    w = _Window(M, **how)
    if M < 1:
        return w.short()
    step = math.pi / (w.steps + 1)
    return w.made(aten.sin(w.line(0.5 * step, (0.5 + M - 1) * step)))


@of(_W + "exponential")
def exponential(M: int, center: Any = None, tau: float = 1.0, **how: Any) -> Any:
    """Down by the distance from the middle."""
    w = _Window(M, **how)
    if tau <= 0 or (w.sym and center is not None):
        return NotImplemented
    if M < 1:
        return w.short()
    first = w.middle() if center is None else -center
    line = w.line(first / tau, (first + M - 1) / tau)
    return w.made(aten.exp(aten.neg(aten.abs(line))))


@of(_W + "gaussian")
def gaussian(M: int, std: float = 1.0, **how: Any) -> Any:
    """Down by the square of the distance from the middle."""
    w = _Window(M, **how)
    if std <= 0:
        return NotImplemented
    if M < 1:
        return w.short()
    unit = std * math.sqrt(2)
    line = w.line(w.middle() / unit, (w.middle() + M - 1) / unit)
    return w.made(aten.exp(aten.neg(aten.pow.Tensor_Scalar(line, 2))))


@of(_W + "kaiser")
def kaiser(M: int, beta: float = 12.0, **how: Any) -> Any:
    """A Bessel function of the square root of what is left below a parabola."""
    from torchlike import tensor

    w = _Window(M, **how)
    if M < 2:
        return w.short()
    like = {n: w.like[n] for n in ("dtype", "device")}
    height = tensor(float(beta), **like)
    first = aten.neg(height)
    step = aten.div.Tensor(aten.mul.Tensor(height, 2.0), w.steps)
    last = aten.minimum(height, aten.add.Tensor(first, aten.mul.Tensor(step, M - 1)))
    line = aten.linspace.Tensor_Tensor(first, last, M, **w.like)
    below = aten.sub.Tensor(aten.mul.Tensor(height, height), aten.pow.Tensor_Scalar(line, 2))
    return w.made(aten.div.Tensor(aten.i0(aten.sqrt(below)), aten.i0(height)))


@of("real", "imag")
def part(self: Any, name: str = "") -> Any:
    """A part of the pairs that complex numbers are; of conjugates, of what they are the conjugates of."""
    if not self.is_complex():
        return NotImplemented
    conjugate = self.is_conj()
    pairs = aten.view_as_real(aten._conj(self) if conjugate else self)
    if name == "real":
        return aten.select.int(pairs, -1, 0)
    return aten.select.int(aten._neg_view(pairs) if conjugate else pairs, -1, 1)
