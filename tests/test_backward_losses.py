"""Backward operators of activations, losses, softmax, embeddings and distances against numerical derivatives."""

from __future__ import annotations

import pytest

import torchlike as torch
from derivatives import derivative

F = torch.nn.functional
aten = torch.ops.aten


def drawn(*shape, seed=0, near=0.0):
    """Doubles that keep away from the corners of piecewise functions, which lie at multiples of a half."""
    torch.manual_seed(seed)
    x = torch.randn(shape, dtype=torch.float64) * 2
    corner = torch.round(x * 2) / 2
    gap = x - corner
    return torch.where(gap.abs() < 0.02, corner + 0.1, x) + near


def agree(got, function, x, g, atol=1e-7, rtol=1e-6):
    want = derivative(function, x, g)
    assert got.shape == want.shape
    assert torch.allclose(got, want, atol=atol, rtol=rtol), (got - want).abs().max()


def like(function, x, seed=1):
    """A cotangent for the result of a function."""
    return drawn(*function(x).shape, seed=seed)


POINTWISE = {
    "gelu": (F.gelu, lambda g, x: aten.gelu_backward(g, x)),
    "gelu_tanh": (
        lambda x: F.gelu(x, approximate="tanh"),
        lambda g, x: aten.gelu_backward(g, x, approximate="tanh"),
    ),
    "silu": (F.silu, aten.silu_backward),
    "mish": (F.mish, aten.mish_backward),
    "hardswish": (F.hardswish, aten.hardswish_backward),
    "threshold": (
        lambda x: F.threshold(x, 0.5, 3.0),
        lambda g, x: aten.threshold_backward(g, x, 0.5),
    ),
    "elu": (
        lambda x: 1.1 * torch.where(x > 0, x, 1.5 * torch.expm1(0.7 * x)),
        lambda g, x: aten.elu_backward(g, 1.5, 1.1, 0.7, False, x),
    ),
    "hardtanh": (
        lambda x: F.hardtanh(x, -1, 1.5),
        lambda g, x: aten.hardtanh_backward(g, x, -1, 1.5),
    ),
    "leaky_relu": (
        lambda x: F.leaky_relu(x, 0.2),
        lambda g, x: aten.leaky_relu_backward(g, x, 0.2, False),
    ),
    "softplus": (
        lambda x: F.softplus(x, 1.5, 2.25),
        lambda g, x: aten.softplus_backward(g, x, 1.5, 2.25),
    ),
    "softshrink": (
        lambda x: F.softshrink(x, 0.5),
        lambda g, x: aten.softshrink_backward(g, x, 0.5),
    ),
    "hardshrink": (
        lambda x: F.hardshrink(x, 0.5),
        lambda g, x: aten.hardshrink_backward(g, x, 0.5),
    ),
    "log_sigmoid": (F.logsigmoid, lambda g, x: aten.log_sigmoid_backward(g, x, torch.empty(0))),
    "sigmoid": (torch.sigmoid, lambda g, x: aten.sigmoid_backward(g, torch.sigmoid(x))),
    "tanh": (torch.tanh, lambda g, x: aten.tanh_backward(g, torch.tanh(x))),
    "elu_result": (
        lambda x: F.elu(x, 1.5),
        lambda g, x: aten.elu_backward(g, 1.5, 1, 1, True, F.elu(x, 1.5)),
    ),
}


@pytest.mark.parametrize("name", POINTWISE)
@pytest.mark.parametrize("shape", [(3, 4), (5,), (), (0, 2), (2, 3, 5)])
def test_activations(name, shape):
    forward, backward = POINTWISE[name]
    x, g = drawn(*shape), drawn(*shape, seed=1)
    agree(backward(g, x), forward, x, g)


def test_the_sixth_of_hardsigmoid_has_single_precision():
    x, g = drawn(3, 4), drawn(3, 4, seed=1)
    agree(aten.hardsigmoid_backward(g, x), F.hardsigmoid, x, g, atol=1e-6)


@pytest.mark.parametrize("eps", [None, 0.2])
def test_logit(eps):
    x, g = drawn(4, 5).sigmoid() * 0.9 + 0.05, drawn(4, 5)
    agree(aten.logit_backward(g, x, eps), lambda x: torch.logit(x, eps), x, g, atol=1e-4)
    outside = aten.logit_backward(torch.ones(2), torch.tensor([-1.0, 2.0]), eps)
    assert outside.isnan().all() if eps is None else not outside.any()


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_glu(dim):
    x = drawn(4, 6, 2)
    g = like(lambda x: F.glu(x, dim), x)
    agree(aten.glu_backward(g, x, dim), lambda x: F.glu(x, dim), x, g)
    assert aten.glu_backward(g, x.transpose(0, 1).contiguous().transpose(0, 1), dim).is_contiguous()


