"""Helpers of `nn.utils`, `nn.parallel`, `nn.attention` and the like."""

import pytest

import torchlike as torch
from torchlike import nn
from torchlike.nn import utils
from torchlike.nn.utils import parametrizations, parametrize, rnn
from torchlike.nn.utils._per_sample_grad import call_for_per_sample_grads


def graded(*values: float) -> list[torch.Tensor]:
    """A parameter for each value, which is its gradient too."""
    made = [nn.Parameter(torch.tensor([v])) for v in values]
    for p, v in zip(made, values, strict=True):
        p.grad = torch.tensor([v])
    return made


def test_clipping_gradients():
    both = graded(3.0, 4.0)
    assert utils.get_total_norm([p.grad for p in both]).item() == 5.0
    assert utils.clip_grad_norm_(both, 1.0).item() == 5.0
    assert torch.allclose(both[0].grad, torch.tensor([0.6]), atol=1e-4)
    utils.clip_grads_with_norm_(both, 0.5, torch.tensor(1.0))
    assert torch.allclose(both[1].grad, torch.tensor([0.4]), atol=1e-4)
    utils.clip_grad_value_(both, 0.1)
    assert [p.grad.item() for p in both] == [pytest.approx(0.1)] * 2
    with pytest.warns(FutureWarning, match="clip_grad_norm"):
        utils.clip_grad_norm(both, 1.0)


@pytest.mark.parametrize(
    ("layer", "norm", "shape", "transpose"),
    [
        (nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3), (1, 2, 4, 4), False),
        (nn.Conv1d(2, 3, 2, bias=False), nn.BatchNorm1d(3, affine=False), (1, 2, 4), False),
        (nn.ConvTranspose2d(2, 3, 2), nn.BatchNorm2d(3), (1, 2, 4, 4), True),
        (nn.Linear(2, 3), nn.BatchNorm1d(3), (5, 2), None),
    ],
)
def test_fusing_a_normalisation(layer, norm, shape, transpose):
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 1)
    x = torch.randn(shape)
    with pytest.raises(AssertionError, match="Fusion only for eval!"):
        utils.fuse_conv_bn_eval(layer, norm)
    layer.eval(), norm.eval()
    if transpose is None:
        fused = utils.fuse_linear_bn_eval(layer, norm)
        weights = utils.fuse_linear_bn_weights
        options = {}
    else:
        fused = utils.fuse_conv_bn_eval(layer, norm, transpose)
        weights = utils.fuse_conv_bn_weights
        options = {"transpose": transpose}
    torch.testing.assert_close(fused(x), norm(layer(x)), atol=1e-5, rtol=1e-5)
    w, b = weights(
        layer.weight, layer.bias, norm.running_mean, norm.running_var, norm.eps,
        norm.weight, norm.bias, **options,
    )  # fmt: skip
    assert torch.equal(w, fused.weight)
    assert torch.equal(b, fused.bias)
    assert b.requires_grad is (layer.bias is not None)


def test_weights_in_another_memory_format():
    m = nn.Sequential(nn.Conv2d(2, 3, 2), nn.Conv3d(2, 3, 2))
    utils.convert_conv2d_weight_memory_format(m, torch.channels_last)
    utils.convert_conv3d_weight_memory_format(m, torch.channels_last_3d)
    assert m[0].weight.is_contiguous(memory_format=torch.channels_last)
    assert m[1].weight.is_contiguous(memory_format=torch.channels_last_3d)


def test_spectral_norm_by_hook():
    m = utils.spectral_norm(nn.Linear(3, 2), n_power_iterations=30)
    assert list(m.state_dict()) == ["bias", "weight_orig", "weight_u", "weight_v"]
    assert m.state_dict()._metadata[""]["spectral_norm"] == {"weight.version": 1}
    y = m(torch.ones(1, 3))
    assert torch.linalg.svdvals(m.weight.detach()).max().item() == pytest.approx(1.0, abs=1e-3)
    with pytest.raises(RuntimeError, match="two spectral_norm hooks"):
        utils.spectral_norm(m)
    m.eval()
    utils.remove_spectral_norm(m)
    assert list(m.state_dict()) == ["bias", "weight"]
    torch.testing.assert_close(m(torch.ones(1, 3)), y)
    with pytest.raises(ValueError, match="not found"):
        utils.remove_spectral_norm(m)


