"""Derivatives at corners, singular points and of nothing: what PyTorch 2.13 gives there."""

import math

import pytest

import torchlike as torch
import torchlike.nn.functional as F
from torchlike.func import jvp

nan, inf = math.nan, math.inf


def along(func, *primals):
    """The derivative along tangents of twos."""
    return jvp(func, primals, tuple(torch.full_like(x, 2) for x in primals))[1]


def same(got, want):
    want = torch.as_tensor(want, dtype=got.dtype)
    torch.testing.assert_close(got, want, equal_nan=True)


POINTS = torch.tensor([nan, 1.0, -1.0, 2.0])
OTHERS = torch.tensor([1.0, 1.0, nan, 0.0])


@pytest.mark.parametrize(
    ("func", "primals", "want"),
    [
        (lambda x: torch.maximum(x, OTHERS), [POINTS], [0, 1, 0, 2]),
        (lambda x: torch.minimum(x, OTHERS), [POINTS], [0, 1, 0, 0]),
        (lambda x: x.clamp(min=OTHERS), [POINTS], [0, 0, 0, 2]),
        (lambda x: torch.clamp_min(x, OTHERS), [POINTS], [0, 2, 0, 2]),
        (lambda x: torch.fmax(x, OTHERS), [POINTS], [0, 0, 2, 2]),
        (lambda x: torch.clamp(POINTS, max=x), [OTHERS], [2, 2, 2, 2]),
        (lambda x: torch.clamp(x, OTHERS, OTHERS), [OTHERS * 1], [2, 2, 2, 2]),
        (lambda x: x.std(), [torch.ones(3)], 0),
        (lambda x: x.logsumexp(1), [torch.ones(2, 0)], [nan, nan]),
        (torch.angle, [torch.tensor([0, 1 + 1j])], [0, -1]),
        (torch.sgn, [torch.tensor([0, 2j])], [0, 1]),
    ],
)  # fmt: skip
def test_tangents(func, primals, want):
    same(along(func, *primals), want)


def test_tangents_of_polar_need_no_length():
    lengths, angles = torch.tensor([0.0, -1.0]), torch.tensor([2.0, 1.0])
    turned = torch.complex(angles.cos(), angles.sin())
    same(along(lambda r: torch.polar(r, angles), lengths), 2 * turned)
    same(along(lambda a: torch.polar(lengths, a), angles), 2j * lengths * turned)


def twice(func, *inputs):
    """Gradients for twos, and the gradients of those for threes: by the inputs, and by the twos."""
    inputs = [x.clone().requires_grad_() for x in inputs]
    made = func(*inputs)
    twos = torch.full_like(made, 2).requires_grad_()
    first = torch.autograd.grad(made, inputs, twos, create_graph=True)
    threes = [torch.full_like(g, 3) for g in first]
    return first, torch.autograd.grad(first, [*inputs, twos], threes, allow_unused=True)


def test_prelu_at_zero():
    _, (by_x, by_weight, by_twos) = twice(
        F.prelu, torch.tensor([0.0, 1.0, -1.0]), torch.tensor([0.25])
    )
    same(by_x, [0, 0, 6])
    same(by_weight, [6])
    same(by_twos, [3, 3, -2.25])


@pytest.mark.parametrize("func", [F.hardtanh, F.relu6])
def test_limits_pass_the_gradient_of_nan(func):
    (first,), (by_x, by_twos) = twice(func, torch.tensor([nan, 7.0, 0.5]))
    same(first, [2, 0, 2])
    same(by_x, [0, 0, 0])
    same(by_twos, [3, 0, 3])


def test_bounds_of_norms_and_variances_pass_gradients():
    x, y = torch.tensor([3.0, 4.0]), torch.tensor([1.0, 0.0])
    (by_x, _), _ = twice(lambda a, b: F.cosine_similarity(a, b, dim=0, eps=10.0), x, y)
    torch.testing.assert_close(by_x, torch.tensor([0.0164, -0.0048]), atol=1e-6, rtol=0)
    _, _, by_var = torch.autograd.functional.vjp(
        lambda a, b, v: F.gaussian_nll_loss(a, b, v, eps=2.0, reduction="sum"),
        (torch.tensor([1.0]), torch.tensor([3.0]), torch.tensor([1.0])),
    )[1]
    same(by_var, [-0.25])


def test_tangents_of_running_sums_of_complex_numbers_keep_their_digits():
    x = torch.linspace(-20, 20, 5, dtype=torch.float64)
    made = along(lambda x: torch.logcumsumexp(x, 0), torch.complex(x, x))
    torch.testing.assert_close(made, torch.full((5,), 2 + 0j, dtype=made.dtype), rtol=1e-4, atol=0)
    assert abs(made[-1] - 2) < 1e-12


def test_atan2_at_the_origin():
    (by_y, by_x), _ = twice(torch.atan2, torch.tensor([0.0, 1.0]), torch.tensor([0.0, 0.0]))
    same(by_y, [0, 0])
    same(by_x, [0, -2])


def test_products_of_nothing_are_differentiable():
    (first,), (by_x, by_twos) = twice(lambda x: x.prod(1), torch.ones(3, 0))
    assert first.shape == by_x.shape == (3, 0)
    same(by_twos, [0, 0, 0])
    x = torch.ones(0, 0, requires_grad=True)
    (by_det,) = torch.autograd.grad(torch.linalg.det(x), x, create_graph=True)
    assert by_det.shape == (0, 0)
    assert not by_det.requires_grad


