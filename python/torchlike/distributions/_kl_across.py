"""Divergences of distributions of different families: expectations of logarithms of densities.

Each is the mean of `log p - log q` under `p`, which is infinite where `p` reaches beyond what `q` knows.
"""

from __future__ import annotations

import math
from typing import Any

import torchlike
from torchlike.distributions.bernoulli import Bernoulli
from torchlike.distributions.beta import Beta
from torchlike.distributions.binomial import Binomial
from torchlike.distributions.continuous_bernoulli import ContinuousBernoulli
from torchlike.distributions.exponential import Exponential
from torchlike.distributions.gamma import Gamma
from torchlike.distributions.gumbel import Gumbel
from torchlike.distributions.kl import _infinite_like, register_kl
from torchlike.distributions.laplace import Laplace
from torchlike.distributions.lowrank_multivariate_normal import (
    LowRankMultivariateNormal,
    _batch_lowrank_logdet,
    _batch_lowrank_mahalanobis,
)
from torchlike.distributions.multivariate_normal import MultivariateNormal, _batch_mahalanobis
from torchlike.distributions.normal import Normal
from torchlike.distributions.pareto import Pareto
from torchlike.distributions.poisson import Poisson
from torchlike.distributions.uniform import Uniform
from torchlike.distributions.utils import _sum_rightmost, euler_constant


def _parameter(p: Any) -> Any:
    """A tensor of the distribution's batch."""
    names = ("concentration1", "probs", "rate", "concentration", "loc", "scale", "low")
    return next(getattr(p, n) for n in names if hasattr(p, n))


# What reaches beyond the support of the other.
_BEYOND: dict[type, tuple[type, ...]] = {
    Beta: (Pareto,),
    ContinuousBernoulli: (Pareto,),
    Exponential: (ContinuousBernoulli,),
    Gamma: (ContinuousBernoulli,),
    Gumbel: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Laplace: (ContinuousBernoulli,),
    Normal: (ContinuousBernoulli,),
    Pareto: (Beta, ContinuousBernoulli, Uniform),
    Poisson: (Bernoulli, Binomial),
}


def _infinite(p: Any, q: Any) -> Any:
    return _infinite_like(_parameter(p))


for _p, _others in _BEYOND.items():
    for _q in _others:
        register_kl(_p, _q)(_infinite)


def _x_log_x(x: Any) -> Any:
    return torchlike.special.xlogy(x, x)


def _infinite_where(condition: Any, found: Any) -> Any:
    return torchlike.where(condition, torchlike.full_like(found, math.inf), found)


@register_kl(Bernoulli, Poisson)
def _kl_bernoulli_poisson(p: Any, q: Any) -> Any:
    return -p.entropy() - (p.probs * q.rate.log() - q.rate)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _kl_continuous(p: Any, q: Any) -> Any:
    t1 = p.mean * (p.logits - q.logits)
    return (
        t1 + p._log_norm() + torchlike.log1p(-p.probs) - q._log_norm() - torchlike.log1p(-q.probs)
    )


@register_kl(ContinuousBernoulli, Exponential)
def _kl_continuous_exponential(p: Any, q: Any) -> Any:
    return -p.entropy() - torchlike.log(q.rate) + q.rate * p.mean


@register_kl(ContinuousBernoulli, Normal)
def _kl_continuous_normal(p: Any, q: Any) -> Any:
    norm = 0.5 * (math.log(2.0 * math.pi) + torchlike.square(q.loc / q.scale)) + torchlike.log(
        q.scale
    )
    moment = (p.variance + torchlike.square(p.mean) - 2.0 * q.loc * p.mean) / (
        2.0 * torchlike.square(q.scale)
    )
    return -p.entropy() + norm + moment


@register_kl(ContinuousBernoulli, Uniform)
def _kl_continuous_uniform(p: Any, q: Any) -> Any:
    found = -p.entropy() + (q.high - q.low).log()
    return _infinite_where((q.low > 0) | (q.high < 1), found)


@register_kl(Beta, ContinuousBernoulli)
def _kl_beta_continuous(p: Any, q: Any) -> Any:
    return -p.entropy() - p.mean * q.logits - torchlike.log1p(-q.probs) - q._log_norm()


@register_kl(Beta, Exponential)
def _kl_beta_exponential(p: Any, q: Any) -> Any:
    share = p.concentration1 / (p.concentration1 + p.concentration0)
    return -p.entropy() - q.rate.log() + q.rate * share


@register_kl(Beta, Gamma)
def _kl_beta_gamma(p: Any, q: Any) -> Any:
    total = p.concentration1 + p.concentration0
    log_x = p.concentration1.digamma() - total.digamma()
    return (
        -p.entropy()
        + q.concentration.lgamma()
        - q.concentration * q.rate.log()
        - (q.concentration - 1) * log_x
        + q.rate * p.concentration1 / total
    )


@register_kl(Beta, Normal)
def _kl_beta_normal(p: Any, q: Any) -> Any:
    square = q.scale.pow(2) * 2
    return (
        -p.entropy()
        + 0.5 * (square * math.pi).log()
        + (p.variance + (p.mean - q.loc).pow(2)) / square
    )