def test_weight_norm_by_hook():
    m = nn.Linear(3, 2)
    before = m.weight.detach().clone()
    with pytest.warns(FutureWarning, match="weight_norm"):
        utils.weight_norm(m)
    assert list(m.state_dict()) == ["bias", "weight_g", "weight_v"]
    m(torch.ones(1, 3))
    torch.testing.assert_close(m.weight.detach(), before)
    assert list(utils.remove_weight_norm(m).state_dict()) == ["bias", "weight"]


def test_parametrizations():
    m = parametrizations.weight_norm(nn.Linear(3, 2))
    assert parametrize.is_parametrized(m, "weight")
    assert isinstance(m.parametrizations.weight, parametrize.ParametrizationList)
    assert parametrize.type_before_parametrizations(m) is nn.Linear
    with parametrize.cached():
        assert m.weight is m.weight
    parametrize.remove_parametrizations(m, "weight")
    assert not parametrize.is_parametrized(m)

    class Doubled(nn.Module):
        def forward(self, x):
            return 2 * x

    plain = nn.Linear(3, 2)
    weight = plain.weight.detach().clone()
    parametrize.register_parametrization(plain, "weight", Doubled())
    assert torch.equal(plain.weight, 2 * weight)
    m = parametrizations.spectral_norm(nn.Linear(3, 2), n_power_iterations=30)
    assert torch.linalg.svdvals(m.weight.detach()).max().item() == pytest.approx(1.0, abs=1e-3)


def test_functional_call():
    m = nn.Linear(2, 1, bias=False)
    x = torch.ones(1, 2)
    with pytest.warns(FutureWarning, match="functional_call"):
        y = utils.stateless.functional_call(m, {"weight": torch.full((1, 2), 3.0)}, x)
    assert y.item() == 6.0


def test_packed_sequences():
    data = [torch.arange(n) for n in (3, 1, 2)]
    padded = rnn.pad_sequence(data, batch_first=True)
    assert padded.tolist() == [[0, 1, 2], [0, 0, 0], [0, 1, 0]]
    packed = rnn.pack_padded_sequence(padded, [3, 1, 2], batch_first=True, enforce_sorted=False)
    assert isinstance(packed, rnn.PackedSequence)
    assert packed.data.tolist() == [0, 0, 0, 1, 1, 2]
    assert [t.tolist() for t in rnn.unpack_sequence(packed)] == [t.tolist() for t in data]
    lengths = torch.tensor([3, 1, 2])
    again = rnn.unpad_sequence(padded, lengths, batch_first=True)
    assert [t.tolist() for t in again] == [t.tolist() for t in data]
    assert rnn.invert_permutation(torch.tensor([2, 0, 1])).tolist() == [1, 2, 0]


def test_wrappers_for_several_devices():
    m = nn.Linear(2, 2)
    x = torch.ones(1, 2)
    assert torch.equal(nn.DataParallel(m)(x), m(x))
    assert torch.equal(nn.parallel.data_parallel(m, x), m(x))
    assert list(nn.DataParallel(m).state_dict()) == ["module.weight", "module.bias"]
    assert nn.DataParallel.__module__ == "torchlike.nn.parallel.data_parallel"
    with pytest.raises(ValueError, match="Default process group has not been initialized"):
        nn.parallel.DistributedDataParallel(m)


def test_choosing_an_implementation_of_attention():
    from torchlike.nn.attention import SDPBackend, _cur_sdpa_kernel_backends, sdpa_kernel

    q = torch.randn(1, 2, 3, 4)
    before = _cur_sdpa_kernel_backends()
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], set_priority=True):
        assert _cur_sdpa_kernel_backends() == [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]
        inside = nn.functional.scaled_dot_product_attention(q, q, q)
    assert torch.equal(inside, nn.functional.scaled_dot_product_attention(q, q, q))
    assert _cur_sdpa_kernel_backends() == before
    with pytest.raises(AssertionError, match="got int"), sdpa_kernel(3):
        pass


def test_keywords_of_factory_functions():
    made = nn.factory_kwargs({"device": "meta", "factory_kwargs": {"dtype": torch.half}})
    assert made == {"device": "meta", "dtype": torch.half}
    assert nn.factory_kwargs(None) == {}
    with pytest.raises(TypeError, match="unexpected kwargs"):
        nn.factory_kwargs({"x": 1})
    with pytest.raises(TypeError, match="device specified twice"):
        nn.factory_kwargs({"device": "cpu", "factory_kwargs": {"device": "cpu"}})


