"""What is the same for all examples, inside of transforms that differentiate it for each."""

import itertools

import pytest

import torchlike as torch
from torchlike.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

W = torch.tensor([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]])
V = torch.arange(12.0).reshape(2, 2, 3)


def each(of, **how):
    """`of(v)` for each example, at once and one after the other."""
    return vmap(of, **how)(V), torch.stack([of(v) for v in V])


def by_sign(w, v):
    return (w * v).sum() if w.sum() > 0 else (w * w * v).sum()


READERS = {
    "item": lambda w, v: (w * v).sum() * w.max().item(),
    "choice": by_sign,
    "tolist": lambda w, v: (w * v).sum() * w[0].tolist()[2],
    "mask": lambda w, v: w[w > 0].sum() * v.sum(),
    "nonzero": lambda w, v: (w * v).sum() * torch.nonzero(w.detach() > 0).sum(),
    "allclose": lambda w, v: (w * v).sum() * (3 if torch.allclose(w, w) else 2),
    "equal": lambda w, v: (w * v).sum() * (3 if torch.equal(w, w) else 2),
    "index": lambda w, v: (w[:, w[0].argmax().item()] * v[:, 0]).sum(),
    "factory": lambda w, v: (torch.zeros_like(w).add_(w.detach()).mul_(w) * v).sum(),
    "part": lambda w, v: (written_in_parts(w) * v).sum(),
}


def written_in_parts(w):
    made = torch.zeros_like(w)
    part = made[0]
    made.add_(1)
    part.mul_(w[1])
    return made


@pytest.mark.parametrize("name", list(READERS))
def test_values_can_be_read(name):
    got, want = each(lambda v: grad(lambda w: READERS[name](w, v))(W))
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("name", list(READERS))
def test_values_can_be_read_by_jvp_of_gradients(name):
    got, want = each(lambda v: jvp(grad(lambda w: READERS[name](w * w, V[0])), (W,), (v,))[1])
    torch.testing.assert_close(got, want)


def test_values_can_be_read_in_nested_transforms():
    got, want = each(lambda v: hessian(lambda w: by_sign(w, v))(W))
    torch.testing.assert_close(got, want)
    got, want = each(lambda v: jacrev(jacrev(lambda w: by_sign(w**3, v)))(W))
    torch.testing.assert_close(got, want)

    def inner(w, v):
        return vmap(lambda u: u.sum() * v[0, 1] if w.sum() > 0 else u.sum())(w).sum()

    got, want = each(lambda v: grad(lambda w: inner(w, v))(W))
    torch.testing.assert_close(got, want)


def test_draws_are_of_one_where_all_are_the_same():
    def drawn(v):
        return grad(lambda w: (w.softmax(1).multinomial(1) * w * v).sum())(W)

    torch.manual_seed(3)
    got = vmap(drawn, randomness="same")(V)
    torch.manual_seed(3)
    chosen = W.softmax(1).multinomial(1)
    torch.testing.assert_close(got, chosen * V)


def test_gradients_stay_apart():
    def both(v):
        value, back = vjp(lambda w: w * 2, W)
        return back(v)[0], value

    gradients, values = vmap(both)(V)
    assert gradients.equal(V * 2)
    assert values.equal((W * 2).expand(2, 2, 3))


def test_what_differs_is_not_written_to_what_is_the_same():
    def writes(v, how):
        return grad(lambda w: (how(w * 2, v) * w).sum())(W)

    def part(w, v):
        w[0] = v[0]
        return w

    for how in (part, torch.Tensor.mul_, torch.Tensor.copy_):
        with pytest.raises(RuntimeError, match="vmap: inplace arithmetic"):
            vmap(lambda v, how=how: writes(v, how))(V)
    with pytest.raises(
        RuntimeError,
        match=r"output with shape \[2, 3\] doesn't match the broadcast shape \[2, 2, 3\]",
    ):
        vmap(lambda v: writes(v, torch.Tensor.add_))(V)
    with pytest.raises(RuntimeError, match="inplace randomness on an unbatched tensor"):
        vmap(
            lambda v: grad(lambda w: (w * 2).bernoulli_(0.5).sum())(W) * v, randomness="different"
        )(V)


