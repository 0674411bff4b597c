"""Function transforms: gradients, Jacobians and batches of functions."""

from __future__ import annotations

import warnings

import pytest

import torchlike as torch
from derivatives import leaf
from torchlike import nn
from torchlike._functorch.package.experimental import chunk_vmap
from torchlike.func import (
    debug_unwrap,
    functional_call,
    functionalize,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    rearrange,
    replace_all_batch_norm_modules_,
    stack_module_state,
    vjp,
    vmap,
)
from torchlike.utils.counter import Counter

F = nn.functional


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


class TestGradients:
    def test_grad(self):
        x = torch.tensor([1.0, 2.0])
        assert grad(lambda t: (t**3).sum())(x).tolist() == [3, 12]
        assert not x.requires_grad
        g, (value, aux) = grad_and_value(lambda t: ((t * t).sum(), t * 2), has_aux=True)(x)
        assert g.tolist() == [2, 4]
        assert value.item() == 5
        assert aux.tolist() == [2, 4]
        assert not value.requires_grad
        assert not aux.requires_grad
        made = grad(lambda d: d["a"].sum() * d["b"])({"a": x, "b": torch.tensor(3.0)})
        assert made["a"].tolist() == [3, 3]
        assert made["b"].item() == 3

    def test_outside(self):
        """Gradients flow to what the function was given, and to what it catches."""
        x, w = leaf(1.0, 2.0), leaf(2.0, 3.0)
        grad(lambda t: (t**3).sum())(x).sum().backward()
        assert x.grad.tolist() == [6, 12]
        grad(lambda t: (t * t * w).sum())(torch.ones(2)).sum().backward()
        assert w.grad.tolist() == [2, 2]
        with torch.no_grad():
            assert not grad(lambda t: (t**3).sum())(x).requires_grad

    def test_nested(self):
        cube = lambda t: t**3  # noqa: E731
        assert grad(grad(cube))(torch.tensor(2.0)).item() == 12
        assert grad(grad(grad(cube)))(torch.tensor(2.0)).item() == 6
        one = torch.tensor(1.0)
        assert jvp(grad(cube), (torch.tensor(2.0),), (one,))[1].item() == 12
        assert grad(lambda t: jvp(cube, (t,), (one,))[1])(torch.tensor(2.0)).item() == 12
        twice = jvp(lambda t: jvp(cube, (t,), (one,))[1], (torch.tensor(2.0),), (one,))
        assert [t.item() for t in twice] == [12, 12]
        assert not torch._C._is_fwd_grad_enabled()

    def test_vjp(self):
        (a, b), back = vjp(lambda x, y: (x * y, x + y), torch.ones(2), torch.full((2,), 2.0))
        assert a.tolist() == [2, 2]
        assert [g.tolist() for g in back((torch.ones(2), torch.ones(2)))] == [[3, 3], [2, 2]]
        assert [g.tolist() for g in back((a, b))] == [[7, 7], [5, 5]]
        with pytest.raises(RuntimeError, match="pytree structure of cotangents"):
            back(torch.ones(2))
        with pytest.raises(RuntimeError, match="Mismatch in shape"):
            back((torch.ones(3), torch.ones(2)))

    def test_linearize(self):
        y, push = linearize(lambda x: x**2, torch.tensor([1.0, 3.0]))
        assert y.tolist() == [1, 9]
        assert push(torch.tensor([1.0, 10.0])).tolist() == [2, 60]
        assert push(torch.tensor([0.0, 1.0])).tolist() == [0, 6]
        with pytest.raises(RuntimeError, match="doesn't match the shape"):
            push(torch.ones(3))

    def test_jacobians(self):
        x = torch.tensor([0.5, 1.0])
        f = lambda t: t.sin() * t.sum()  # noqa: E731
        close(jacrev(f)(x), jacfwd(f)(x))
        close(jacrev(f, chunk_size=1)(x), torch.autograd.functional.jacobian(f, x))
        total = lambda t: f(t).sum()  # noqa: E731
        want = torch.autograd.functional.hessian(total, x)
        for second in (
            hessian(total),
            jacrev(jacrev(total)),
            jacrev(jacfwd(total)),
            jacfwd(jacfwd(total)),
        ):
            close(second(x), want)
        by_both = jacrev(lambda a, b: {"p": a * b, "s": (a + b).sum()}, argnums=(0, 1))(x, x)
        assert [t.shape for t in by_both["p"]] == [(2, 2), (2, 2)]
        assert [t.shape for t in by_both["s"]] == [(2,), (2,)]

    def test_jacobian_of_single_rows(self):
        """One row at a time goes without `vmap`, so the backward pass may look at values."""

        class Looks(torch.autograd.Function):
            @staticmethod
            def forward(x):
                return x * 2

            @staticmethod
            def setup_context(ctx, inputs, output):
                pass

            @staticmethod
            def backward(ctx, g):
                return g * 2 if g.nonzero().numel() else g

        x = torch.ones(3)
        assert torch.equal(jacrev(Looks.apply, chunk_size=1)(x), 2 * torch.eye(3))
        with pytest.raises(RuntimeError, match="dynamic shape"):
            jacrev(Looks.apply, chunk_size=2)(x)
        assert jacrev(torch.sin, chunk_size=1)(torch.ones(0)).shape == (0, 0)

    def test_mistakes(self):
        x = torch.ones(2)
        with pytest.raises(RuntimeError, match="got tensor with 1 dims"):
            grad(lambda t: t)(x)
        with pytest.raises(RuntimeError, match="to return a Tensor, got <class 'float'>"):
            grad(lambda t: 5.0)(x)
        with pytest.raises(RuntimeError, match="Got argnum=3, but only 1 positional inputs"):
            grad(torch.sum, argnums=3)(x)
        with pytest.raises(RuntimeError, match="elements must be unique"):
            grad(torch.sum, argnums=(0, 0))(x)
        with pytest.raises(RuntimeError, match="floating point dtype"):
            grad(torch.sum)(torch.ones(2, dtype=torch.int64))
        with pytest.raises(RuntimeError, match="Expected primals to be a tuple"):
            jvp(torch.sin, x, x)
        with pytest.raises(RuntimeError, match="independent of the inputs"):
            jvp(lambda t: torch.ones(2), (x,), (x,), strict=True)


