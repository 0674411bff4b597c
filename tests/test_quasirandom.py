"""Sobol sequences: PyTorch's points, by recorded numbers and by their own laws."""

import copy

import pytest

import torchlike as torch
from torchlike.quasirandom import SobolEngine


def test_first_points_are_those_of_the_published_numbers():
    points = SobolEngine(5).draw(4, dtype=torch.float64)
    assert points.tolist() == [
        [0.0, 0.0, 0.0, 0.0, 0.0],
        [0.5, 0.5, 0.5, 0.5, 0.5],
        [0.75, 0.25, 0.25, 0.25, 0.75],
        [0.25, 0.75, 0.75, 0.75, 0.25],
    ]


def test_scrambled_points_are_those_of_the_seed():
    engine = SobolEngine(2, scramble=True, seed=7)
    assert repr(engine) == "SobolEngine(dimension=2, scramble=True, seed=7)"
    # Recorded with PyTorch 2.13.
    assert engine.draw(3).mul(2**24).long().tolist() == [
        [3346603, 2867766],
        [15860406, 15020399],
        [10896949, 8113951],
    ]


@pytest.mark.parametrize("scramble", [False, True])
@pytest.mark.parametrize("dimension", [1, 3, 1111])
def test_points_do_not_depend_on_how_they_are_asked_for(dimension, scramble):
    whole = SobolEngine(dimension, scramble, seed=1).draw(300)
    parts = SobolEngine(dimension, scramble, seed=1)
    assert torch.equal(torch.cat([parts.draw(n) for n in (1, 2, 64, 100, 133)]), whole)
    assert parts.num_generated == 300
    assert torch.equal(parts.reset().fast_forward(17).draw(9), whole[17:26])
    twin = copy.deepcopy(parts)
    assert torch.equal(twin.draw(5), parts.draw(5))


def test_each_power_of_two_fills_every_interval_once():
    engine = SobolEngine(64, scramble=True, seed=3)
    points = engine.draw_base2(8)
    assert torch.equal(
        (points * 256).long().sort(0).values, torch.arange(256)[:, None].expand(256, 64)
    )
    with pytest.raises(ValueError, match="256 points have been previously generated"):
        engine.draw_base2(3)
    out = torch.empty(0)
    assert engine.draw_base2(8, out=out) is out
    assert out.shape == (256, 64)


@pytest.mark.parametrize("dimension", [0, 1112])
def test_other_dimensions_are_refused(dimension):
    with pytest.raises(
        ValueError, match=r"Supported range of dimensionality for SobolEngine is \[1, 1111\]"
    ):
        SobolEngine(dimension)