@pytest.mark.parametrize(
    ("name", "call"),
    {
        "inplace arithmetic": lambda w, v: w.sub_(v),
        "scatter_add_": lambda w, v: w.scatter_add_(0, torch.zeros(1, 3, dtype=torch.int64), v),
        "aten::pow_": lambda w, v: w.pow_(v),
        "aten::clamp_": lambda w, v: w.clamp_(v),
        "fill_": lambda w, v: w.fill_(v.sum()),
    }.items(),
)
def test_refusals_name_what_pytorch_names(name, call):
    place = "at level 1" if name.startswith("aten") else "in a vmap"
    with pytest.raises(
        RuntimeError, match=f"vmap: {name}\\(self, .* {place}. .*instead of {name}."
    ):
        vmap(lambda v: call(W.clone(), v))(V)


def test_a_tensor_of_outside_has_no_room_for_examples():
    x, y = torch.ones(2, 3), torch.ones(3)
    with pytest.raises(
        RuntimeError,
        match=r"output with shape \[3\] doesn't match the broadcast shape \[2, 3\]",
    ):
        vmap(lambda t: y.add_(t))(x)


def test_random_operators_whose_first_argument_is_a_number():
    std = torch.ones(3, 3)
    made = vmap(lambda v: torch.normal(0.0, std), randomness="different")(torch.zeros(4))
    assert made.shape == (4, 3, 3)
    assert not torch.equal(made[0], made[1])


@pytest.mark.parametrize("randomness", ["error", "different", "same"])
def test_random_results_are_not_written_to_given_tensors(randomness):
    with pytest.raises(RuntimeError, match="do not support calling out variants of random"):
        vmap(lambda v: torch.randn(3, out=torch.empty(3)), randomness=randomness)(V)


def test_chances_that_differ_have_no_room():
    with pytest.raises(RuntimeError, match=r"vmap: inplace bernoulli\(self, "):
        vmap(lambda v: W.clone().bernoulli_(v.clamp(0, 1)), randomness="different")(V)


def test_views_of_a_batch_say_whose_they_are():
    x = torch.ones(2, 3, 4)
    assert vmap(torch.t)(x)._base is x
    assert vmap(lambda v: v[0])(x[:1])._base is x
    made = vmap(lambda v: (v + 1).t())(x)
    assert made._base is None or made._base.shape == (2, 3, 4)


def test_each_example_may_repeat_elements_its_own_way():
    times = torch.tensor([[1, 2], [2, 1]])
    x = torch.tensor([[1.0, 2], [3, 4]])
    with pytest.warns(UserWarning, match="performance drop"):
        found = torch.func.vmap(torch.repeat_interleave)(x, times)
    assert found.tolist() == [[1, 2, 2], [3, 3, 4]]


def test_examples_that_lie_in_front_are_their_batch():
    x = torch.ones(3, 2)
    made = torch.func.vmap(lambda a: a * 2)(x)
    assert not made._is_view() and torch.func.vmap(lambda a: a * 2, out_dims=1)(x)._is_view()


@pytest.mark.filterwarnings("ignore:There is a performance drop", "ignore:A window was not")
@pytest.mark.parametrize("dim", [None, 0, -1])
def test_windows_of_examples_have_gradients_of_their_own(dim):
    x = torch.arange(24.0).reshape(2, 12) * 0.1 if dim is not None else torch.arange(12.0)
    along = x if dim != -1 else x.t().contiguous()
    if dim is not None:
        each = [along.select(dim, i) for i in range(2)]
    else:
        each = [along, along]

    def steps(x):
        return x.as_strided((3, 2), (2 * x.stride(0), x.stride(0)), x.storage_offset())

    def spectrum(x):
        return torch.stft(x, 4, center=False, return_complex=True).abs()

    for f in (steps, spectrum):
        like = torch.stack([f(e) for e in each])
        v = torch.arange(like.numel(), dtype=like.dtype).reshape(like.shape)

        def pulled(x, v, f=f):
            return vjp(f, x)[1](v)[0]

        made = vmap(pulled, in_dims=(dim, 0))(along, v)
        torch.testing.assert_close(
            made, torch.stack([pulled(*e) for e in zip(each, v, strict=True)])
        )


def test_what_is_the_same_for_all_is_written_once():
    rows = torch.tensor([1, 0])

    def looked_up(w, v):
        return torch.nn.functional.embedding(rows, w, max_norm=1.0) * v

    table = W.clone()
    made = vmap(lambda v: vjp(looked_up, table, v)[1](torch.ones(2, 3))[0])(V)
    assert made.equal(V.flip(1))
    assert (table.norm(dim=1) <= 1).all()


