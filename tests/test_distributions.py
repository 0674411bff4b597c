"""Distributions, divergences, transforms and constraints: PyTorch's values, recorded."""

from __future__ import annotations

import math
from typing import Any

import pytest

import torchlike as torch
import torchlike.distributions as D
from torchlike.distributions import constraints
from torchlike.distributions.constraint_registry import ConstraintRegistry
from torchlike.distributions.relaxed_bernoulli import LogitRelaxedBernoulli
from torchlike.distributions.relaxed_categorical import ExpRelaxedCategorical
from torchlike.distributions.utils import (
    broadcast_all,
    clamp_probs,
    lazy_property,
    logits_to_probs,
    probs_to_logits,
    tril_matrix_to_vec,
    vec_to_tril_matrix,
)

NAN, INF = math.nan, math.inf
NAMES: dict[str, Any] = {**vars(D), "torch": torch, "t": torch.tensor}

# class, its arguments, values, and: log_prob of these, mean, variance, entropy, cdf of these (None: not there)
# fmt: off
FACTS: list[Any] = [
    ("Bernoulli", "t([0.3, 0.8])", "t([1.0, 0.0])", [[-1.203973, -1.609438], [0.3, 0.8], [0.21, 0.16], [0.6108643, 0.5004024], None]),
    ("Beta", "t([1.5, 2.0]), t([2.0, 0.7])", "t([0.3, 0.9])", [[0.3630945, 0.7593683], [0.4285714, 0.7407407], [0.05442177, 0.05190375], [-0.10805, -0.4049964], None]),
    ("Binomial", "5, t([0.3, 0.6])", "t([2.0, 5.0])", [[-1.175385, -2.554128], [1.5, 3.0], [1.05, 1.2], [1.413615, 1.497998], None]),
    ("Categorical", "t([[0.1, 0.9], [0.5, 0.5]])", "t([1, 0])", [[-0.1053605, -0.6931472], [NAN, NAN], [NAN, NAN], [0.325083, 0.6931472], None]),
    ("Cauchy", "t([0.0, 1.0]), t([1.0, 2.0])", "t([0.5, -3.0])", [[-1.367873, -3.447315], [NAN, NAN], [INF, INF], [2.531024, 3.224171], [0.6475836, 0.1475836]]),
    ("Chi2", "t([1.0, 3.0])", "t([0.5, 2.0])", [[-0.8223649, -1.572365], [1.0, 3.0], [2.0, 6.0], [0.7837567, 2.05412], [0.5204998, 0.4275933]]),
    ("Dirichlet", "t([0.5, 1.5, 2.0])", "t([0.2, 0.3, 0.5])", [[0.8497622], [0.125, 0.375, 0.5], [0.021875, 0.046875, 0.05], [-1.506844], None]),
    ("Exponential", "t([0.5, 2.0])", "t([0.3, 1.0])", [[-0.8431472, -1.306853], [2.0, 0.5], [4.0, 0.25], [1.693147, 0.3068528], [0.139292, 0.8646647]]),
    ("FisherSnedecor", "t([3.0, 5.0]), t([6.0, 7.0])", "t([0.4, 1.2])", [[-0.4369417, -0.980098], [1.5, 1.4], [5.25, 2.613333], None, None]),
    ("Gamma", "t([0.7, 3.0]), t([1.0, 2.0])", "t([0.4, 1.2])", [[-0.38598, -0.6490626], [0.7, 1.5], [0.7, 0.75], [0.5948602, 1.154432], [0.494986, 0.4302914]]),
    ("Geometric", "t([0.3, 0.9])", "t([2.0, 0.0])", [[-1.917323, -0.1053605], [2.333333, 0.1111112], [7.777777, 0.1234569], [2.036214, 0.3612034], None]),
    ("Gumbel", "t([0.0, 1.0]), t([1.0, 2.0])", "t([0.4, -1.2])", [[-1.07032, -2.597313], [0.5772157, 2.154431], [1.644934, 6.579737], [1.577216, 2.270363], [0.5115449, 0.0495801]]),
    ("HalfCauchy", "t([1.0, 2.0])", "t([0.4, 1.2])", [[-0.6000026, -1.452214], [INF, INF], [INF, INF], [1.837877, 2.531024], [0.2422379, 0.3440417]]),
    ("HalfNormal", "t([1.0, 2.0])", "t([0.4, 1.2])", [[-0.3057913, -1.098938], [0.7978846, 1.595769], [0.3633802, 1.453521], [0.7257913, 1.418939], [0.3108435, 0.4514937]]),
    ("InverseGamma", "t([3.0, 4.0]), t([1.0, 2.0])", "t([0.4, 1.2])", [[0.4720159, -1.597445], [0.5, 0.6666667], [0.25, 0.2222222], [0.002010345, 0.204318], [0.543813, 0.9117329]]),
    ("Kumaraswamy", "t([1.5, 2.0]), t([2.0, 3.0])", "t([0.4, 0.7])", [[0.3488006, 0.08839528], [0.45, 0.4571429], [0.05464283, 0.04102036], [-0.09861231, -0.2084262], [0.4419645, 0.867349]]),
    ("Laplace", "t([0.0, 1.0]), t([1.0, 2.0])", "t([0.4, -1.2])", [[-1.093147, -2.486294], [0.0, 1.0], [2.0, 8.0], [1.693147, 2.386294], [0.66484, 0.1664355]]),
    ("LogNormal", "t([0.0, 1.0]), t([1.0, 0.5])", "t([0.4, 1.2])", [[-0.4224421, -1.745309], [1.648721, 3.080217], [4.670774, 2.694758], [1.418939, 1.725791], [0.1797572, 0.05098715]]),
    ("LogisticNormal", "t([0.0, 1.0]), t([1.0, 0.5])", "t([0.2, 0.3, 0.5])", [[-2.443587], None, None, None, None]),
    ("Multinomial", "4, t([0.2, 0.3, 0.5])", "t([1.0, 1.0, 2.0])", [[-1.714798], [0.8, 1.2, 2.0], [0.64, 0.84, 1.0], [2.349084], None]),
    ("MultivariateNormal", "t([0.0, 1.0]), t([[2.0, 0.5], [0.5, 1.0]])", "t([0.4, -1.2])", [[-5.180542], [0.0, 1.0], [2.0, 1.0], [3.117685], None]),
    ("NegativeBinomial", "t([3.0, 5.0]), t([0.3, 0.5])", "t([2.0, 4.0])", [[-1.686211, -1.98983], [1.285714, 5.0], [1.836735, 10.0], None, None]),
    ("Normal", "t([0.0, 1.0]), t([1.0, 2.0])", "t([0.4, -1.2])", [[-0.9989385, -2.217086], [0.0, 1.0], [1.0, 4.0], [1.418939, 2.112086], [0.6554217, 0.135666]]),
    ("OneHotCategorical", "t([0.2, 0.3, 0.5])", "t([0.0, 1.0, 0.0])", [[-1.203973], [0.2, 0.3, 0.5], [0.16, 0.21, 0.25], [1.029653], None]),
    ("Pareto", "t([1.0, 2.0]), t([3.0, 4.0])", "t([1.4, 2.2])", [[-0.2472765, 0.2165961], [1.5, 2.666667], [0.75, 0.8888889], [0.2347211, 0.5568528], [0.6355685, 0.3169866]]),
    ("Poisson", "t([1.5, 4.0])", "t([2.0, 3.0])", [[-1.382217, -1.632876], [1.5, 4.0], [1.5, 4.0], None, None]),
    ("RelaxedBernoulli", "t([0.7]), t([0.3, 0.8])", "t([0.4, 0.9])", [[-0.3941998, 0.6592236], None, None, None, None]),
    ("RelaxedOneHotCategorical", "t([0.7]), t([0.2, 0.3, 0.5])", "t([0.2, 0.3, 0.5])", [[0.1714754], None, None, None, None]),
    ("StudentT", "t([3.0, 5.0]), t([0.0, 1.0]), t([1.0, 2.0])", "t([0.4, -1.2])", [[-1.104808, -2.311935], [0.0, 1.0], [3.0, 6.666667], [1.773477, 2.320649], None]),
    ("Uniform", "t([0.0, 1.0]), t([1.0, 3.0])", "t([0.4, 1.5])", [[0.0, -0.6931472], [0.5, 2.0], [0.08333334, 0.3333333], [0.0, 0.6931472], [0.4, 0.25]]),
    ("Weibull", "t([1.0, 2.0]), t([1.5, 3.0])", "t([0.4, 1.2])", [[-0.3056625, -0.8321862], [0.9027453, 1.785959], [0.3756904, 0.4213316], [0.7869402, 0.9793453], [0.2235183, 0.1942647]]),
]