def test_prelu_and_rrelu():
    x, g, w = drawn(3, 4, 2), drawn(3, 4, 2, seed=1), drawn(1, 4, 1, seed=2)
    by_x, by_w = aten._prelu_kernel_backward(g, x, w)
    agree(by_x, lambda x: torch.where(x > 0, x, w * x), x, g)
    agree(by_w.sum((0, 2), keepdim=True), lambda w: torch.where(x > 0, x, w * x), w, g)
    noise = torch.where(x > 0, 1.0, 0.3)
    got = aten.rrelu_with_noise_backward(g, x, noise, 0.1, 0.5, True, False)
    agree(got, lambda x: x * noise, x, g)
    got = aten.rrelu_with_noise_backward(g, x, noise, 0.1, 0.5, False, False)
    agree(got, lambda x: F.rrelu(x, 0.1, 0.5, False), x, g)


def test_rows_left_out_of_embeddings_have_no_gradient():
    w = torch.ones(3, 2, requires_grad=True)
    torch.ops.aten.embedding(w, torch.tensor([0, 1, 1]), 1).sum().backward()
    assert w.grad.tolist() == [[1, 1], [0, 0], [0, 0]]
    w.grad = None
    torch.ops.aten.embedding(w, torch.tensor([2, 2]), -1, True).sum().backward()
    assert w.grad.tolist() == [[0, 0], [0, 0], [1, 1]]


def test_dropout_scales_what_it_kept():
    g, mask = drawn(3, 4), torch.rand(3, 4) > 0.5
    assert torch.equal(aten.native_dropout_backward(g, mask, 2.0), g * mask * 2)
    assert aten.native_dropout_backward(g.to(torch.bfloat16), mask, 2.0).dtype is torch.bfloat16


def test_complex_results_are_conjugated():
    y = torch.complex(drawn(3), drawn(3, seed=1))
    g = torch.complex(drawn(3, seed=2), drawn(3, seed=3))
    assert torch.allclose(aten.sigmoid_backward(g, y), g * ((1 - y) * y).conj())
    assert torch.allclose(aten.tanh_backward(g, y), g * (1 - y * y).conj())


def test_results_lie_as_pytorch_s_do():
    g, x = drawn(4, 3).t(), drawn(3, 4)
    assert aten.sigmoid_backward(g, x).stride() == (1, 3)
    assert aten.threshold_backward(g, x, 0).stride() == (4, 1)
    assert aten.mse_loss_backward(g, x.t().contiguous().t(), x, 0).stride() == (4, 1)
    assert aten.binary_cross_entropy_backward(g, g.sigmoid(), x).stride() == (1, 3)


@pytest.mark.parametrize("shape", [(3, 4), (5,), (), (2, 3, 4), (2, 0, 3), (3, 150)])
def test_softmax(shape):
    for dim in range(max(1, len(shape))):
        for forward, backward in (
            (torch.softmax, torch._softmax_backward_data),
            (torch.log_softmax, torch._log_softmax_backward_data),
        ):
            x, g = drawn(*shape), drawn(*shape, seed=1)
            got = backward(g, forward(x, dim), dim, torch.float64)
            agree(got, lambda x: forward(x, dim), x, g)  # noqa: B023 (called at once)


LOSSES = {
    "mse": (F.mse_loss, aten.mse_loss_backward, ()),
    "smooth_l1": (F.smooth_l1_loss, aten.smooth_l1_loss_backward, (0.5,)),
    "huber": (F.huber_loss, aten.huber_loss_backward, (0.5,)),
    "soft_margin": (F.soft_margin_loss, aten.soft_margin_loss_backward, ()),
    "binary_cross_entropy": (F.binary_cross_entropy, None, ()),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("code", [0, 1, 2])
def test_losses_of_pairs(name, code):
    function, backward, extra = LOSSES[name]
    how = dict(reduction=("none", "mean", "sum")[code])
    how |= {"smooth_l1": dict(beta=0.5), "huber": dict(delta=0.5)}.get(name, {})
    for shape in ((3, 4), (5,), ()):
        x, y = drawn(*shape), drawn(*shape, seed=1) * 0.7
        if backward is None:
            x, y, w = x.sigmoid(), y.sigmoid(), drawn(*shape, seed=2).abs()
            forward = lambda x: function(x, y, w, **how)  # noqa: B023, E731
            got = aten.binary_cross_entropy_backward(like(forward, x), x, y, w, code)
        else:
            forward = lambda x: function(x, y, **how)  # noqa: B023, E731
            got = backward(like(forward, x), x, y, code, *extra)
        agree(got, forward, x, like(forward, x))


@pytest.mark.parametrize("code", [0, 1, 2])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(5, 4), (4,), (2, 4, 3, 2)])
def test_nll_loss(code, weighted, shape):
    x = drawn(*shape)
    classes = [(), (5,), None, (2, 3, 2)][len(shape) - 1]
    target = torch.randint(0, 4, classes)
    weight = drawn(4, seed=2).abs() if weighted else None
    ignore = int(target.reshape(-1)[-1]) if target.dim() else -100
    how = dict(weight=weight, ignore_index=ignore, reduction=("none", "mean", "sum")[code])
    forward = lambda x: F.nll_loss(x, target, **how)  # noqa: E731
    total = aten.nll_loss_forward(x, target, weight, code, ignore)[1]
    backward = aten.nll_loss2d_backward if len(shape) == 4 else aten.nll_loss_backward
    g = like(forward, x)
    agree(backward(g, x, target, weight, code, ignore, total), forward, x, g)


