"""Functions whose gradient the user writes."""

from __future__ import annotations

import gc
import itertools

import pytest

import torchlike as torch
from derivatives import SavesInputs, leaf, made
from torchlike.autograd import Function
from torchlike.autograd.function import FunctionCtx, NestedIOFunction, once_differentiable


class Cube(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 3 * x * x * grad


class TestFunction:
    def test_gradient(self):
        x = leaf(2.0)
        y = Cube.apply(x)
        assert type(y.grad_fn).__name__ == "CubeBackward"
        y.backward()
        assert x.grad.tolist() == [12]

    def test_twice(self):
        x = leaf(2.0)
        (g,) = torch.autograd.grad(Cube.apply(x), x, create_graph=True)
        (h,) = torch.autograd.grad(g, x)
        assert h.tolist() == [12]

    def test_context_apart(self):
        class Scale(Function):
            @staticmethod
            def forward(x, by):
                return x * by

            @staticmethod
            def setup_context(ctx, inputs, output):
                ctx.by = inputs[1]

            @staticmethod
            def backward(ctx, grad):
                return grad * ctx.by, None

        x = leaf(2.0)
        Scale.apply(x, 5).backward()
        assert x.grad.tolist() == [5]

    def test_several_outputs(self):
        class Both(Function):
            @staticmethod
            def forward(ctx, x):
                y, z = x * 2, x.long()
                ctx.mark_non_differentiable(z)
                return y, z

            @staticmethod
            def backward(ctx, gy, gz):
                assert gz.tolist() == [0]
                return gy * 2

        x = leaf(2.0)
        y, z = Both.apply(x)
        assert not z.requires_grad
        y.backward()
        assert x.grad.tolist() == [2]

    def test_wrong_counts(self):
        class Wrong(Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, grad):
                return grad, grad

        with pytest.raises(RuntimeError, match="incorrect number of gradients"):
            Wrong.apply(leaf(1.0)).backward()

    def test_once(self):
        class Once(Function):
            @staticmethod
            def forward(ctx, x):
                assert isinstance(ctx, FunctionCtx)
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            @once_differentiable
            def backward(ctx, grad):
                return grad * 2 * ctx.saved_tensors[0]

        x = leaf(3.0)
        (g,) = torch.autograd.grad(Once.apply(x), x, leaf(1.0), create_graph=True)
        assert g.item() == 6
        with pytest.raises(RuntimeError, match="once_differentiable"):
            g.backward()

    def test_nested_arguments_are_refused(self):
        with pytest.raises(NotImplementedError, match="NestedIOFunction"):
            NestedIOFunction.apply(1)

    def test_errors_pass_through(self):
        class Fails(Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, grad):
                raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            Fails.apply(leaf(1.0)).backward()


def written(ctx, x):
    x.mul_(2)
    ctx.mark_dirty(x)
    return x


class TestArguments:
    def test_by_name(self):
        seen = []

        def forward(ctx, x, by=2, plus=0):
            seen.append((by, plus, len(ctx.needs_input_grad)))
            return x * by + plus

        apply, x = made(forward, lambda ctx, g: (g, None, None)), leaf(1.0)
        assert apply(x=x).requires_grad
        apply(x, by=4)
        assert seen == [(2, 0, 1), (4, 0, 2)]
        with pytest.raises(TypeError, match="missing required argument: 'by'"):
            apply(x, plus=1)
        with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
            made(lambda ctx, x, *, z=1: x)(x, z=2)

    @pytest.mark.parametrize(
        ("forward", "error", "text"),
        [
            (lambda ctx, x: ctx.set_materialize_grads("a"), TypeError, "expected (bool)"),
            (lambda ctx, x: ctx.mark_dirty(5), RuntimeError, "mark_dirty can only accept"),
            (lambda ctx, x: ctx.mark_non_differentiable(5), RuntimeError, "only accepts variable"),
            (
                lambda ctx, x: (ctx.save_for_backward(5), x * 1)[1],
                TypeError,
                "argument 0 is of type int",
            ),
            (written, RuntimeError, "has been used in an in-place operation"),
            (lambda ctx, x: written(ctx, x.detach()) * 1, RuntimeError, "not returned as output"),
        ],
    )
    @pytest.mark.filterwarnings("ignore:Only input Tensors should be given")
    def test_that_are_refused(self, forward, error, text):
        with pytest.raises(error) as e:
            made(forward)(leaf(1.0, 2.0))
        assert text in str(e.value)


class TestOutputs:
    def test_that_were_written(self):
        x = leaf(1.0, 2.0)
        y = x.clone()
        assert made(written)(y) is y
        assert y._version == 2
        assert y.grad_fn.name() == "MadeBackward"
        base = x.clone()
        view = base[:1]
        assert made(written, lambda ctx, g: g * 3)(view) is view
        assert base.grad_fn.name() == "torch::autograd::CopySlices"
        base.sum().backward()
        assert x.grad.tolist() == [3, 1]

        def two(ctx, x):
            return written(ctx, x), x * 1

        with pytest.raises(RuntimeError, match="your Function cannot return more than one Tensor"):
            made(two)(x.clone()[:1])

    def test_that_are_no_tuple_of_tensors(self):
        x = leaf(1.0, 2.0)
        assert not made(lambda ctx, x: [x * 1])(x)[0].requires_grad
        assert made(lambda ctx, x: None)(x) is None
        assert not made(lambda ctx, x: torch.ones(2, requires_grad=True))(3).requires_grad

    def test_nobody_is_told_of_what_is_around_a_call(self):
        class Log(torch.overrides.TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                names.append(func.__name__)
                return func(*args, **(kwargs or {}))

        names = []
        x = leaf(1.0)
        with Log():
            made(lambda ctx, x: x.clone())(x)
        assert names == ["clone"]


def test_functions_that_save_nothing():
    class Double(torch.autograd.Function):
        gives = "one"

        @staticmethod
        def forward(ctx, x, n):
            ctx.n = n
            return x * n

        @staticmethod
        def backward(ctx, grad):
            made = {"one": (grad * ctx.n, None), "more": (grad, grad), "few": (grad,), "none": None}
            return made[Double.gives]

    x = torch.ones(2, requires_grad=True)
    y = Double.apply(x, 3)
    assert y.grad_fn.name() == "DoubleBackward" and y.grad_fn.needs_input_grad == (True, False)
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    assert x.grad.tolist() == [6, 6]
    assert not Double.apply(x.detach(), 3).requires_grad
    assert not Double.apply(x, 3).detach().requires_grad and Double.apply(x, n=2).requires_grad
    Double.gives = "more"
    with pytest.raises(RuntimeError, match="gradient different than None at position 2"):
        Double.apply(x, 3).sum().backward()
    for gives, count in (("few", 1), ("none", 1)):
        Double.gives = gives
        with pytest.raises(RuntimeError, match=f"expected 2, got {count}"):
            Double.apply(x, 3).sum().backward()


def test_views_among_the_outputs_of_memory_that_was_written_before():
    class Two(Function):
        @staticmethod
        def forward(ctx, x):
            written = (x * 2).masked_fill_(x > 1, 1)
            return written.squeeze(0), (x + 1).squeeze(0)

        @staticmethod
        def backward(ctx, first, second):
            return (first + second).unsqueeze(0)

    x = torch.tensor([[0.5, 2.0]], requires_grad=True)
    first, second = Two.apply(x)
    assert first.grad_fn.name() == "TwoBackward" and first._version == 1
    (first * second).sum().backward()
    assert x.grad.tolist() == [[2.5, 4.0]]
    with pytest.raises(RuntimeError, match="Output 0 of Two is a view and is being modified"):
        first.add_(1)


class Product(SavesInputs):
    @staticmethod
    def forward(x, y):
        return x * y

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        return Product.apply(grad, y), Product.apply(grad, x)

    @staticmethod
    def jvp(ctx, along_x, along_y):
        x, y = ctx.saved_tensors
        return along_x * y + along_y * x


@pytest.mark.parametrize("shapes", [((4,), (3, 4)), ((3, 1), (3, 4)), ((), (3,)), ((1, 4), (3, 1))])
@pytest.mark.parametrize("in_dims", [(0, None), (None, 0), (0, 0)])
def test_examples_that_are_broadcast_have_gradients_of_their_shape(shapes, in_dims):
    given = [
        torch.randn((2, *shape) if d == 0 else shape, requires_grad=True)
        for shape, d in zip(shapes, in_dims, strict=True)
    ]

    def gradients(function):
        return torch.autograd.grad(torch.vmap(function, in_dims)(*given).sin().sum(), given)

    torch.testing.assert_close(gradients(Product.apply), gradients(torch.mul))


@pytest.mark.parametrize("dims", list(itertools.product((0, None), repeat=4)))
def test_examples_whose_tangents_differ_apart_from_them(dims):
    given = [torch.randn((2, 3, 4) if d == 0 else (3, 4)) for d in dims]

    def change(function):
        def call(x, y, along_x, along_y):
            return torch.func.jvp(function, (x, y), (along_x, along_y))

        return torch.vmap(call, dims)(*given) if 0 in dims else call(*given)

    torch.testing.assert_close(change(Product.apply), change(torch.mul))


@pytest.mark.parametrize("wants", [True, False])
def test_an_input_that_is_given_back_is_saved_as_it_is(wants):
    seen = []

    class Through(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return x

        @staticmethod
        def backward(ctx, grad):
            seen.extend((t.requires_grad, t.is_leaf) for t in ctx.saved_tensors)
            x, y = ctx.saved_tensors
            return grad * x * y, grad * x

    x, y = torch.tensor([2.0], requires_grad=wants), torch.tensor([3.0], requires_grad=True)
    (first,) = torch.autograd.grad(Through.apply(x, y), y, create_graph=True)
    assert seen == [(wants, True), (True, True)] and first.item() == 2
    if wants:
        (second,) = torch.autograd.grad(first, x)
        assert second.item() == 1


class Named(torch.Tensor):
    """A class whose results are of it."""


@pytest.mark.parametrize("wants", [True, False])
def test_an_input_that_is_given_back_keeps_its_class(wants):
    class Through(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, grad):
            return grad * 3

    x = torch.ones(2).as_subclass(Named).requires_grad_(wants)
    y = Through.apply(x)
    assert type(y) is Named and y is not x and y.requires_grad is wants
    if wants:
        y.sum().backward()
        assert x.grad.tolist() == [3, 3]


@pytest.mark.parametrize("forgotten", [False, True])
@pytest.mark.parametrize("wants", [False, True])
def test_what_is_saved_comes_back_as_the_object_that_it_is(wants, forgotten):
    seen = []

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, kept, x):
            ctx.save_for_backward(kept, x)
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            seen.extend(ctx.saved_tensors)
            return None, grad * 2

    kept = torch.ones(2, requires_grad=wants).as_subclass(Named)
    kept.tag = 5
    x = torch.ones(2, requires_grad=True)
    y = Twice.apply(kept, x).sum()
    number = id(kept)
    if forgotten:
        del kept
        gc.collect()
    y.backward()
    assert type(seen[0]) is Named and seen[0].tag == 5 and id(seen[0]) == number and seen[1] is x

    with torch.autograd.graph.saved_tensors_hooks(lambda t: t + 1, lambda t: t):
        y = Twice.apply(torch.ones(2).as_subclass(Named), x).sum()
    y.backward()
    assert torch.equal(seen[2], torch.full((2,), 2.0))


def test_who_unpacks_what_is_saved_may_look_at_it_again():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.saved_tensors[0]

    seen = []
    x = torch.tensor([3.0], requires_grad=True)
    y = Twice.apply(x)

    def unpack(kept):
        if not seen:
            seen.append(None)
            seen.append(y.grad_fn.saved_tensors[0].item())
        return kept

    y.grad_fn._raw_saved_tensors[0].register_hooks(lambda t: t.detach() + 1, unpack)
    y.backward()
    assert seen == [None, 4] and x.grad.tolist() == [4]