# p, q, how far p is from q
DIVERGENCES: list[Any] = [
    ("Normal(0.0, 1.0)", "Normal(1.0, 2.0)", 0.4431472),
    ("Gamma(t(2.0), t(1.0))", "Gamma(t(3.0), t(2.0))", 0.1909214),
    ("Beta(t(2.0), t(1.0))", "Beta(t(3.0), t(2.0))", 0.2082405),
    ("Bernoulli(t(0.3))", "Bernoulli(t(0.6))", 0.1837869),
    ("Categorical(t([0.2, 0.8]))", "Categorical(t([0.5, 0.5]))", 0.1927448),
    ("Dirichlet(t([1.0, 2.0]))", "Dirichlet(t([2.0, 1.5]))", 0.6213914),
    ("Exponential(t(2.0))", "Exponential(t(0.5))", 0.6362944),
    ("Gumbel(t(0.0), t(1.0))", "Gumbel(t(1.0), t(2.0))", 0.3656806),
    ("Laplace(t(0.0), t(1.0))", "Laplace(t(1.0), t(2.0))", 0.3770869),
    ("MultivariateNormal(t([0.0, 1.0]), torch.eye(2))", "MultivariateNormal(t([1.0, 1.0]), 2 * torch.eye(2))", 0.4431471),
    ("Pareto(t(1.0), t(2.0))", "Pareto(t(1.0), t(3.0))", 0.09453487),
    ("Poisson(t(2.0))", "Poisson(t(3.0))", 0.1890697),
    ("Uniform(t(0.0), t(1.0))", "Uniform(t(-1.0), t(2.0))", 1.098612),
    ("Uniform(t(0.0), t(3.0))", "Uniform(t(-1.0), t(2.0))", INF),
    ("Geometric(t(0.3))", "Geometric(t(0.6))", 0.6126231),
    ("HalfNormal(t(1.0))", "HalfNormal(t(2.0))", 0.3181472),
    ("Cauchy(t(0.0), t(1.0))", "Cauchy(t(1.0), t(2.0))", 0.2231436),
    ("Normal(0.0, 1.0)", "Laplace(1.0, 2.0)", 0.5506713),
    ("Normal(0.0, 1.0)", "Uniform(1.0, 2.0)", INF),
    ("Independent(Normal(torch.zeros(2), 1.0), 1)", "Independent(Normal(torch.ones(2), 1.0), 1)", 1.0),
    ("LogNormal(0.0, 1.0)", "LogNormal(1.0, 2.0)", 0.4431472),
]