@register_kl(Beta, Uniform)
def _kl_beta_uniform(p: Any, q: Any) -> Any:
    found = -p.entropy() + (q.high - q.low).log()
    return _infinite_where((q.low > 0) | (q.high < 1), found)


@register_kl(Exponential, Gamma)
def _kl_exponential_gamma(p: Any, q: Any) -> Any:
    ratio = q.rate / p.rate
    return (
        -q.concentration * torchlike.log(ratio)
        + ratio
        + q.concentration.lgamma()
        + q.concentration * euler_constant
        - (1 + euler_constant)
    )


def _log_gumbel(q: Any, mean: Any, exponential: Any) -> Any:
    """The mean of `-log q` of a Gumbel distribution, by the means of `x` and of `exp(-(x - loc) / scale)`."""
    return q.scale.log() + (mean - q.loc) / q.scale + exponential


@register_kl(Exponential, Gumbel)
def _kl_exponential_gumbel(p: Any, q: Any) -> Any:
    moment = (q.loc / q.scale).exp() * p.rate / (p.rate + 1 / q.scale)
    return p.rate.log() - 1 + _log_gumbel(q, 1 / p.rate, moment)


@register_kl(Gamma, Gumbel)
def _kl_gamma_gumbel(p: Any, q: Any) -> Any:
    moment = (q.loc / q.scale).exp() * (1 + 1 / (p.rate * q.scale)).pow(-p.concentration)
    return -p.entropy() + _log_gumbel(q, p.concentration / p.rate, moment)


@register_kl(Normal, Gumbel)
def _kl_normal_gumbel(p: Any, q: Any) -> Any:
    moment = ((q.loc - p.loc) / q.scale + 0.5 * (p.scale / q.scale).pow(2)).exp()
    return -p.entropy() + _log_gumbel(q, p.loc, moment)


@register_kl(Uniform, Gumbel)
def _kl_uniform_gumbel(p: Any, q: Any) -> Any:
    width = p.high - p.low
    low, high = ((-(x - q.loc) / q.scale).exp() for x in (p.low, p.high))
    moment = q.scale * (low - high) / width
    return -width.log() + _log_gumbel(q, (p.high + p.low) / 2, moment)


@register_kl(Gamma, Normal)
def _kl_gamma_normal(p: Any, q: Any) -> Any:
    square = q.scale.pow(2)
    moment = (p.variance + (p.mean - q.loc).pow(2)) / square
    return -p.entropy() + 0.5 * (2 * math.pi * square).log() + 0.5 * moment


@register_kl(Gumbel, Normal)
def _kl_gumbel_normal(p: Any, q: Any) -> Any:
    ratio = p.scale / q.scale
    t2 = (math.pi * ratio * 0.5).pow(2) / 3
    t3 = ((p.loc + p.scale * euler_constant - q.loc) / q.scale).pow(2) * 0.5
    return -p.entropy() + 0.5 * (2 * math.pi * q.scale.pow(2)).log() + t2 + t3


@register_kl(Laplace, Normal)
def _kl_laplace_normal(p: Any, q: Any) -> Any:
    moment = (p.variance + (p.loc - q.loc).pow(2)) / (2 * q.scale.pow(2))
    return -p.entropy() + 0.5 * (2 * math.pi * q.scale.pow(2)).log() + moment


@register_kl(Pareto, Exponential)
def _kl_pareto_exponential(p: Any, q: Any) -> Any:
    product = p.scale * q.rate
    found = (p.alpha / product).log() - 1 / p.alpha + p.alpha * product / (p.alpha - 1) - 1
    return _infinite_where(p.alpha <= 1, found)


@register_kl(Pareto, Gamma)
def _kl_pareto_gamma(p: Any, q: Any) -> Any:
    log_x = p.scale.log() + 1 / p.alpha
    found = (
        p.alpha.log()
        - log_x
        + q.concentration.lgamma()
        - q.concentration * q.rate.log()
        + (1 - q.concentration) * log_x
        + q.rate * p.alpha * p.scale / (p.alpha - 1)
        - 1
    )
    return _infinite_where(p.alpha <= 1, found)


@register_kl(Pareto, Normal)
def _kl_pareto_normal(p: Any, q: Any) -> Any:
    common = p.scale / (p.alpha - 1)
    moment = p.alpha * common.pow(2) / (p.alpha - 2) + (p.alpha * common - q.loc).pow(2)
    found = (
        (math.sqrt(2 * math.pi) * q.scale * p.alpha / p.scale).log()
        - 1 / p.alpha
        + moment / (2 * q.scale.pow(2))
        - 1
    )
    return _infinite_where(p.alpha <= 2, found)


@register_kl(Uniform, Beta)
def _kl_uniform_beta(p: Any, q: Any) -> Any:
    width = p.high - p.low
    log_x = (_x_log_x(p.high) - _x_log_x(p.low) - width) / width
    log_rest = (_x_log_x(1 - p.low) - _x_log_x(1 - p.high) - width) / width
    norm = (
        q.concentration1.lgamma()
        + q.concentration0.lgamma()
        - (q.concentration1 + q.concentration0).lgamma()
    )
    found = norm - (q.concentration1 - 1) * log_x - (q.concentration0 - 1) * log_rest - width.log()
    return _infinite_where((p.high > 1) | (p.low < 0), found)