@pytest.mark.parametrize("code", [0, 1, 2])
def test_margin_losses(code):
    x, how = drawn(5, 4), dict(reduction=("none", "mean", "sum")[code])
    target, w = torch.tensor([0, 1, 3, 1, 2]), drawn(4, seed=2).abs()
    for p in (1, 2):
        forward = lambda x: F.multi_margin_loss(x, target, p, 0.7, w, **how)  # noqa: B023, E731
        g = like(forward, x)
        got = aten.multi_margin_loss_backward(g, x, target, p, 0.7, w, code)
        agree(got, forward, x, g)
    sets = torch.tensor(
        [[0, 1, -1, -1], [2, -1, -1, -1], [3, 0, 1, 2], [-1, 0, 0, 0], [1, 3, -1, 0]]
    )
    forward = lambda x: F.multilabel_margin_loss(x, sets, **how)  # noqa: E731
    chosen = aten.multilabel_margin_loss_forward(x, sets, code)[1]
    assert chosen[0].tolist() == [1, 1, 0, 0] and not chosen[3].any()
    g = like(forward, x)
    agree(aten.multilabel_margin_loss_backward(g, x, sets, code, chosen), forward, x, g)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bits_are_computed_with_in_single_precision(dtype):
    x, g, w = (drawn(*s, seed=k).to(dtype) for k, s in enumerate([(70, 33), (70, 33), (33,)]))
    near = dict(rtol=torch.finfo(dtype).eps, atol=1e-3)

    def double(call, *args):
        made = call(*(t.to(torch.float64) if isinstance(t, torch.Tensor) else t for t in args))
        return made if isinstance(made, tuple) else (made,)

    for dim in (0, 1):
        for backward in (torch._softmax_backward_data, torch._log_softmax_backward_data):
            got = backward(g, x.sigmoid(), dim, dtype)
            want = double(lambda g, y: backward(g, y, dim, g.dtype), g, x.sigmoid())  # noqa: B023
            assert got.dtype is dtype
            assert torch.allclose(got.to(torch.float64), want[0], **near)
    _, mean, rstd = torch.native_layer_norm(x, [33], w.float(), w.float(), 1e-5)
    call = lambda g, x, m, r, w: aten.native_layer_norm_backward(  # noqa: E731
        g, x, [33], m, r, w, w, [True] * 3
    )
    args = (g, x, mean, rstd, w.float())
    for got, want in zip(call(*args), double(call, *args), strict=True):
        assert got.dtype is (dtype if got.dim() == 2 else torch.float32)
        assert torch.allclose(got.to(torch.float64), want, **near)


@pytest.mark.parametrize("columns", [1, 2, 65, 1301])
def test_softmax_of_pairs_of_sixteen_bits(columns):
    y, g = (drawn(5, columns, seed=k).to(torch.bfloat16) for k in range(2))
    g[3, columns // 2] = float("inf")
    y[4, -1] = float("nan")
    for backward in (torch._softmax_backward_data, torch._log_softmax_backward_data):
        got = backward(g, y.sigmoid(), 1, torch.bfloat16)
        want = backward(g.double(), y.sigmoid().double(), 1, torch.float64)
        assert torch.allclose(got.double(), want, rtol=2**-8, atol=1e-3, equal_nan=True)
        assert all(
            torch.equal(backward(g[i], y[i].sigmoid(), 0, y.dtype), got[i]) for i in range(3)
        )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.complex128])