# transform, x, [y, log_abs_det_jacobian]
TRANSFORMS: list[Any] = [
    ("AbsTransform()", "t([-1.0, 2.0])", [[1.0, 2.0], None]),
    ("AffineTransform(1.0, 2.0)", "t([-1.0, 2.0])", [[-1.0, 5.0], [0.6931472, 0.6931472]]),
    ("ExpTransform()", "t([-1.0, 2.0])", [[0.3678795, 7.389056], [-1.0, 2.0]]),
    ("PowerTransform(t(2.0))", "t([1.0, 2.0])", [[1.0, 4.0], [0.6931472, 1.386294]]),
    ("SigmoidTransform()", "t([-1.0, 2.0])", [[0.2689414, 0.880797], [-1.626523, -2.253856]]),
    ("SoftplusTransform()", "t([-1.0, 2.0])", [[0.3132617, 2.126928], [-1.313262, -0.126928]]),
    ("TanhTransform()", "t([-1.0, 0.5])", [[-0.7615942, 0.4621172], [-0.8675618, -0.240229]]),
    ("SoftmaxTransform()", "t([-1.0, 2.0])", [[0.04742587, 0.9525741], None]),
    ("StickBreakingTransform()", "t([-1.0, 2.0])", [[0.1553624, 0.7439542, 0.1006833], [-4.453546]]),
    ("CorrCholeskyTransform()", "t([-1.0, 2.0, 0.3])", [[1.0, 0.0, 0.0, -0.7615942, 0.6480542, 0.0, 0.9640276, 0.07743154, 0.2542738], [-4.931252]]),
    ("LowerCholeskyTransform()", "t([[-1.0, 2.0], [0.5, 1.0]])", [[0.3678795, 0.0, 0.5, 2.718282], None]),
    ("PositiveDefiniteTransform()", "t([[-1.0, 2.0], [0.5, 1.0]])", [[0.1353353, 0.1839397, 0.1839397, 7.639056], None]),
    ("ReshapeTransform((2,), (1, 2))", "t([-1.0, 2.0])", [[-1.0, 2.0], [0.0]]),
    ("ComposeTransform([ExpTransform(), AffineTransform(1.0, 2.0)])", "t([-1.0, 2.0])", [[1.735759, 15.77811], [-0.3068528, 2.693147]]),
    ("IndependentTransform(ExpTransform(), 1)", "t([-1.0, 2.0])", [[0.3678795, 7.389056], [1.0]]),
    ("CatTransform([ExpTransform(), identity_transform])", "t([-1.0, 2.0])", [[0.3678795, 2.0], [-1.0, 0.0]]),
    ("StackTransform([ExpTransform(), identity_transform])", "t([-1.0, 2.0])", [[0.3678795, 2.0], [-1.0, 0.0]]),
    ("CumulativeDistributionTransform(Normal(0.0, 1.0))", "t([-1.0, 2.0])", [[0.1586553, 0.9772499], [-1.418939, -2.918939]]),
]

