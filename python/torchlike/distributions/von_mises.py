"""The von Mises distribution of angles.

Sources: Best and Fisher, "Efficient simulation of the von Mises distribution" (1979); Abramowitz and Stegun,
"Handbook of mathematical functions" (1964), 9.8.1 to 9.8.4.
"""

from __future__ import annotations

import math
from typing import Any

import torchlike
from torchlike.distributions import constraints
from torchlike.distributions.distribution import Distribution
from torchlike.distributions.utils import broadcast_all, lazy_property

__all__ = ["VonMises"]

# Of the modified Bessel functions of orders 0 and 1, below 3.75 and from there on.
_SMALL = (
    (1.0, 3.5156229, 3.0899424, 1.2067492, 0.2659732, 0.360768e-1, 0.45813e-2),
    (0.5, 0.87890594, 0.51498869, 0.15084934, 0.2658733e-1, 0.301532e-2, 0.32411e-3),
)
_LARGE = (
    (
        *(0.39894228, 0.1328592e-1, 0.225319e-2, -0.157565e-2, 0.916281e-2),
        *(-0.2057706e-1, 0.2635537e-1, -0.1647633e-1, 0.392377e-2),
    ),
    (
        *(0.39894228, -0.3988024e-1, -0.362018e-2, 0.163801e-2, -0.1031555e-1),
        *(0.2282967e-1, -0.2895312e-1, 0.1787654e-1, -0.420059e-2),
    ),
)


def _polynomial(x: Any, coefficients: tuple[float, ...]) -> Any:
    made = coefficients[-1]
    for c in coefficients[-2::-1]:
        made = c + x * made
    return made


def _log_bessel(x: Any, order: int = 0) -> Any:
    """The logarithm of a modified Bessel function of the first kind, for positive numbers."""
    small = _polynomial((x / 3.75) * (x / 3.75), _SMALL[order])
    if order == 1:
        small = x.abs() * small
    large = x - 0.5 * x.log() + _polynomial(3.75 / x, _LARGE[order]).log()
    return torchlike.where(x < 3.75, small.log(), large)


def _rejection_sample(loc: Any, concentration: Any, proposal_r: Any, x: Any) -> Any:
    """Angles by rejection from a wrapped Cauchy distribution."""
    done = torchlike.zeros(x.shape, dtype=torchlike.bool, device=loc.device)
    while not done.all():
        u1, u2, u3 = torchlike.rand((3, *x.shape), dtype=loc.dtype, device=loc.device).unbind()
        z = torchlike.cos(math.pi * u1)
        f = (1 + proposal_r * z) / (proposal_r + z)
        c = concentration * (proposal_r - f)
        accept = ((c * (2 - c) - u2) > 0) | ((c / u2).log() + 1 - c >= 0)
        if accept.any():
            x = torchlike.where(accept, (u3 - 0.5).sign() * f.acos(), x)
            done = done | accept
    return (x + math.pi + loc) % (2 * math.pi) - math.pi


class VonMises(Distribution):
    """Angles in radians around `loc`, the nearer the larger `concentration` is."""

    arg_constraints: Any = {"loc": constraints.real, "concentration": constraints.positive}
    support: Any = constraints.real
    has_rsample = False

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, torchlike.Size(), validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        if _instance is None and type(self) is VonMises:
            return VonMises(
                self.loc.expand(batch_shape),
                self.concentration.expand(batch_shape),
                validate_args=False,
            )
        return self._expanded(VonMises, batch_shape, _instance, {"loc": 0, "concentration": 0})

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        found = self.concentration * torchlike.cos(value - self.loc)
        return found - math.log(2 * math.pi) - _log_bessel(self.concentration)

    @lazy_property
    def _proposal_r(self) -> Any:
        """The parameter of the proposal, in double precision."""
        kappa = self.concentration.double()
        tau = 1 + (1 + 4 * kappa**2).sqrt()
        rho = (tau - (2 * tau).sqrt()) / (2 * kappa)
        found = (1 + rho**2) / (2 * rho)
        # It cannot be computed so where the concentration is small.
        return torchlike.where(kappa < 1e-5, 1 / kappa + kappa, found)

    def sample(self, sample_shape: Any = torchlike.Size()) -> Any:
        with torchlike.no_grad():
            return self._drawn(sample_shape)

    def _drawn(self, sample_shape: Any) -> Any:
        shape = self._extended_shape(sample_shape)
        x = torchlike.empty(shape, dtype=torchlike.float64, device=self.loc.device)
        made = _rejection_sample(
            self.loc.double(), self.concentration.double(), self._proposal_r, x
        )
        return made.to(self.loc.dtype)

    @property
    def mean(self) -> Any:
        return self.loc

    @property
    def mode(self) -> Any:
        return self.loc

    @lazy_property
    def variance(self) -> Any:
        """The circular variance."""
        ratio = _log_bessel(self.concentration, 1) - _log_bessel(self.concentration, 0)
        return 1 - ratio.exp()
