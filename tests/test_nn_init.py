"""Initialisers: values, bounds, messages."""

import math

import pytest

import torchlike as torch
from torchlike import nn
from torchlike.nn import init


@pytest.mark.parametrize(
    ("name", "param", "gain"),
    [
        ("linear", None, 1),
        ("conv_transpose3d", None, 1),
        ("tanh", None, 5 / 3),
        ("relu", None, math.sqrt(2)),
        ("leaky_relu", None, math.sqrt(2 / (1 + 0.01**2))),
        ("leaky_relu", 2, math.sqrt(2 / 5)),
        ("selu", None, 0.75),
    ],
)
def test_gain(name, param, gain):
    assert init.calculate_gain(name, param) == gain


@pytest.mark.parametrize(
    ("act", "text"),
    [
        (lambda: init.calculate_gain("foo"), "Unsupported nonlinearity foo"),
        (lambda: init.calculate_gain("leaky_relu", "a"), "negative_slope a not a valid number"),
        (lambda: init.xavier_uniform_(torch.ones(3)),
         "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions"),
        (lambda: init.kaiming_normal_(torch.ones(3, 3), mode="foo"),
         "Mode foo not supported, please use one of ['fan_in', 'fan_out']"),
        (lambda: init.dirac_(torch.ones(3, 2, 2), groups=2), "dim 0 must be divisible by groups"),
        (lambda: init.eye_(torch.ones(3)), "Only tensors with 2 dimensions are supported"),
        (lambda: init.sparse_(torch.ones(3), 0.1), "Only tensors with 2 dimensions are supported"),
        (lambda: init.orthogonal_(torch.ones(3)),
         "Only tensors with 2 or more dimensions are supported"),
    ],
)  # fmt: skip
def test_messages(act, text):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        act()
    assert str(caught.value) == text


def test_constants():
    assert init.ones_(torch.empty(2)).tolist() == [1.0, 1.0]
    assert init.zeros_(torch.empty(2)).tolist() == [0.0, 0.0]
    assert init.constant_(torch.empty(2), 3).tolist() == [3.0, 3.0]
    assert init.eye_(torch.empty(2, 3)).tolist() == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    kernel = init.dirac_(torch.empty(2, 1, 3), groups=2)
    assert kernel.tolist() == [[[0.0, 1.0, 0.0]], [[0.0, 1.0, 0.0]]]


def test_linear_is_drawn_as_by_hand():
    torch.manual_seed(0)
    layer = nn.Linear(4, 3)
    torch.manual_seed(0)
    bound = math.sqrt(3.0) * (init.calculate_gain("leaky_relu", math.sqrt(5)) / math.sqrt(4))
    weight = torch.empty(3, 4).uniform_(-bound, bound)
    bias = torch.empty(3).uniform_(-0.5, 0.5)
    assert layer.weight.tolist() == weight.tolist() and layer.bias.tolist() == bias.tolist()


def test_trunc_normal_stays_within_its_bounds():
    torch.manual_seed(1)
    w = init.trunc_normal_(torch.empty(50, 50), 0.0, 1.0, -0.5, 0.5)
    assert w.min().item() >= -0.5 and w.max().item() <= 0.5
    w = init.trunc_normal_(torch.empty(50, 50), 0.0, 1.0, 1.5, 2.5)
    assert w.min().item() >= 1.5 and w.max().item() <= 2.5
    with pytest.warns(UserWarning, match="mean is more than 2 std from"):
        init.trunc_normal_(torch.empty(2), 0.0, 1.0, 3.0, 4.0)


def test_a_generator_of_ones_own():
    g = torch.Generator().manual_seed(7)
    state = torch.get_rng_state().tolist()
    first = init.kaiming_uniform_(torch.empty(3, 3), generator=g)
    assert torch.get_rng_state().tolist() == state
    again = init.kaiming_uniform_(torch.empty(3, 3), generator=torch.Generator().manual_seed(7))
    assert first.tolist() == again.tolist()


def test_meta_draws_nothing():
    torch.manual_seed(0)
    w = torch.empty(3, 3, device="meta")
    for fill in (init.uniform_, init.normal_, init.trunc_normal_, init.orthogonal_,
                 init.kaiming_uniform_, init.xavier_normal_):  # fmt: skip
        assert fill(w) is w
    init.sparse_(w, 0.1)
    nn.TransformerEncoderLayer(8, 2, device="meta")
    assert round(torch.rand(1).item(), 4) == 0.4963


def test_old_names_and_empty_tensors():
    with pytest.warns(FutureWarning, match=r"`nn.init.normal` is now deprecated"):
        init.normal(torch.empty(2))
    with pytest.warns(UserWarning, match="Initializing zero-element tensors is a no-op"):
        init.kaiming_uniform_(torch.empty(0, 3))


@pytest.mark.parametrize("make", [lambda: nn.Conv2d(3, 4, 2), lambda: nn.ConvTranspose2d(3, 4, 2)])
def test_weights_of_convolutions_are_drawn_in_one_order_whatever_their_layout(make):
    torch.manual_seed(0)
    plain = make()
    other = make().to(memory_format=torch.channels_last)
    torch.manual_seed(0)
    other.reset_parameters()
    assert not other.weight.is_contiguous()
    assert torch.equal(plain.weight, other.weight) and torch.equal(plain.bias, other.bias)


def test_convolutions_of_no_channels_draw_a_bias_of_zeros():
    torch.manual_seed(0)
    with pytest.warns(UserWarning, match="Initializing zero-element tensors is a no-op"):
        layer = nn.Conv2d(0, 16, 1)
    assert layer.bias.tolist() == [0.0] * 16
    assert round(torch.rand(1).item(), 4) == 0.6977