@register_kl(Uniform, ContinuousBernoulli)
def _kl_uniform_continuous(p: Any, q: Any) -> Any:
    mean = (p.high + p.low) / 2
    found = -p.entropy() - mean * q.logits - torchlike.log1p(-q.probs) - q._log_norm()
    return _infinite_where((p.high >= 1) | (p.low <= 0), found)


@register_kl(Uniform, Exponential)
def _kl_uniform_exponential(p: Any, q: Any) -> Any:
    found = q.rate * (p.high + p.low) / 2 - ((p.high - p.low) * q.rate).log()
    return _infinite_where(p.low < 0, found)


@register_kl(Uniform, Gamma)
def _kl_uniform_gamma(p: Any, q: Any) -> Any:
    width = p.high - p.low
    log_x = (_x_log_x(p.high) - _x_log_x(p.low) - width) / width
    found = (
        -width.log()
        + q.concentration.lgamma()
        - q.concentration * q.rate.log()
        + (1 - q.concentration) * log_x
        + q.rate * (p.high + p.low) / 2
    )
    return _infinite_where(p.low < 0, found)


@register_kl(Uniform, Pareto)
def _kl_uniform_pareto(p: Any, q: Any) -> Any:
    width = p.high - p.low
    log_x = (_x_log_x(p.high) - _x_log_x(p.low) - width) / width
    found = log_x * (q.alpha + 1) - (q.alpha * q.scale.pow(q.alpha) * width).log()
    return _infinite_where(p.low < q.scale, found)


def _logdet_lowrank(p: Any) -> Any:
    return _batch_lowrank_logdet(
        p._unbroadcasted_cov_factor, p._unbroadcasted_cov_diag, p._capacitance_tril
    )


def _distance_lowrank(q: Any, x: Any) -> Any:
    return _batch_lowrank_mahalanobis(
        q._unbroadcasted_cov_factor, q._unbroadcasted_cov_diag, x, q._capacitance_tril
    )


def _same_events(p: Any, q: Any, kinds: str) -> None:
    if p.event_shape != q.event_shape:
        raise ValueError(
            f"KL-divergence between two {kinds} with different event shapes cannot be computed"
        )


def _trace_lowrank(q: Any, columns: Any, diagonal: Any) -> Any:
    """The trace of `inv(S_q) (C C.T + diag(d))`."""
    d = q._unbroadcasted_cov_diag
    scaled = q._unbroadcasted_cov_factor.mT / d.unsqueeze(-2)
    a = torchlike.linalg.solve_triangular(q._capacitance_tril, scaled, upper=False)
    total = (columns.pow(2) / d.unsqueeze(-1)).sum((-2, -1)) - a.matmul(columns).pow(2).sum(
        (-2, -1)
    )
    if diagonal is not None:
        total = total + (diagonal / d).sum(-1) - (a.pow(2) * diagonal.unsqueeze(-2)).sum((-2, -1))
    return total


@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
def _kl_lowrank_lowrank(p: Any, q: Any) -> Any:
    _same_events(p, q, "Low Rank Multivariate Normals")
    trace = _trace_lowrank(q, p._unbroadcasted_cov_factor, p._unbroadcasted_cov_diag)
    apart = _logdet_lowrank(q) - _logdet_lowrank(p)
    return 0.5 * (apart + _distance_lowrank(q, q.loc - p.loc) + trace - p.event_shape[0])


@register_kl(MultivariateNormal, LowRankMultivariateNormal)
def _kl_normal_lowrank(p: Any, q: Any) -> Any:
    _same_events(p, q, "(Low Rank) Multivariate Normals")
    trace = _trace_lowrank(q, p._unbroadcasted_scale_tril, None)
    apart = _logdet_lowrank(q) - 2 * p._half_log_det()
    return 0.5 * (apart + _distance_lowrank(q, q.loc - p.loc) + trace - p.event_shape[0])


@register_kl(LowRankMultivariateNormal, MultivariateNormal)
def _kl_lowrank_normal(p: Any, q: Any) -> Any:
    _same_events(p, q, "(Low Rank) Multivariate Normals")
    tril = q._unbroadcasted_scale_tril
    batch = torchlike.broadcast_shapes(tril.shape[:-2], p._unbroadcasted_cov_factor.shape[:-2])
    n = p.event_shape[0]

    def solved(columns: Any) -> Any:
        wide = columns.expand((*batch, *columns.shape[-2:]))
        made = torchlike.linalg.solve_triangular(tril.expand((*batch, n, n)), wide, upper=False)
        return _sum_rightmost(made.pow(2), 2)

    trace = solved(p._unbroadcasted_cov_factor) + solved(
        torchlike.diag_embed(p._unbroadcasted_cov_diag.sqrt())
    )
    apart = 2 * q._half_log_det() - _logdet_lowrank(p)
    return 0.5 * (apart + _batch_mahalanobis(tril, q.loc - p.loc) + trace - n)