# what PyTorch draws after manual_seed(7), twice
SAMPLES: list[Any] = [
    ("Normal(t([0.0, 1.0]), 1.0)", [-0.1467951, 1.786141, 0.9468216, -0.114344]),
    ("Uniform(t([0.0, 1.0]), 3.0)", [1.604768, 1.397606, 1.977635, 2.313781]),
    ("Laplace(t([0.0, 1.0]), 1.0)", [0.07240418, 0.07770753, 0.3833467, 1.376558]),
    ("Cauchy(t([0.0, 1.0]), 1.0)", [-0.8305558, 0.1387969, 2.161892, 1.536283]),
    ("Exponential(t([0.5, 1.0]))", [0.6552879, 0.3197835, 3.962351, 1.069117]),
    ("Categorical(t([0.2, 0.3, 0.5]))", [1.0, 1.0]),
    ("Bernoulli(t([0.3, 0.6]))", [0.0, 1.0, 0.0, 0.0]),
    ("Poisson(t([3.0, 2.0]))", [3.0, 3.0, 2.0, 0.0]),
    ("Geometric(t([0.3, 0.1]))", [1.0, 15.0, 1.0, 3.0]),
    ("Gumbel(t([0.0, 1.0]), 1.0)", [0.4689907, 0.5203925, 0.8753632, 1.866933]),
    ("LogNormal(t([0.0, 1.0]), 1.0)", [0.8634709, 5.966385, 2.577504, 0.8919511]),
    ("MultivariateNormal(t([0.0, 1.0]), torch.eye(2))", [-0.1467951, 1.786141, 0.9468216, -0.114344]),
    ("OneHotCategorical(t([0.2, 0.3, 0.5]))", [0.0, 1.0, 0.0, 0.0, 1.0, 0.0]),
    ("Multinomial(5, t([0.2, 0.3, 0.5]))", [0.0, 2.0, 3.0, 0.0, 1.0, 4.0]),
    ("Pareto(t([1.0, 2.0]), 3.0)", [1.115402, 2.224966, 1.935551, 2.856278]),
    ("Weibull(t([1.0, 2.0]), 3.0)", [0.6893938, 1.367672, 1.255956, 2.045055]),
    ("Kumaraswamy(t([1.0, 2.0]), 3.0)", [0.188235, 0.6452638, 0.129688, 0.3615395]),
    ("RelaxedBernoulli(t([0.5]), t([0.3, 0.6]))", [0.1954844, 0.1216762, 0.4073264, 0.8918582]),
    ("RelaxedOneHotCategorical(t([0.5]), t([0.3, 0.7]))", [0.5504777, 0.4495223, 0.1573955, 0.8426045]),
    ("MixtureSameFamily(Categorical(t([0.5, 0.5])), Normal(t([0.0, 5.0]), 1.0))", [0.9468216, 1.69079]),
    ("OneHotCategoricalStraightThrough(t([0.3, 0.7]))", [1.0, 0.0, 1.0, 0.0]),
]
# fmt: on


def made(text: str) -> Any:
    return eval(text, dict(NAMES))


def close(got: Any, want: Any, tolerance: float = 2e-5) -> bool:
    found = torch.as_tensor(got).double().flatten()
    return torch.allclose(
        found, torch.tensor(want).double().flatten(), rtol=tolerance, atol=1e-6, equal_nan=True
    )


@pytest.mark.parametrize("row", FACTS, ids=[f[0] for f in FACTS])
def test_values_of_distributions(row: Any) -> None:
    name, args, values, (log_prob, mean, variance, entropy, cdf) = row
    dist, value = made(f"{name}({args})"), made(values)
    for what, want in (("mean", mean), ("variance", variance)):
        if want is not None:
            assert close(getattr(dist, what), want), what
    assert close(dist.log_prob(value), log_prob)
    if entropy is not None:
        assert close(dist.entropy(), entropy)
    if cdf is not None:
        assert close(dist.cdf(value), cdf)
    wide = dist.expand((3, *dist.batch_shape))
    assert wide.batch_shape == (3, *dist.batch_shape) and wide.event_shape == dist.event_shape
    assert close(wide.log_prob(value)[2], log_prob)
    assert dist.support.check(value).all() and repr(dist).startswith(name)