# What one example gives has to be what the batch has there.
FUNCTIONS = {
    "pointwise": lambda a, b: (a * b[0] - 2).exp() + b,
    "a number": lambda a, b: a.sum() * b + b.mean(),
    "reductions": lambda a, b: (a.sum(0), a.max(1)[0], a.var(), b.std(-1), a.amax(), a.argmax(), a.logsumexp((0, 1))),
    "views": lambda a, b: (a.t()[1], a.view(12), a[None].expand(2, 3, 4), a[:, None, 1:], a.view(-1).unfold(0, 3, 2)),
    "joined": lambda a, b: (torch.cat([a, a.flip(0)]), torch.stack([b, b], -1), a.split(2, 1)[1], a.repeat(2, 1)),
    "sorted": lambda a, b: (a.sort(-1)[0], a.topk(2)[1], a.cumsum(0), a.softmax(-1), b.log_softmax(0)),
    "products": lambda a, b: (a @ b, a.mT @ a, b @ b, torch.outer(b, b), torch.einsum("ij,j->i", a, b)),
    "indices": lambda a, b: (a[[0, 2]], a[:, [1, 1]], a.gather(1, a.argsort(1)), a[a.argmax(0)], a.take(b.argsort())),
    "written": lambda a, b: a.clone().mul_(b[0]).index_put((torch.tensor([0]),), b).masked_fill(a > 0, 3),
    "algebra": lambda a, b: (torch.linalg.inv(a.mT @ a + torch.eye(4)), (a @ a.mT).det(), a.tril(), a.norm()),
    "networks": lambda a, b: (F.gelu(a), F.layer_norm(a, (4,), b), F.mse_loss(a, a * 2), F.pad(a, (1, 2))),
    "factories": lambda a, b: (torch.zeros_like(a), a.new_ones(2), torch.where(a > 0, a, 0 * a)),
}  # fmt: skip