def test_old_words_for_reductions():
    from torchlike.nn import _reduction

    words = [_reduction.get_enum(word) for word in ("none", "mean", "sum")]
    assert words == [0, 1, 2]
    assert _reduction.legacy_get_string(None, False, emit_warning=False) == "none"
    assert _reduction.legacy_get_enum(False, None, emit_warning=False) == 2
    with pytest.warns(UserWarning, match="reduction='sum'"):
        assert nn.MSELoss(size_average=False).reduction == "sum"
    with pytest.raises(ValueError, match="not a valid value"):
        _reduction.get_enum("x")


OLD_NAMES = (
    *("uniform", "normal", "constant", "eye", "dirac", "orthogonal", "sparse"),
    *("xavier_uniform", "xavier_normal", "kaiming_uniform", "kaiming_normal"),
)


@pytest.mark.parametrize("name", OLD_NAMES)
def test_old_names_of_init(name):
    arguments = {"constant": (1.0,), "sparse": (0.5,)}.get(name, ())
    old, new = (torch.zeros(4, 4, 3) if name == "dirac" else torch.zeros(4, 4) for _ in range(2))
    torch.manual_seed(0)
    with pytest.warns(FutureWarning, match=f"nn.init.{name}"):
        getattr(nn.init, name)(old, *arguments)
    torch.manual_seed(0)
    getattr(nn.init, name + "_")(new, *arguments)
    assert torch.equal(old, new)


def test_linear_cross_entropy():
    x, target = torch.randn(5, 4), torch.tensor([0, 1, 2, -100, 1])
    weight, bias = torch.randn(3, 4), torch.randn(3)
    F = nn.functional
    loss = F.linear_cross_entropy(x, weight, target, linear_bias=bias, reduction="sum")
    wanted = F.cross_entropy(F.linear(x, weight, bias), target, reduction="sum")
    torch.testing.assert_close(loss, wanted)
    many = torch.randn(3, 2, 4)
    scores = torch.einsum("nf,cdf->ncd", x, many)
    target = torch.randint(0, 3, (5, 2))
    wanted = F.cross_entropy(scores, target)
    torch.testing.assert_close(F.linear_cross_entropy(x, many, target), wanted)
    layer = nn.LinearCrossEntropyLoss(4, 3, out_features=(2,), bias=True)
    assert layer(x, target).shape == ()
    assert F.linear_cross_entropy.__module__ == "torchlike.nn.functional"


@pytest.mark.parametrize("by", [None, "matrix_exp", "cayley"])
@pytest.mark.parametrize("size", [(3, 3), (2, 3), (3, 2)])
def test_orthogonal_weights(by, size):
    if by is None and size[0] != size[1]:
        by = "cayley"
    torch.manual_seed(0)
    layer = parametrizations.orthogonal(nn.Linear(*size, bias=False), orthogonal_map=by)
    weight = layer.weight.detach()
    small = weight.T @ weight if size[1] >= size[0] else weight @ weight.T
    assert torch.allclose(small, torch.eye(min(size)), atol=1e-5)
    layer(torch.ones(1, size[0])).sum().backward()
    assert layer.parametrizations.weight.original.grad.shape == weight.shape
    layer.weight = nn.init.orthogonal_(torch.empty(size[1], size[0]))
    with pytest.raises(ValueError, match="Expected a matrix or batch of matrices of shape"):
        layer.weight = torch.ones(1, 1)


def test_orthogonal_refuses_what_is_no_matrix():
    with pytest.raises(ValueError, match="Got a tensor of 1 dimensions"):
        parametrizations.orthogonal(nn.Linear(1, 1), "bias")
    with pytest.raises(ValueError, match="orthogonal_map has to be one of"):
        parametrizations.orthogonal(nn.Linear(1, 1), orthogonal_map="x")
    layer = nn.Linear(3, 2, bias=False)
    nn.init.orthogonal_(layer.weight)
    before = layer.weight.detach().clone()
    parametrizations.orthogonal(layer, orthogonal_map="householder", use_trivialization=False)
    with torch.no_grad():
        assert torch.allclose(layer.weight, before, atol=1e-5)