@pytest.mark.parametrize(("p", "q", "want"), DIVERGENCES)
def test_divergences(p: str, q: str, want: float) -> None:
    assert close(D.kl_divergence(made(p), made(q)), want)


@pytest.mark.parametrize(("name", "x", "want"), TRANSFORMS)
def test_transforms(name: str, x: str, want: Any) -> None:
    transform, x = made(name), made(x)
    y = transform(x)
    assert close(y, want[0])
    if want[1] is not None:
        assert close(transform.log_abs_det_jacobian(x, y), want[1])
        assert close(transform.inv(y), x.tolist(), 1e-4)
        assert transform.forward_shape(x.shape) == y.shape
        assert transform.inverse_shape(y.shape) == x.shape
    assert isinstance(transform, D.Transform)
    assert transform.inv.inv is transform or "Compose" in name


@pytest.mark.parametrize(("text", "want"), SAMPLES)
def test_samples_have_the_bits_of_the_stream(text: str, want: Any) -> None:
    torch.manual_seed(7)
    assert close(made(text).sample((2,)), want)


def test_gradients_pass_through_samples() -> None:
    loc = torch.zeros(3, requires_grad=True)
    D.Independent(D.Normal(loc, 1.0), 1).rsample((5,)).sum().backward()
    assert loc.grad is not None and loc.grad.tolist() == [5.0] * 3
    entropy = D.ExponentialFamily.entropy(D.Normal(torch.tensor(0.5), torch.tensor(2.0)))
    assert close(entropy, D.Normal(0.5, 2.0).entropy().item())


def test_mixtures_and_parts_that_are_independent() -> None:
    mixture = D.MixtureSameFamily(
        D.Categorical(torch.tensor([0.25, 0.75])), D.Normal(torch.tensor([0.0, 4.0]), 1.0)
    )
    assert close(mixture.mean, 3.0) and close(mixture.variance, 1.0 + 0.25 * 9 + 0.75 * 1)
    inside = D.Normal(torch.tensor([0.0, 4.0]), 1.0).log_prob(torch.tensor(1.0)).exp()
    want = (inside * torch.tensor([0.25, 0.75])).sum().log()
    assert close(mixture.log_prob(torch.tensor(1.0)), want.item())
    both = D.Independent(D.Normal(torch.zeros(2, 3), 1.0), 1)
    assert both.batch_shape == (2,) and both.event_shape == (3,)
    assert both.log_prob(torch.zeros(2, 3)).shape == (2,)
    moved = D.TransformedDistribution(D.Normal(0.0, 1.0), [D.AffineTransform(1.0, -2.0)])
    assert close(moved.cdf(torch.tensor(1.0)), 0.5) and close(moved.icdf(torch.tensor(0.5)), 1.0)


def test_relaxed_distributions_underneath() -> None:
    odds = LogitRelaxedBernoulli(torch.tensor([0.5]), logits=torch.tensor([0.3]))
    assert odds.rsample((4,)).shape == (4, 1)
    logs = ExpRelaxedCategorical(torch.tensor([0.5]), torch.tensor([0.3, 0.7]))
    assert close(logs.rsample().exp().sum(), 1.0)


def test_constraints() -> None:
    t = torch.tensor
    yes: list[tuple[constraints.Constraint, Any, Any]] = [
        (constraints.greater_than(1), t([1.0, 2.0]), [False, True]),
        (constraints.greater_than_eq(1), t([1.0, 0.0]), [True, False]),
        (constraints.less_than(1), t([1.0, 0.0]), [False, True]),
        (constraints.interval(0, 1), t([1.0, 2.0]), [True, False]),
        (constraints.half_open_interval(0, 1), t([1.0, 0.0]), [False, True]),
        (constraints.integer_interval(0, 2), t([1.0, 1.5]), [True, False]),
        (constraints.simplex, t([[0.5, 0.5], [0.5, 0.6]]), [True, False]),
        (constraints.positive_definite, torch.eye(2), True),
        (constraints.corr_cholesky, torch.eye(2), True),
        (
            constraints.MixtureSameFamilyConstraint(constraints.positive),
            t([1.0, -1.0]),
            [True, False],
        ),
    ]
    for constraint, value, want in yes:
        assert constraint.check(value).tolist() == want, constraint
    assert constraints.is_dependent(constraints.dependent)
    assert isinstance(vars(D.Uniform)["support"], constraints.dependent_property)
    with pytest.raises(ValueError, match="Cannot determine validity"):
        constraints.dependent.check(t(1.0))