class TestVmap:
    @pytest.mark.parametrize("name", FUNCTIONS)
    def test_is_the_stack_of_examples(self, name):
        torch.manual_seed(0)
        a, b = torch.randn(5, 3, 4), torch.randn(4, 5)
        func = FUNCTIONS[name]
        made = vmap(func, in_dims=(0, 1))(a, b)
        each = [func(a[i], b[:, i]) for i in range(5)]
        made, each = (made, each) if isinstance(made, tuple) else ((made,), [(e,) for e in each])
        for k, whole in enumerate(made):
            close(whole, torch.stack([e[k] for e in each]))
        only = vmap(func, in_dims=(0, None))(a, b[:, 0])
        for k, whole in enumerate(only if isinstance(only, tuple) else (only,)):
            want = [func(a[i], b[:, 0]) for i in range(5)]
            close(whole, torch.stack([w[k] if isinstance(w, tuple) else w for w in want]))

    def test_nested(self):
        a, b = torch.randn(3, 2), torch.randn(4, 2)
        table = vmap(lambda x: vmap(lambda y: x @ y)(b))(a)
        close(table, a @ b.T)
        close(vmap(lambda x: vmap(lambda y: x @ y, out_dims=0)(b), out_dims=1)(a), b @ a.T)

    def test_gradients_of_each_example(self):
        model = nn.Sequential(
            nn.Conv2d(2, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 4)
        )
        state = {k: v.detach() for k, v in model.named_parameters()}
        x, y = torch.randn(5, 2, 6, 6), torch.arange(5) % 4

        def loss(state, x, y):
            return F.cross_entropy(functional_call(model, state, x[None]), y[None])

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            grads = vmap(grad(loss), in_dims=(None, 0, 0))(state, x, y)
        for i in range(5):
            for k, g in grad(loss)(state, x[i], y[i]).items():
                close(grads[k][i], g)

    def test_gradient_of_a_batch(self):
        w, x = torch.randn(3), torch.randn(4, 3)
        of_batch = grad(lambda w: vmap(lambda x: (w * x).sum().sin())(x).sum())(w)
        close(of_batch, grad(lambda w: (x @ w).sin().sum())(w))

    def test_ensembles(self):
        models = [nn.Linear(3, 2) for _ in range(4)]
        params, buffers = stack_module_state(models)
        assert params["weight"].shape == (4, 2, 3)
        assert params["weight"].is_leaf
        x = torch.randn(5, 3)

        def one(p, b, x):
            return functional_call(models[0], (p, b), x)

        made = vmap(one, in_dims=(0, 0, None))(params, buffers, x)
        close(made, torch.stack([m(x) for m in models]))

    def test_randomness(self):
        x = torch.ones(3)
        with pytest.raises(RuntimeError, match="randomness error mode"):
            vmap(lambda t: torch.rand(2) + t)(x)
        same = vmap(lambda t: torch.rand(2) + t, randomness="same")(x)
        assert (same == same[0]).all()
        other = vmap(lambda t: torch.rand(2) + t, randomness="different")(x)
        assert not (other == other[0]).all()
        with pytest.raises(RuntimeError, match="Only allowed values for randomness"):
            vmap(lambda t: t, randomness="x")

    def test_randomness_of_levels(self):
        """Numbers that differ are those of whole batches, level by level; the same ones are drawn once."""

        def seeded(draw, *randomness, of=(2, 3, 20)):
            torch.manual_seed(0)
            for mode in reversed(randomness):
                draw = vmap(draw, randomness=mode)
            return draw(torch.ones(of[-1 - len(randomness) :]))

        def whole(shape, draw=torch.randn):
            torch.manual_seed(0)
            return draw(shape)

        for draw in (lambda t: torch.randn(20), torch.randn_like, lambda t: t.clone().normal_()):
            assert torch.equal(seeded(draw, "different"), whole((3, 20)))
            assert torch.equal(seeded(draw, "different", "different"), whole((2, 3, 20)))
            assert torch.equal(seeded(draw, "same"), whole((20,)).expand(3, 20))
            got = seeded(draw, "same", "different")
            assert torch.equal(got, whole((3, 20)).expand(2, 3, 20))
            got = seeded(draw, "different", "same")
            assert torch.equal(got, whole((2, 20)).unsqueeze(1).expand(2, 3, 20))
        normal = seeded(lambda t: torch.normal(t, 2.0), "different")
        assert torch.equal(normal, whole((3, 20), lambda size: torch.normal(torch.ones(size), 2.0)))
        picked = seeded(lambda t: torch.multinomial(t, 5), "different", "different")
        assert torch.equal(
            picked, whole((6, 20), lambda size: torch.ones(size).multinomial(5)).view(2, 3, 5)
        )
        turned = seeded(lambda t: torch.randperm(20), "different")
        assert (
            not torch.equal(turned[0], turned[1]) and (turned.sort()[0] == torch.arange(20)).all()
        )
        for mode, lone in (("same", True), ("different", False)):
            got = seeded(lambda t: F.dropout(t, 0.4), mode)
            assert (got == got[0]).all() == lone
            assert torch.equal(seeded(lambda t: F.dropout(torch.ones(20), 0.4), mode), got)

    def test_random_operators_that_are_refused(self):
        x = torch.ones(3, 20)
        with pytest.raises(RuntimeError, match="does not currently support same randomness"):
            vmap(lambda t: torch.bernoulli(t * 0.3), randomness="same")(x)
        with pytest.raises(RuntimeError, match="different inplace randomness on an unbatched"):
            vmap(lambda t: torch.empty(2).normal_(), randomness="different")(x)
        for t, draw in (
            (x, torch.Tensor.bernoulli_),
            (x[0], vmap(torch.Tensor.bernoulli_, (0, None))),
        ):
            with pytest.raises(RuntimeError, match=r"^expand\(torch.FloatTensor"):
                draw(t.clone(), torch.ones(20, 3, 20))

    def test_rules_check_one_example(self):
        """What is right of a whole batch may be wrong of an example."""
        for call, shapes, text in (
            (torch.dot, ((4, 1), (4, 3)), "inconsistent tensor size"),
            (torch.bmm, ((7, 2, 2, 2), (7, 2)), "3D tensor"),
            (torch.mm, ((7, 2, 2, 7), (7, 7)), "must be a matrix"),
            (torch.linalg.inv, ((3, 3),), "at least 2 dimensions"),
        ):
            with pytest.raises(RuntimeError, match=text):
                vmap(call)(*(torch.randn(s) for s in shapes))

    def test_chunks(self):
        x = torch.randn(7, 2)
        rand = vmap(lambda t: t + torch.rand(2), randomness="same", chunk_size=3)(torch.zeros(7, 2))
        assert (rand == rand[0]).all()
        close(chunk_vmap(torch.sin, chunks=3)(x), x.sin())
        close(vmap(torch.sin, chunk_size=3)(x), x.sin())
        close(vmap(lambda t: (t, t.sum()), out_dims=(1, 0), chunk_size=2)(x)[0], x.T)

    def test_dimensions_and_calls(self):
        seen = []
        out = vmap(lambda t: seen.append(tuple(t.shape)) or t * 2, out_dims=1)(torch.ones(2, 3, 4))
        assert seen == [(3, 4)]
        assert out.shape == (3, 2, 4)

        def calls(n):
            with Counter() as counter:
                vmap(lambda a: (a @ a).softmax(-1).sum())(torch.ones(n, 3, 3))
            return counter.total.calls

        assert calls(2) == calls(50)

    def test_slow_rows_say_so(self):
        with pytest.warns(UserWarning, match="batching rule for aten::histc"):
            vmap(lambda t: t.histc(3))(torch.randn(2, 5))

    def test_mistakes(self):
        x = torch.ones(2, 3)
        with pytest.raises(RuntimeError, match="calling"):
            vmap(lambda t: t.sum().item())(x)
        with pytest.raises(RuntimeError, match="data-dependent control flow"):
            vmap(lambda t: t if t.sum() > 0 else -t)(x)
        with pytest.raises(RuntimeError, match="data pointer"):
            vmap(lambda t: t.numpy())(x)
        with pytest.raises(RuntimeError, match="dynamic shape"):
            vmap(lambda t: t.nonzero())(x)
        with pytest.raises(ValueError, match="Got in_dim=5 for some input"):
            vmap(torch.sin, in_dims=5)(x)
        with pytest.raises(ValueError, match="must only return Tensors"):
            vmap(lambda t: 5)(x)
        with pytest.raises(ValueError, match="must be an int, None or a python collection"):
            vmap(torch.sin, out_dims="x")(x)
        with pytest.raises(ValueError, match="got sizes"):
            vmap(torch.add)(x, torch.ones(3, 3))

    def test_on_meta(self):
        out = vmap(lambda t: t.sum(0))(torch.ones(2, 3, 4, device="meta"))
        assert out.shape == (2, 4)
        assert out.is_meta