@pytest.mark.parametrize(
    ("labels", "loss", "gradient"),
    [
        ([1, 0, 2], 3.8854645, [-0.4568380, 0.1475458, 0.1627826, 0.1465089]),
        ([0, 0], 5.4038033, [-0.6091400, 0.2705503, 0.1920809, 0.1465089]),
        ([2, 0, 2], 3.7324286, [-0.4971642, 0.2705503, 0.0801049, 0.1465089]),
    ],
)
def test_ctc_loss_of_labels_that_are_blank(labels, loss, gradient):
    x = (torch.arange(24.0).view(6, 1, 4) * 0.37).sin().log_softmax(-1).requires_grad_()
    lengths = torch.tensor([6]), torch.tensor([len(labels)])
    made = F.ctc_loss(x, torch.tensor([labels]), *lengths, reduction="sum")
    same(made.detach(), loss)
    same(torch.autograd.grad(made, x)[0][2, 0], gradient)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sinc_of_numbers_whose_square_is_nothing(dtype):
    small = torch.finfo(dtype).tiny
    x = torch.tensor([0.0, small, -small / 8, 0.5], dtype=dtype, requires_grad=True)
    (made,) = torch.autograd.grad(torch.sinc(x).sum(), x)
    same(made, [0.0, 0.0, 0.0, -4 / math.pi])


@pytest.mark.parametrize("in_dims", [(None, 0), (0, None), (0, 0)])
def test_cross_entropy_of_probabilities_that_are_the_same_for_all(in_dims):
    p, y = torch.tensor([0.2, 0.7]), torch.tensor([0.0, 1.0])
    x = p.repeat(3, 1) if in_dims[0] == 0 else p
    x.requires_grad_()
    y = y.repeat(3, 1) if in_dims[1] == 0 else y
    made = torch.vmap(F.binary_cross_entropy, in_dims)(x, y)
    same(made.detach(), [(-math.log(0.8) - math.log(0.7)) / 2] * 3)
    (gradient,) = torch.autograd.grad(made.sum(), x)
    one = torch.tensor([1 / 0.8, -1 / 0.7]) / 2
    same(gradient, one.repeat(3, 1) if in_dims[0] == 0 else 3 * one)

    def change(x, y):
        return along(lambda x: F.binary_cross_entropy(x, y), x)

    same(torch.vmap(change, in_dims)(x.detach(), y), [2 * one.sum().item()] * 3)


def test_weights_of_hinge_losses_want_no_gradient():
    x, classes = torch.rand(2, 3, requires_grad=True), torch.tensor([0, 2])
    weight = torch.rand(3)
    F.multi_margin_loss(x, classes, weight=weight).backward()
    assert x.grad.abs().sum() > 0
    with pytest.raises(
        RuntimeError, match="'multi_margin_loss' is not differentiable with respect"
    ):
        F.multi_margin_loss(x, classes, weight=weight.requires_grad_())


def test_bounds_of_bytes_are_whole_numbers():
    t = torch.tensor([0, 1, 5, 9], dtype=torch.uint8)
    assert F.hardtanh(t, -0.5, 3.7).tolist() == [0, 1, 3, 3]
    with pytest.raises(RuntimeError, match="unsigned type with negative limits"):
        F.hardtanh(t, -1.5, 3.7)


def test_gradients_of_convolutions_lead_to_what_they_do_not_depend_on():
    x, w = torch.ones(1, 2, 4, 4, requires_grad=True), torch.ones(2, 2, 2, 2)
    (g,) = torch.autograd.grad(F.conv2d(x, w).sum(), x, create_graph=True)
    assert g.requires_grad
    assert torch.autograd.grad(g.sum(), x, allow_unused=True, retain_graph=True) == (None,)
    g.sum().backward()
    assert x.grad is None and w.grad is None
    w.requires_grad_()
    (g,) = torch.autograd.grad(F.conv2d(x.detach(), w).sum(), w, create_graph=True)
    g.sum().backward()
    assert w.grad is None


def test_what_has_no_gradient_of_complex_numbers_says_so():
    c = torch.ones(2, 2, dtype=torch.complex64, requires_grad=True)
    for call in (torch.Tensor.nan_to_num, torch.Tensor.to_sparse):
        with pytest.raises(RuntimeError, match="for outputs with complex dtype"):
            call(c)
    assert (c * 1).nan_to_num_().requires_grad


def test_vector_products_are_of_one_type():
    cross = torch.linalg.cross
    with pytest.raises(RuntimeError, match="expected scalar type Float but found Double"):
        cross(torch.ones(3), torch.ones(3, dtype=torch.float64))
    with pytest.raises(NotImplementedError, match="not implemented for 'Bool'"):
        cross(torch.ones(3, dtype=torch.bool), torch.ones(3))


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize(
    ("function", "spread"), [(torch.var, 0.0), (torch.var_mean, 0.0), (torch.std_mean, nan)]
)
def test_spreads_of_nothing_have_the_tangents_of_sums_and_means(function, spread):
    x = torch.zeros(0, 5)
    tangents = jvp(lambda x: function(x, dim=0), (x,), (x,))[1]
    first, *mean = tangents if isinstance(tangents, tuple) else (tangents,)
    same(first, [spread] * 5)
    assert all(m.isnan().all() for m in mean)