def test_transforms_to_constraints() -> None:
    x = torch.tensor([0.3, -0.7])
    for registry in (D.biject_to, D.transform_to):
        assert isinstance(registry, ConstraintRegistry)
        for constraint in (
            constraints.real,
            constraints.positive,
            constraints.less_than(2.0),
            constraints.simplex,
            constraints.unit_interval,
            constraints.interval(1.0, 3.0),
            constraints.independent(constraints.positive, 1),
        ):
            assert constraint.check(registry(constraint)(x)).all()
    with pytest.raises(NotImplementedError, match="Cannot transform _Boolean constraints"):
        D.biject_to(constraints.boolean)


def test_errors_have_pytorchs_words() -> None:
    with pytest.raises(
        ValueError,
        match=r"Expected parameter scale \(Tensor of shape \(\)\) of distribution Normal",
    ):
        D.Normal(0.0, -1.0)
    with pytest.raises(ValueError, match="The value argument to log_prob must be a Tensor"):
        D.Normal(0.0, 1.0).log_prob(1.0)
    with pytest.raises(ValueError, match="to be within the support"):
        D.Bernoulli(0.5).log_prob(torch.tensor(3.0))
    with pytest.raises(ValueError, match="Either `probs` or `logits` must be specified"):
        D.Bernoulli(0.5, logits=0.2)
    with pytest.raises(
        NotImplementedError,
        match=r"No KL\(p \|\| q\) is implemented for p type Normal and q type Own",
    ):
        D.kl_divergence(
            D.Normal(0.0, 1.0), type("Own", (D.Distribution,), {"arg_constraints": {}})()
        )


def test_divergences_of_other_classes_can_be_added() -> None:
    class Own(D.Normal):
        pass

    @D.register_kl(Own, Own)
    def _own(p: Any, q: Any) -> str:
        return "own"

    assert D.kl_divergence(Own(0.0, 1.0), Own(0.0, 1.0)) == "own"
    assert close(D.kl_divergence(D.Normal(0.0, 1.0), D.Normal(0.0, 1.0)), 0.0)


def test_helpers() -> None:
    a, b = broadcast_all(1.0, torch.zeros(2, dtype=torch.float64))
    assert a.dtype == b.dtype == torch.float64 and a.shape == b.shape
    p = torch.tensor([0.25, 0.75])
    assert close(logits_to_probs(probs_to_logits(p)), p.tolist())
    assert close(logits_to_probs(probs_to_logits(p, True), True), p.tolist())
    assert 0 < clamp_probs(torch.zeros(1)).item() < 1e-6
    m = torch.tensor([[1.0, 0.0], [2.0, 3.0]])
    assert torch.equal(vec_to_tril_matrix(tril_matrix_to_vec(m)), m)

    class Once:
        count = 0

        @lazy_property
        def value(self) -> int:
            Once.count += 1
            return 5

    once = Once()
    assert once.value == once.value == 5 and Once.count == 1


def test_continuous_and_circular_families() -> None:
    t = torch.tensor
    b = D.ContinuousBernoulli(t([0.2, 0.5, 0.9]))
    # The mean of an exponential cut at one, of a uniform, and of the first turned round.
    grid = torch.linspace(0, 1, 2001, dtype=torch.float64)
    for i, p in enumerate((0.2, 0.5, 0.9)):
        one = D.ContinuousBernoulli(t(p, dtype=torch.float64))
        density = one.log_prob(grid).exp()
        assert close(torch.trapezoid(density, grid), 1.0)
        assert close(torch.trapezoid(density * grid, grid), b.mean[i].item(), 1e-4)
        assert close(one.cdf(one.icdf(t(0.3, dtype=torch.float64))), 0.3)
    v = D.VonMises(t(0.5, dtype=torch.float64), t(4.0, dtype=torch.float64))
    circle = torch.linspace(-3.141592653589793, 3.141592653589793, 2001, dtype=torch.float64)
    assert close(torch.trapezoid(v.log_prob(circle).exp(), circle), 1.0)
    torch.manual_seed(0)
    drawn = v.sample((4000,))
    assert abs(torch.atan2(drawn.sin().mean(), drawn.cos().mean()) - 0.5) < 0.05
    assert abs(1 - (drawn - 0.5).cos().mean() - v.variance) < 0.02