@pytest.mark.parametrize(
    "f",
    [
        lambda x: (x[:2] * x[2:]).sum(),
        lambda x: x[0] * x[1] * x[3],
        lambda x: nn.functional.layer_norm(x, (4,))[1].exp(),
        lambda x: nn.functional.batch_norm(x.view(4, 1), None, None, training=True)[0].exp().sum(),
    ],
)
def test_second_derivatives_forward_over_reverse(f):
    x = torch.tensor([1.0, 2.0, 4.0, 3.0], dtype=torch.float64)
    want = torch.autograd.functional.hessian(f, x)
    torch.testing.assert_close(torch.func.hessian(f)(x), want)
    push = torch.func.jvp(torch.func.grad(f), (x,), (x,))[1]
    torch.testing.assert_close(push, want @ x)


def test_what_is_transformed_calls_no_backward():
    w = torch.ones(3, requires_grad=True)

    def backward(x):
        w.sum().backward()
        return x.sum()

    for transformed in (torch.func.grad(backward), vmap(backward)):
        with pytest.raises(RuntimeError, match="called inside a functorch transform"):
            transformed(torch.ones(3))
    backward(torch.ones(3))
    assert w.grad.tolist() == [1, 1, 1]


def test_the_rest():
    x = torch.arange(24.0).view(2, 3, 4)
    assert rearrange(x, "a b c -> c (a b)").shape == (4, 6)
    assert torch.equal(
        rearrange(x, "a b (c d) -> d a b c", c=2), x.view(2, 3, 2, 2).permute(3, 0, 1, 2)
    )
    assert rearrange([x, x], "k ... c -> c k ... 1").shape == (4, 2, 2, 3, 1)
    with pytest.raises(ValueError, match="only on one side"):
        rearrange(x, "a b c -> c a")
    assert functionalize(lambda t: t.add_(1))(torch.ones(2)).tolist() == [2, 2]
    seen = []
    vmap(lambda t: seen.append(debug_unwrap(t)) or t)(x)
    assert torch.equal(seen[0], x)
    norm = replace_all_batch_norm_modules_(nn.Sequential(nn.BatchNorm1d(2)))[0]
    assert norm.running_mean is None
    assert torch.vmap is vmap