def test_embedding(dtype):
    for shape in ((2, 3), (4,), (), (0,)):
        indices = torch.randint(0, 5, shape)
        g = drawn(*shape, 3).to(dtype)
        for padding in (-1, 1):
            want = torch.zeros(5, 3, dtype=torch.complex128)
            for i, row in zip(indices.reshape(-1).tolist(), g.reshape(-1, 3), strict=True):
                if i != padding:
                    want[i] += row
            got = aten.embedding_dense_backward(g, indices, 5, padding, False)
            assert got.dtype is dtype
            assert torch.allclose(
                got.to(torch.complex128),
                want,
                rtol=1e-2,
                atol=1e-2 if dtype.itemsize == 2 else 1e-6,
            )
    g, indices = torch.ones(4, 2), torch.tensor([1, 1, 0, 1])
    assert torch.allclose(aten.embedding_dense_backward(g, indices, 2, -1, True), torch.ones(2, 2))
    assert not aten.embedding_dense_backward(g, indices + 2, 2, -1, False).any()


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("padding", [None, 1])
def test_embedding_bag(mode, padding):
    w = drawn(6, 3)
    indices, offsets = torch.tensor([1, 2, 4, 1, 5]), torch.tensor([0, 2, 2])
    factors = drawn(5, seed=1) if mode == 0 else None

    def forward(w, factors=factors):
        how = dict(mode=mode, per_sample_weights=factors, padding_idx=padding)
        return torch.embedding_bag(w, indices, offsets, **how)

    out, bag_of, sizes, maxima = forward(w)
    g, skipped = drawn(*out.shape, seed=2), -1 if padding is None else padding
    for known in (bag_of, torch.empty(0, dtype=torch.int64)):
        args = (g, indices, offsets, known, sizes, maxima, 6, False, mode, False, factors, skipped)
        agree(aten._embedding_bag_backward(*args), lambda w: forward(w)[0], w, g)
    if factors is not None:
        args = (g, w, indices, offsets, bag_of, mode, skipped)
        got = aten._embedding_bag_per_sample_weights_backward(*args)
        agree(got, lambda f: forward(w, f)[0], factors, g)


@pytest.mark.parametrize("lengths", [([5, 4], [2, 1]), ([6, 6], [3, 0]), ([3, 6], [1, 3])])
def test_ctc_loss(lengths):
    steps, labels = lengths
    x, targets = torch.log_softmax(drawn(6, 2, 4), -1), torch.tensor([[1, 2, 2], [3, 1, 3]])
    forward = lambda x: torch._ctc_loss(x, targets, steps, labels)[0]  # noqa: E731
    losses, alpha = torch._ctc_loss(x, targets, steps, labels)
    assert alpha.shape == (2, 6, 2 * max(labels) + 1)
    g = drawn(2, seed=1)
    # The gradient is that of scores whose normalisation is part of the loss.
    got = aten._ctc_loss_backward(g, x, targets, steps, labels, losses, alpha, 0)
    want = derivative(forward, x, g)
    inside = torch.tensor([[t < n for n in steps] for t in range(6)])
    want = want + torch.exp(x) * g.view(1, 2, 1) * inside.unsqueeze(-1)
    assert torch.allclose(got, want, atol=1e-7)
    given = [torch.tensor(n) for n in lengths]
    again = aten._ctc_loss_backward(g, x, targets, *given, losses, alpha, 0)
    assert torch.equal(again, got)


def test_ctc_loss_of_impossible_labels():
    x, targets = torch.log_softmax(drawn(2, 1, 3), -1), torch.tensor([[1, 1]])
    losses, alpha = torch._ctc_loss(x, targets, [2], [2])
    assert losses.isinf().all()
    args = (torch.ones(1, dtype=torch.float64), x, targets, [2], [2], losses, alpha, 0)
    assert aten._ctc_loss_backward(*args, False).isnan().all()
    assert not aten._ctc_loss_backward(*args, True).any()


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, float("inf")])
def test_distances(p):
    x, y = drawn(2, 3, 4), drawn(2, 5, 4, seed=1)
    forward = lambda x: aten._cdist_forward(x, y, p, None)  # noqa: E731
    g = like(forward, x, seed=2)
    agree(aten._cdist_backward(g, x, y, p, forward(x)), forward, x, g, rtol=1e-5)
    x = drawn(5, 3)
    forward = lambda x: torch.pdist(x, p)  # noqa: E731
    g = like(forward, x, seed=2)
    agree(aten._pdist_backward(g, x, p, forward(x)), forward, x, g, rtol=1e-5)
    same = torch.zeros(2, 3, dtype=torch.float64)
    away = aten._cdist_backward(torch.ones(2, 2), same.float(), same.float(), p, torch.zeros(2, 2))
    assert not away.any()


