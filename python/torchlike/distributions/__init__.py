"""Probability distributions: samples, densities and divergences, with gradients where they exist."""

from torchlike.distributions import _kl_across, constraints, transforms
from torchlike.distributions.bernoulli import Bernoulli
from torchlike.distributions.beta import Beta
from torchlike.distributions.binomial import Binomial
from torchlike.distributions.categorical import Categorical
from torchlike.distributions.cauchy import Cauchy
from torchlike.distributions.chi2 import Chi2
from torchlike.distributions.constraint_registry import biject_to, transform_to
from torchlike.distributions.continuous_bernoulli import ContinuousBernoulli
from torchlike.distributions.dirichlet import Dirichlet
from torchlike.distributions.distribution import Distribution
from torchlike.distributions.exp_family import ExponentialFamily
from torchlike.distributions.exponential import Exponential
from torchlike.distributions.fishersnedecor import FisherSnedecor
from torchlike.distributions.gamma import Gamma
from torchlike.distributions.generalized_pareto import GeneralizedPareto
from torchlike.distributions.geometric import Geometric
from torchlike.distributions.gumbel import Gumbel
from torchlike.distributions.half_cauchy import HalfCauchy
from torchlike.distributions.half_normal import HalfNormal
from torchlike.distributions.independent import Independent
from torchlike.distributions.inverse_gamma import InverseGamma
from torchlike.distributions.kl import kl_divergence, register_kl
from torchlike.distributions.kumaraswamy import Kumaraswamy
from torchlike.distributions.laplace import Laplace
from torchlike.distributions.lkj_cholesky import LKJCholesky
from torchlike.distributions.log_normal import LogNormal
from torchlike.distributions.logistic_normal import LogisticNormal
from torchlike.distributions.lowrank_multivariate_normal import LowRankMultivariateNormal
from torchlike.distributions.mixture_same_family import MixtureSameFamily
from torchlike.distributions.multinomial import Multinomial
from torchlike.distributions.multivariate_normal import MultivariateNormal
from torchlike.distributions.negative_binomial import NegativeBinomial
from torchlike.distributions.normal import Normal
from torchlike.distributions.one_hot_categorical import (
    OneHotCategorical,
    OneHotCategoricalStraightThrough,
)
from torchlike.distributions.pareto import Pareto
from torchlike.distributions.poisson import Poisson
from torchlike.distributions.relaxed_bernoulli import RelaxedBernoulli
from torchlike.distributions.relaxed_categorical import RelaxedOneHotCategorical
from torchlike.distributions.studentT import StudentT
from torchlike.distributions.transformed_distribution import TransformedDistribution
from torchlike.distributions.transforms import *
from torchlike.distributions.uniform import Uniform
from torchlike.distributions.von_mises import VonMises
from torchlike.distributions.weibull import Weibull
from torchlike.distributions.wishart import Wishart