def test_families_of_matrices() -> None:
    torch.manual_seed(0)
    w, d = torch.randn(3, 2).double(), torch.rand(3).double() + 0.5
    low = D.LowRankMultivariateNormal(torch.zeros(3).double(), w, d)
    full = D.MultivariateNormal(torch.zeros(3).double(), w @ w.T + torch.diag(d))
    x = torch.randn(5, 3).double()
    assert torch.allclose(low.log_prob(x), full.log_prob(x)) and torch.allclose(
        low.entropy(), full.entropy()
    )
    assert torch.allclose(low.precision_matrix, full.precision_matrix) and torch.allclose(
        low.scale_tril, full.scale_tril
    )
    assert D.kl_divergence(low, full).abs() < 1e-9 and D.kl_divergence(full, low).abs() < 1e-9
    other = D.LowRankMultivariateNormal(torch.ones(3).double(), 2 * w, d)
    wide = D.MultivariateNormal(torch.ones(3).double(), 4 * w @ w.T + torch.diag(d))
    assert torch.allclose(D.kl_divergence(low, other), D.kl_divergence(full, wide))
    sums = D.Wishart(torch.tensor(5.0), covariance_matrix=full.covariance_matrix.float())
    mean = sums.sample((3000,)).mean(0)
    assert (mean - sums.mean).abs().max() < 0.1 * sums.mean.abs().max()
    factor = D.LKJCholesky(3, 2.0).sample((50,))
    assert torch.allclose((factor @ factor.mT).diagonal(dim1=-2, dim2=-1), torch.ones(50, 3))
    assert D.LKJCholesky(3, 1.0).log_prob(torch.eye(3)).isfinite()


def test_tails_and_their_limits() -> None:
    p = D.GeneralizedPareto(torch.tensor(1.0), torch.tensor(2.0), torch.tensor([0.0, 0.3, -0.5]))
    q = torch.tensor([0.1, 0.5, 0.9])
    for u in q:
        assert torch.allclose(p.cdf(p.icdf(u)), u.expand(3), atol=1e-5)
    flat = D.Exponential(0.5)
    assert torch.allclose(p.log_prob(torch.tensor(1.7))[0], flat.log_prob(torch.tensor(0.7)))
    assert torch.allclose(p.mean, torch.tensor([3.0, 1 + 2 / 0.7, 1 + 2 / 1.5]))
    assert p.support.upper_bound.tolist() == [float("inf"), float("inf"), 5.0]


CROSS = [
    ("Bernoulli(t(0.3))", "Poisson(t(2.0))"),
    ("Beta(t(2.0), t(3.0))", "Normal(t(0.5), t(2.0))"),
    ("Beta(t(2.0), t(3.0))", "Gamma(t(2.0), t(3.0))"),
    ("Beta(t(2.0), t(3.0))", "Exponential(t(2.0))"),
    ("Exponential(t(2.0))", "Gamma(t(2.0), t(3.0))"),
    ("Exponential(t(2.0))", "Gumbel(t(0.5), t(2.0))"),
    ("Gamma(t(2.0), t(3.0))", "Gumbel(t(0.5), t(2.0))"),
    ("Gamma(t(2.0), t(3.0))", "Normal(t(0.5), t(2.0))"),
    ("Normal(t(0.5), t(1.5))", "Gumbel(t(0.5), t(2.0))"),
    ("Gumbel(t(0.5), t(1.5))", "Normal(t(0.0), t(2.0))"),
    ("Laplace(t(0.5), t(1.5))", "Normal(t(0.0), t(2.0))"),
    ("Pareto(t(1.0), t(4.0))", "Exponential(t(1.0))"),
    ("Pareto(t(1.0), t(4.0))", "Gamma(t(2.0), t(1.0))"),
    ("Pareto(t(1.0), t(5.0))", "Normal(t(1.0), t(2.0))"),
    ("Uniform(t(0.1), t(0.8))", "Beta(t(2.0), t(3.0))"),
    ("Uniform(t(0.5), t(2.0))", "Exponential(t(1.0))"),
    ("Uniform(t(0.5), t(2.0))", "Gamma(t(2.0), t(1.0))"),
    ("Uniform(t(0.5), t(2.0))", "Gumbel(t(0.5), t(2.0))"),
    ("Uniform(t(1.5), t(2.0))", "Pareto(t(1.0), t(2.0))"),
    ("ContinuousBernoulli(t(0.2))", "Normal(t(0.5), t(2.0))"),
    ("ContinuousBernoulli(t(0.2))", "Exponential(t(2.0))"),
    ("ContinuousBernoulli(t(0.2))", "Uniform(t(-1.0), t(2.0))"),
    ("Beta(t(2.0), t(3.0))", "ContinuousBernoulli(t(0.2))"),
    ("Beta(t(2.0), t(3.0))", "Uniform(t(-1.0), t(2.0))"),
]