def one_by_one(model, x):
    """The gradients of every parameter, of one example after the other."""
    found = []
    for example in x:
        loss = model(example.unsqueeze(0)).pow(2).sum()
        found.append(torch.autograd.grad(loss, list(model.parameters())))
    return [torch.stack(of) for of in zip(*found, strict=True)]


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (lambda: nn.Linear(4, 3), (5, 2, 4)),
        (lambda: nn.Conv1d(2, 4, 3, groups=2, padding=1), (3, 2, 6)),
        (lambda: nn.Conv2d(3, 4, 3, stride=2, dilation=2), (3, 3, 9, 9)),
        (lambda: nn.LayerNorm((3, 4)), (5, 3, 4)),
        (lambda: nn.GroupNorm(2, 4), (5, 4, 3)),
        (lambda: nn.InstanceNorm1d(3, affine=True), (2, 3, 4)),
        (lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)), (3, 4)),
    ],
)
def test_gradients_of_each_example(model, shape):
    model, x = model().double(), torch.randn(shape, dtype=torch.float64, requires_grad=True)
    wanted = one_by_one(model, x)
    (of_x,) = torch.autograd.grad(model(x).pow(2).sum(), x)
    call_for_per_sample_grads(model)(x).pow(2).sum().backward()
    for p, w in zip(model.parameters(), wanted, strict=True):
        assert p.grad is None and torch.allclose(p.grad_sample, w)
    assert torch.allclose(x.grad, of_x)
    with pytest.raises(RuntimeError, match="Please clear out the grad_sample parameter"):
        call_for_per_sample_grads(model)
    for p in model.parameters():
        del p.grad_sample
    y = call_for_per_sample_grads(model, loss_reduction="mean")(x)
    (y.pow(2).flatten(1).sum(1).mean()).backward()
    for p, w in zip(model.parameters(), wanted, strict=True):
        assert torch.allclose(p.grad_sample, w)


def test_gradients_of_each_example_of_words_and_refusals():
    words = nn.Embedding(10, 3)
    call_for_per_sample_grads(words)(torch.tensor([[1, 2], [3, 3]])).sum().backward()
    assert words.weight.grad_sample.sum((1, 2)).tolist() == [6, 6]
    norm = nn.InstanceNorm1d(3, affine=True, track_running_stats=True)
    call_for_per_sample_grads(norm)(torch.ones(2, 3, 4)).sum().backward()
    assert torch.allclose(norm.running_mean, torch.full((3,), 0.1))
    for call, text in (
        (lambda: call_for_per_sample_grads(nn.BatchNorm1d(3))(torch.ones(2, 3)), "cannot handle"),
        (
            lambda: call_for_per_sample_grads(nn.Linear(2, 2), batch_size=3)(torch.ones(2, 2)),
            "input batch size of 2",
        ),
        (lambda: call_for_per_sample_grads(nn.Linear(2, 2))(torch.ones(2)), "rank 1"),
        (lambda: call_for_per_sample_grads(nn.Linear(2, 2))(torch.ones(0, 2)), "0 is not a valid"),
        (lambda: call_for_per_sample_grads(nn.Linear(2, 2), batch_size=0), "must be positive"),
        (lambda: call_for_per_sample_grads(nn.Linear(2, 2), loss_reduction="max"), "sum or mean"),
        (lambda: call_for_per_sample_grads(3), "must be nn.Module"),
    ):
        with pytest.raises(RuntimeError, match=text):
            call()


def test_only_tensors_are_padded():
    with pytest.raises(TypeError, match="expected Tensor as element 1 in argument 0, but got int"):
        rnn.pad_sequence([torch.ones(2), 3])


def test_vectors_have_a_spectral_norm():
    layer = utils.spectral_norm(nn.Linear(3, 2), "bias")
    layer(torch.ones(1, 3))
    torch.testing.assert_close(layer.bias.abs(), layer.bias_u.abs())


def test_parametrizations_that_are_alike_are_shown_once():
    layer = nn.Linear(2, 2)
    for _ in range(2):
        parametrize.register_parametrization(layer, "weight", nn.Tanh())
    assert "(0-1): 2 x Tanh()" in repr(layer)


def test_total_norms_have_no_gradient():
    x = torch.ones(3, requires_grad=True)
    for foreach in (None, False, True):
        assert not utils.get_total_norm([x, x * 2], foreach=foreach).requires_grad