def test_modules_with_other_tensors_for_a_while():
    from torchlike.nn.utils import stateless

    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    model.tied, model[0].scale = nn.Linear(2, 2), torch.ones(2)
    model.tied.weight = model[0].weight
    own = model[0].weight
    x = torch.randn(3, 2)
    given = {"0.weight": torch.zeros(2, 2), "1.num_batches_tracked": torch.tensor(0)}
    with stateless._reparametrize_module(model, given, tie_weights=True):
        assert model.tied.weight is given["0.weight"] and model[0].weight is given["0.weight"]
        model(x)
    assert model[0].weight is own and model.tied.weight is own
    assert given["1.num_batches_tracked"] == 1
    functional_call(model, {"0.scale": torch.zeros(2)}, x)  # a tensor that is neither
    assert model[0].scale.sum() == 2
    with pytest.raises(TypeError, match=r"3 is not an instance of torch\.Tensor"):
        functional_call(model, {"0.weight": 3}, x)
    with pytest.raises(TypeError, match="attribute `0`: Linear"):
        functional_call(model, {"0": torch.ones(1)}, x)
    with pytest.raises(
        RuntimeError, match=r"Unexpected key\(s\): 'z'.\n\tMissing key\(s\): '0.bias', '1.b"
    ):
        functional_call(model, {"0.weight": own, "z": x}, x, strict=True)
    with pytest.raises(ValueError, match="tied"):
        functional_call(model, {"0.weight": own, "tied.weight": own.detach()}, x)


