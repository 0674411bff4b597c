"""Special functions where formulas change: tails, large parameters, poles and infinities. Values are mpmath's, to the
digits given; at infinities they are PyTorch 2.13's."""

from __future__ import annotations

import math

import pytest

import torchlike as torch

INF, NAN = math.inf, math.nan
UPPER_GAMMA = [
    (88, 105, 0.04074345519966287),
    (1e-30, 1, 2.193839343955203e-31),
    (1e-30, 0.5, 5.597735947761608e-31),
    (1e-4, 0.3, 9.056928469659785e-05),
    (21, 25, 0.18549230269414207),
    (300, 310, 0.27751124582813896),
    (9e4, 9.05e4, 0.04798623079627203),
    (1.1e5, 1.12e5, 1.0170117594491709e-09),
    (1e6, 1e6, 0.4998670192391274),
    (1e12, 1e12 - 1e6, 0.8413447460685831),
    (1e30, 1e30, 0.5),
]


@pytest.mark.parametrize(("a", "x", "upper"), UPPER_GAMMA)
def test_incomplete_gamma_functions_keep_their_digits(a, x, upper):
    a, x = torch.tensor([a, x], dtype=torch.float64)
    assert torch.special.gammaincc(a, x).item() == pytest.approx(upper, rel=1e-13)
    assert torch.special.gammainc(a, x).item() == pytest.approx(1 - upper, rel=1e-13)


def test_incomplete_gamma_functions_change_formulas_without_a_step():
    for a in (19.99, 20.01, 99_999.0, 100_001.0):
        x = torch.tensor([a * 0.99, a, a * 1.01], dtype=torch.float64)
        steps = torch.special.gammainc(torch.tensor(a, dtype=torch.float64), x * (1 + 1e-9))
        slope = (steps - torch.special.gammainc(torch.tensor(a, dtype=torch.float64), x)) / (
            x * 1e-9
        )
        density = torch.exp(
            (a - 1) * x.log() - x - torch.lgamma(torch.tensor(a, dtype=torch.float64))
        )
        assert torch.allclose(slope, density, rtol=1e-4, atol=1e-12)


@pytest.mark.parametrize("name", ["airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1"])
def test_oscillating_functions_have_no_value_at_infinity(name):
    assert torch.special.airy_ai(torch.tensor([1e4])).item() == 0
    assert all(
        map(math.isnan, getattr(torch.special, name)(torch.tensor([INF, -INF, NAN])).tolist())
    )


def test_bessel_functions_between_their_expansions():
    at = torch.tensor([5.5, 8.0], dtype=torch.float64)
    known = {
        "bessel_j0": [-0.00684386941781920, 0.171650807137554],
        "bessel_j1": [-0.341438215429043, 0.234636346853915],
        "bessel_y0": [-0.339480592881911, 0.223521489387566],
        "bessel_y1": [-0.0237582389563896, -0.158060461731247],
    }
    for name, values in known.items():
        assert getattr(torch.special, name)(at).tolist() == pytest.approx(values, rel=1e-12)


def test_zeta_at_its_edges():
    zeta = torch.special.zeta
    s = torch.tensor([INF, INF, INF, NAN, NAN, 1.0, 0.5])
    q = torch.tensor([1.0, 0.5, 0.0, -1.0, 2.0, 2.0, 2.0])
    values = zeta(s, q).tolist()
    assert values[:4] == [1.0, INF, INF, INF]
    assert math.isnan(values[4])
    assert values[5] == INF
    assert math.isnan(values[6])
    assert torch.special.ndtri(torch.tensor(0.5)).item() == 0


def test_digamma_at_poles_roots_and_where_formulas_change():
    known = [
        (-17.125, 10.453927996426355),
        (-2.5, 1.103156640645243),
        (-0.001, 999.4211381978913),
        (0.25, -4.2274535333762655),
        (1.0, -0.5772156649015329),
        (1.5, 0.03648997397857652),
        (9.99, 2.250700372831201),
        (10.01, 2.2528037003181356),
        (1e5, 11.512920464961896),
        (0.0, -INF),
        (-0.0, INF),
        (INF, INF),
        (-INF, NAN),
        (-3.0, NAN),
        (NAN, NAN),
    ]
    for dtype, digits in ((torch.float64, 3e-15), (torch.float32, 2e-7)):
        x = torch.tensor([x for x, _ in known] * 5, dtype=dtype)
        for got, (_, want) in zip(x.digamma().tolist(), known * 5, strict=True):
            assert got == pytest.approx(want, rel=digits, abs=digits, nan_ok=True)


def test_the_logarithm_of_the_normal_distribution_on_both_sides_and_far_out():
    known = [
        (-1e4, -50000010.12927891),
        (-40.5, -824.745849244038),
        (-30.5, -469.4627373229121),
        (-29.5, -439.42947460915025),
        (-5.0, -15.064998393988725),
        (-1.0, -1.8410216450092636),
        (-0.25, -0.9130617648111351),
        (0.25, -0.5129840754094305),
        (3.0, -0.0013508099647481938),
        (9.0, -1.1285884059538405e-19),
        (20.0, -2.7536241186062337e-89),
        (INF, 0.0),
        (-INF, -INF),
        (NAN, NAN),
    ]
    for dtype, digits in ((torch.float64, 5e-16), (torch.float32, 2e-7)):
        x = torch.tensor([x for x, _ in known] * 5, dtype=dtype)
        for got, (_, want) in zip(torch.special.log_ndtr(x).tolist(), known * 5, strict=True):
            assert got == pytest.approx(want, rel=digits, abs=1e-44, nan_ok=True)