def test_a_write_that_nobody_records_keeps_gradients_of_nested_transforms():
    def cube(x):
        with torch.no_grad():
            x.mul_(2)
        return x.pow(3).sum()

    x = torch.tensor([1.0, 2.0])
    assert grad(cube)(x.clone()).tolist() == [12.0, 48.0]
    assert grad(lambda x: grad(cube)(x).sum())(x.clone()).tolist() == [12.0, 24.0]
    assert grad(lambda x: grad(cube)(x * 1).sum())(x.clone()).tolist() == [12.0, 24.0]
    rows = torch.tensor([1, 2])

    def pulled(w, v):
        return vjp(lambda w: torch.nn.functional.embedding(rows, w, max_norm=1.0), w)[1](v)[0]

    table = torch.arange(1.0, 10).reshape(3, 3)
    by_table, by_v = vjp(pulled, table, torch.ones(2, 3))[1](torch.ones(3, 3))
    assert not by_table.any()
    assert by_v.equal(torch.ones(2, 3))


@pytest.mark.filterwarnings("ignore:A window was not")
def test_signals_of_examples_without_a_window():
    spectra = torch.fft.rfft(torch.arange(50.0).sin().reshape(5, 10)).t()
    both = torch.stack([spectra, spectra * 2])
    made = vmap(lambda s: torch.istft(s, 10))(both)
    torch.testing.assert_close(made, torch.stack([torch.istft(s, 10) for s in both]))


@pytest.mark.parametrize("how", ["jacobian", "hessian"])
def test_derivatives_by_other_means_are_refused_within_transforms(how):
    def f(x):
        return getattr(torch.autograd.functional, how)(lambda x: (x**3).sum(), x).sum()

    x = torch.tensor([1.0, 2.0])
    assert f(x).isfinite()
    for call in (lambda: grad(f)(x), lambda: vjp(f, x), lambda: vmap(f)(x.expand(2, 2))):
        with pytest.raises(RuntimeError, match=r"perhaps using torch\.autograd\.functional"):
            call()


def test_examples_of_another_size():
    x = torch.arange(12.0).reshape(2, 2, 3)
    assert vmap(lambda x: x.clone().resize_(2, 2))(x).tolist() == [
        [[0, 1], [2, 3]],
        [[6, 7], [8, 9]],
    ]
    assert vmap(lambda x: x.clone().resize_as_(x[0]))(x).tolist() == [[0, 1, 2], [6, 7, 8]]
    larger = vmap(lambda x: x.t().clone().resize_(7))(x)
    assert larger.shape == (2, 7) and larger[1, :6].tolist() == [6, 9, 7, 10, 8, 11]
    with pytest.raises(RuntimeError, match="only supports None or Contiguous"):
        vmap(lambda x: x.clone().resize_(1, 1, 2, 3, memory_format=torch.channels_last))(x)
    with pytest.raises(RuntimeError, match="negative dimension"):
        vmap(lambda x: x.clone().resize_(-1))(x)
    with pytest.raises(RuntimeError, match="cannot resize variables that require grad"):
        grad(lambda x: vmap(lambda x: (x * 2).resize_(3))(x).sum())(x)
    for f in (lambda x: x.clone().resize_(3), vmap(lambda x: x.clone().resize_(3))):
        with pytest.raises(RuntimeError, match="that has a forward grad"):
            jvp(f, (x,), (x,))


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_segments_of_examples():
    x = torch.arange(8.0).reshape(2, 4)
    lengths, offsets = torch.tensor([[1, 3], [2, 2]]), torch.tensor([[0, 1, 4], [0, 2, 4]])
    f = torch.segment_reduce
    assert vmap(lambda x, n: f(x, "sum", lengths=n))(x, lengths).tolist() == [[0, 6], [9, 13]]
    assert vmap(lambda x, n: f(x, "max", offsets=n))(x, offsets).tolist() == [[0, 3], [5, 7]]
    assert vmap(lambda n: f(x[0], "sum", lengths=n))(lengths).tolist() == [[0, 6], [1, 5]]
    with pytest.raises(RuntimeError, match="Expected all rows of lengths"):
        vmap(lambda x, n: f(x, "sum", lengths=n))(x, torch.tensor([[1, 3], [2, 3]]))