def test_euclidean_distances_by_a_product():
    x, y = drawn(3, 4), drawn(30, 4, seed=1)
    out = torch._euclidean_dist(x, y)
    assert torch.allclose(out, aten._cdist_forward(x, y, 2.0, None))
    assert torch.equal(torch.cdist(x, y), out)
    g = drawn(3, 30, seed=2)
    by_x, by_y = torch._C._call_row("_grad._euclidean_dist_backward", False, (g, x, y, out), {})
    agree(by_x, lambda x: torch._euclidean_dist(x, y), x, g)
    agree(by_y, lambda y: torch._euclidean_dist(x, y), y, g)


REFUSED = {
    "not implemented for 'Long'": lambda x: aten.sigmoid_backward(x.long(), x.long()),
    "approximate argument must be": lambda x: aten.gelu_backward(x, x, approximate="so"),
    "In-place elu backward": lambda x: aten.elu_backward(x, -1, 1, 1, True, x),
    "In-place leakyReLu backward": lambda x: aten.leaky_relu_backward(x, x, -1, True),
    "Halving dimension must be even": lambda x: aten.glu_backward(x, x, 0),
    "to have same size as": lambda x: torch._softmax_backward_data(x, x[0], 0, x.dtype),
    "Found dtype Float but expected Double": lambda x: aten.huber_loss_backward(
        x.float(), x, x, 0, 1.0
    ),
    "Expected a single element": lambda x: aten.nll_loss_backward(
        x[0], x, torch.tensor([0, 1, 2]), None, 1, -100, x[0, 0]
    ),
    "is out of bounds": lambda x: aten.nll_loss_backward(
        x[0, 0], x, torch.tensor([0, 1, 7]), None, 1, -100, x[0, 0]
    ),
    "output_mask must have 3 elements": lambda x: aten.native_layer_norm_backward.default(
        x, x, [4], x[:, :1], x[:, :1], None, None, [True]
    ),
    "statistics": lambda x: aten.native_layer_norm_backward(
        x, x, [4], x[:2, :1], x[:, :1], None, None, [True] * 3
    ),
    "is invalid for input of size": lambda x: aten.embedding_dense_backward(
        x, torch.tensor([1, 2]), 5, -1, False
    ),
    "must be non-negative": lambda x: aten.embedding_dense_backward(
        x, torch.tensor([1, 2, 3]), -5, -1, False
    ),
    "max mode does not support sparse": lambda x: aten._embedding_bag_backward(
        x, *[torch.tensor([0])] * 5, 5, False, 2, True, None
    ),
    "possible modes": lambda x: aten._cdist_forward(x, x, 2.0, 7),
    "expected a tensor of shape": lambda x: aten._ctc_loss_backward(
        x[0], x.unsqueeze(1), torch.tensor([[1]]), [3], [1], x[0, :1], x.unsqueeze(0), 0
    ),
    "size 1 at dimension 0, but got size 2": lambda x: torch.nn.functional.ctc_loss(
        x.unsqueeze(1), torch.tensor([1, 2]), [3], [1]
    ),
    "value at least 0, but got value -1": lambda x: torch.nn.functional.ctc_loss(
        x.unsqueeze(1), torch.tensor([1]), [3], [-1]
    ),
    "Expected target size": lambda x: torch.nn.functional.nll_loss(
        x.unsqueeze(0), torch.ones(1, 3)
    ),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_does_not_fit_is_refused(text):
    with pytest.raises((RuntimeError, IndexError), match=text):
        REFUSED[text](drawn(3, 4))


def test_what_is_no_probability_or_no_variance_is_refused():
    half, beyond = torch.full((2, 2), 0.5), torch.tensor([[0.5, 0.5], [0.5, 2.0]])
    with pytest.raises(RuntimeError, match="elements of target should be between 0 and 1"):
        torch.nn.functional.binary_cross_entropy(half, beyond.t())
    with pytest.raises(RuntimeError, match="elements of input should be between 0 and 1"):
        torch.nn.functional.binary_cross_entropy(beyond, beyond)
    with pytest.raises(RuntimeError, match="elements of target should be"):
        torch.nn.functional.binary_cross_entropy(beyond, beyond.flip(0) - 0.5 * 3)
    whole = torch.ones(3, dtype=torch.int64)
    with pytest.raises(RuntimeError, match="desired output type long int"):
        torch.nn.functional.gaussian_nll_loss(torch.ones(3), torch.ones(3), whole)