@pytest.mark.parametrize("setting", [{}, {"padding_idx": 3}])
def test_embeddings_of_whole_batches(setting):
    tables = torch.randn(4, 10, 3, dtype=torch.float64)
    words = torch.randint(0, 10, (4, 5))

    def squares(w, t):
        return grad(lambda t: nn.functional.embedding(w, t, **setting).pow(2).sum())(t)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for f in (lambda w, t: nn.functional.embedding(w, t, **setting), squares):
            for dims in ((0, None), (None, 0), (0, 0)):
                given = [v if d == 0 else v[0] for v, d in zip((words, tables), dims, strict=True)]
                each = [
                    f(*[v[i] if d == 0 else v for v, d in zip(given, dims, strict=True)])
                    for i in range(4)
                ]
                assert torch.allclose(vmap(f, dims)(*given), torch.stack(each))


@pytest.mark.parametrize(("transposed", "groups"), [(False, 1), (False, 2), (True, 2)])
@pytest.mark.parametrize("n", [0, 2])
def test_gradients_of_convolutions_of_whole_batches(transposed, groups, n):
    conv = nn.functional.conv_transpose1d if transposed else nn.functional.conv1d
    x = torch.randn(3, n, 4, 7, dtype=torch.float64)
    w = torch.randn(3, 4, 4 // groups, 3, dtype=torch.float64)
    g = torch.randn(3, *conv(x[0], w[0], groups=groups).shape, dtype=torch.float64)

    def pulled(x, w, g):
        return torch.func.vjp(lambda x, w: conv(x, w, groups=groups), x, w)[1](g)

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing runs once an example
        for dims in ((0, 0, 0), (None, None, 0), (0, None, None), (None, 0, 0)):
            given = [v if d == 0 else v[0] for v, d in zip((x, w, g), dims, strict=True)]
            each = [
                pulled(*[v[i] if d == 0 else v for v, d in zip(given, dims, strict=True)])
                for i in range(3)
            ]
            made = vmap(pulled, dims)(*given)
            for m, wanted in zip(made, zip(*each, strict=True), strict=True):
                assert m.shape == torch.stack(wanted).shape
                assert torch.allclose(m, torch.stack(wanted))
        # of one call, which only the gradients of its result are many of
        pull = torch.func.vjp(lambda x, w: conv(x, w, groups=groups), x[0], w[0])[1]
        for m, wanted in zip(vmap(pull)(g), zip(*map(pull, g), strict=True), strict=True):
            assert torch.allclose(m, torch.stack(wanted))


def test_gradients_of_normalised_batches_with_running_statistics():
    one = torch.nn.BatchNorm1d(3)
    params, buffers = torch.func.stack_module_state([one, torch.nn.BatchNorm1d(3)])
    x = torch.randn(2, 5, 3)

    def call(params, buffers, x):
        return torch.func.functional_call(one, (params, buffers), (x,))

    torch.vmap(call)(params, buffers, x).sin().sum().backward()
    for i in range(2):
        apart = torch.nn.BatchNorm1d(3)
        apart(x[i]).sin().sum().backward()
        torch.testing.assert_close(params["weight"].grad[i], apart.weight.grad)
        torch.testing.assert_close(buffers["running_var"][i], apart.running_var)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_gradients_of_complex_eigenvectors_of_examples():
    a = torch.randn(2, 3, 3, dtype=torch.float64)

    def size(a):
        return (torch.linalg.eig(a)[1].abs() ** 3).sum()

    made = torch.vmap(torch.func.grad(size))(a)
    torch.testing.assert_close(made, torch.stack([torch.func.grad(size)(x) for x in a]))