@pytest.mark.parametrize(
    "of_inner",
    [
        lambda f, x: torch.func.grad_and_value(lambda y: f(y).sum())(x)[1],
        lambda f, x: torch.func.vjp(f, x)[0],
        lambda f, x: torch.func.grad(lambda y: (f(y).sum(), f(y)), has_aux=True)(x)[1],
    ],
)
def test_values_of_inner_functions_have_tangents_without_a_history(of_inner):
    x = torch.tensor([1.0, 2.0, 3.0])

    def outer(x):
        return of_inner(lambda y: y * y, x)

    value, tangent = torch.func.jvp(outer, (x,), (x,))
    assert not value.requires_grad
    assert not tangent.requires_grad
    assert not torch.func.jacfwd(outer)(x).requires_grad
    v = x.clone().requires_grad_()
    (got,) = torch.autograd.grad(torch.func.jvp(outer, (v,), (v,))[1].sum(), v)
    assert got.tolist() == (4 * x).tolist()


class Told(torch.autograd.Function):
    """A product whose rule for batches notes what it is told."""

    dims = []

    @staticmethod
    def forward(x, y):
        return x * y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * y, g * x

    @staticmethod
    def vmap(info, in_dims, x, y):
        Told.dims.append((in_dims, tuple(x.shape), tuple(y.shape)))
        each = [t if d is None else t.movedim(d, 0) for t, d in zip((x, y), in_dims, strict=True)]
        return Told.apply(*torch.broadcast_tensors(*each)), 0


@pytest.mark.parametrize(
    ("dims", "call", "told"),
    [
        ((0, 1), Told.apply, ((0, 1), (2, 3), (3, 2))),
        ((-1, 0), Told.apply, ((1, 0), (2, 3), (3, 2))),
        ((0, None), lambda x, y: Told.apply(x, y[:, 0]), ((0, None), (2, 3), (3,))),
        ((0, 1), lambda x, y: Told.apply(x + 1, y * 2), ((0, 0), (2, 3), (2, 3))),
        ((0, 1), grad(lambda x, y: Told.apply(x, y).sum()), ((0, 1), (2, 3), (3, 2))),
    ],
)
def test_a_rule_of_the_users_is_told_where_examples_lie(dims, call, told):
    Told.dims.clear()
    vmap(call, dims)(torch.ones(2, 3), torch.ones(3, 2))
    assert Told.dims[0] == told


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize(
    "put",
    [
        lambda y: y.new_zeros(2).index_put((torch.arange(2),), y),
        lambda y: y.new_zeros(2).put(torch.arange(2), y),
        lambda y: y.new_zeros(2).index_add(0, torch.arange(2), y),
        lambda y: y.new_zeros(2).masked_scatter(torch.tensor([True, True]), y),
    ],
)
def test_examples_one_by_one_have_tangents_of_other_levels(put):
    x = torch.tensor([1.0, 2.0, 3.0])

    def f(x):
        return put(x[:2] * x[1]).prod()

    want = torch.tensor([[0.0, 12.0, 0.0], [12.0, 12.0, 0.0], [0.0, 0.0, 0.0]])
    for outer, inner in itertools.product((jacfwd, jacrev), repeat=2):
        assert outer(inner(f))(x).equal(want)


FACTORIES = {
    "rows": lambda x: by_rows(x).square().sum(),
    "columns": lambda x: by_rows(x).mT.square().sum() + by_rows(x).norm(),
    "factor": lambda x: torch.linalg.cholesky(by_rows(x) @ by_rows(x).mT + torch.eye(3)).sum(),
    "whole": lambda x: (torch.zeros(3).copy_(x) * x).sum() + torch.ones(3).mul_(x).prod(),
}


def by_rows(x):
    made = torch.zeros(3, 3)
    made[0] = x * x
    made[1, :2] = x[1:].sin()
    made[2].add_(x.prod())
    return made


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("name", FACTORIES)
def test_hessians_through_what_is_made_inside(name):
    x, f = torch.tensor([0.5, -1.0, 2.0]), FACTORIES[name]
    want = torch.autograd.functional.hessian(f, x)
    for outer, inner in itertools.product((jacfwd, jacrev), repeat=2):
        torch.testing.assert_close(outer(inner(f))(x), want)
    torch.testing.assert_close(jacfwd(grad(f))(x), want)