@pytest.mark.parametrize(("p", "q"), CROSS)
def test_divergences_across_families_are_means_of_logarithms(p: str, q: str) -> None:
    names = {**vars(D), "t": lambda v: torch.tensor(v, dtype=torch.float64)}
    first, second = (eval(x, dict(names)) for x in (p, q))
    torch.manual_seed(0)
    x = first.sample((200_000,))
    mean = (first.log_prob(x) - second.log_prob(x)).mean()
    assert abs(D.kl_divergence(first, second) - mean) < 0.03


def test_divergences_beyond_a_support_are_infinite() -> None:
    t = torch.tensor
    for p, q in [
        (D.Gumbel(t(0.0), t(1.0)), D.Beta(t(1.0), t(1.0))),
        (D.Pareto(t(1.0), t(1.0)), D.Exponential(t(1.0))),
        (D.Poisson(t(1.0)), D.Binomial(3, t(0.5))),
        (D.Uniform(t(-1.0), t(1.0)), D.Gamma(t(1.0), t(1.0))),
    ]:
        assert D.kl_divergence(p, q).isinf()


def test_samples_of_counts_and_shares_have_pytorchs_bits() -> None:
    torch.manual_seed(3)
    a = torch.tensor([0.01, 0.3, 0.9, 1.0, 2.5, 8.0, 30.0, 1000.0], dtype=torch.float64)
    want = [
        0.012491472491283219, 0.034139090493574553, 0.52105111809393512, 1.0649166700218065,
        1.0912902687652419, 6.1018261815420747, 32.02511015057474, 1007.8119993667472,
    ]  # fmt: skip
    torch.testing.assert_close(
        torch._standard_gamma(a), torch.tensor(want).double(), rtol=1e-6, atol=0
    )
    shares = torch._sample_dirichlet(a[1:5])
    want = [0.051135762430664165, 0.075050579816685808, 0.3156122140601359, 0.55820144369251412]
    assert close(shares, want, 1e-12)
    counts, p = torch.tensor([5.0, 10, 100, 1000, 40]), torch.tensor([0.1, 0.9, 0.3, 0.7, 0.999])
    assert torch.binomial(counts, p).tolist() == [1, 10, 25, 701, 40]
    shapes, drawn = torch.tensor([0.3, 2.0, 20.0]), torch.tensor([0.1, 1.5, 19.0])
    assert close(torch._standard_gamma_grad(shapes, drawn), [0.789404392, 0.936619818, 0.982725501])
    shares, total = torch.tensor([0.1, 0.4, 0.95]), torch.tensor([1.5, 9.0, 30.0])
    assert close(
        torch._dirichlet_grad(shares, shapes, total), [0.794019163, 0.166695267, 0.0404399224]
    )
    with pytest.raises(RuntimeError, match="Found dtype Double"):
        torch.binomial(counts, p.double())
    with pytest.raises(ValueError, match="floating-point dtypes for count"):
        torch.binomial(torch.tensor([3]), p)


def test_constraints_and_transforms_check_what_they_are_given():
    greater = torch.distributions.constraints.greater_than_eq
    assert not isinstance(greater(1.0), torch.distributions.constraints.greater_than)
    assert repr(greater(1.0)) == "GreaterThanEq(lower_bound=1.0)"
    transforms = torch.distributions.transforms
    with pytest.raises(AssertionError, match="reinterpreted_batch_ndims must be >= 0, got -1"):
        transforms.IndependentTransform(transforms.ExpTransform(), -1)


def test_samples_are_checked_in_whole_batches():
    x = torch.tensor([[0.5, 2.0], [3.0, 1.0]])
    density = torch.func.vmap(lambda v: D.Exponential(2.0).log_prob(v))
    assert torch.equal(density(x), D.Exponential(2.0).log_prob(x))
    slopes = torch.func.vmap(torch.func.grad(lambda s: D.Normal(0.0, s).log_prob(x).sum()))
    assert slopes(torch.tensor([1.0, 2.0])).shape == (2,)
    with pytest.raises(ValueError, match="to be within the support"):
        density(-x)
