"""What nodes keep for their way back, and who may keep something else in its place."""

from __future__ import annotations

import copy
import pickle
import warnings

import pytest

import torchlike as torch
from derivatives import leaf
from torchlike.utils.checkpoint import checkpoint
from torchlike.utils.hooks import unserializable_hook, warn_if_has_hooks

H = torch.autograd.graph.saved_tensors_hooks


class TestSaved:
    def test_numbers_stand_for_tensors(self):
        x = leaf(1.0, 2.0)
        node = (x * 2).grad_fn
        assert node._saved_self is None
        assert torch.equal(node._saved_other, torch.tensor(2))
        assert (x * 2.5).grad_fn._saved_other.dtype == torch.float64
        assert (x**2).grad_fn._saved_exponent == 2

    @pytest.mark.parametrize(
        ("call", "names"),
        [
            (lambda x: torch.nn.functional.adaptive_avg_pool2d(x, 3), ["self"]),
            (lambda x: torch.nn.functional.adaptive_max_pool2d(x, 3), ["result1", "self"]),
            (lambda x: x.unbind(1)[0], ["dim"]),
            (lambda x: x.nansum(), ["dim", "keepdim", "self"]),
            (lambda x: x.as_strided((2, 2), (1, 2)), ["size", "storage_offset", "stride"]),
            (lambda x: x.select_scatter(x.detach()[0], 0, 0), ["dim", "index"]),
            (lambda x: torch.nn.functional.pad(x, (1, 1, 1, 1), "replicate"), ["padding", "self"]),
            (
                lambda x: torch.nn.functional.interpolate(x[0], scale_factor=2, mode="linear"),
                ["align_corners", "output_size", "scales", "self_sym_sizes"],
            ),
            (
                lambda x: torch.nn.functional.nll_loss(x[0, 0], torch.tensor([0, 1])),
                ["ignore_index", "reduction", "self", "target", "total_weight", "weight"],
            ),
        ],
    )
    def test_has_the_names_that_it_has_in_pytorch(self, call, names):
        node = call(torch.ones(1, 2, 2, 2, requires_grad=True)).grad_fn
        found = [name.removeprefix("_saved_") for name in dir(node) if name.startswith("_saved_")]
        assert sorted(found) == names
        assert all(getattr(node, "_saved_" + name) is not NotImplemented for name in names)

    def test_is_freed_even_if_it_is_a_number(self):
        y = (leaf(1.0, 2.0) * 2).sum()
        y.backward()
        with pytest.raises(RuntimeError, match="a second time"):
            y.backward()

    def test_has_the_history_of_its_tensor(self):
        x = leaf(1.0, 2.0)
        y = x.exp()
        assert (x * x).grad_fn._saved_self is x
        assert y.grad_fn._saved_result.grad_fn is y.grad_fn
        b = x.clone()
        b.mul_(x)
        assert b.grad_fn._saved_self.grad_fn.name() == "CloneBackward0"

    def test_raw_tensors_take_hooks(self):
        x = leaf(1.0, 2.0)
        y = x * x
        raw = y.grad_fn._raw_saved_self
        assert raw.data is x
        assert raw.unpack() is x
        seen = []
        raw.register_hooks(lambda t: seen.append(t.requires_grad) or t.tolist(), torch.tensor)
        assert seen == [False]
        with pytest.raises(RuntimeError, match="only one pair of hooks is allowed"):
            raw.register_hooks(lambda t: t, lambda t: t)
        with pytest.raises(RuntimeError, match="value None is forbidden"):
            (x * 2).grad_fn._raw_saved_self.register_hooks(lambda t: t, lambda t: t)
        y.sum().backward()
        assert x.grad.tolist() == [2, 4]
        assert raw.data is None
        with pytest.raises(RuntimeError, match="after it has been freed"):
            raw.register_hooks(lambda t: t, lambda t: t)

    def test_raw_tensors_of_functions(self):
        class Square(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            def backward(ctx, grad):
                return 2 * grad * ctx.saved_tensors[0]

        x = leaf(3.0)
        y = Square.apply(x)
        (raw,) = y.grad_fn._raw_saved_tensors
        raw.register_hooks(lambda t: t.item(), lambda v: torch.tensor([v + 1]))
        y.sum().backward()
        assert x.grad.tolist() == [8]

    def test_lists(self):
        node = torch.index_put(leaf(1.0, 2.0), (torch.tensor([0]),), torch.ones(1)).grad_fn
        assert node._saved_indices[0].tolist() == [0]
        assert node._raw_saved_indices[0].data.tolist() == [0]


class TestHooks:
    def test_see_tensors_with_their_history(self):
        seen = []

        def pack(t):
            seen.append((t.is_leaf, t.grad_fn.name() if t.grad_fn else None))
            return t

        x = leaf(1.0, 2.0)
        with H(pack, lambda t: t):
            y = x.clone()
            y.mul_(x)
            z = y.exp()
            z[:1].tanh_()
        assert seen == [
            (True, None),
            (False, "CloneBackward0"),
            (False, "ExpBackward0"),
            (False, "AsStridedBackward0"),
        ]

    def test_come_in_the_order_of_names(self):
        shapes = []
        x, w, b = torch.ones(4, 3), torch.ones(3, requires_grad=True), torch.zeros(3)
        with H(lambda t: shapes.append(tuple(t.shape)) or t, lambda t: t):
            torch.nn.functional.layer_norm(x.requires_grad_(), (3,), w, b)
        assert shapes == [(3,), (4, 3), (3,), (4, 1), (4, 1)]

    def test_must_not_write(self):
        with (
            pytest.raises(RuntimeError, match="pack hook is modifying its input in place"),
            H(lambda t: t.mul_(2), lambda t: t),
        ):
            leaf(1.0).exp() * leaf(2.0)

    def test_can_be_refused(self):
        with (
            torch.autograd.graph.disable_saved_tensors_hooks("not here"),
            pytest.raises(RuntimeError, match="not here"),
            H(lambda t: t, lambda t: t),
        ):
            pass
        with (
            H(lambda t: t, lambda t: t),
            pytest.raises(RuntimeError, match="nor here"),
            torch.autograd.graph.disable_saved_tensors_hooks("nor here"),
        ):
            pass

    def test_tensors_may_be_written_once_they_are_copied(self):
        x = leaf(2.0)
        with torch.autograd.graph.allow_mutation_on_saved_tensors() as kept:
            y = x.clone()
            z = (y * y).sum()
            y.mul_(10)
            y[0] = 7
            (g,) = torch.autograd.grad(z, x)
            assert g.tolist() == [4]
            nested = torch.autograd.graph.allow_mutation_on_saved_tensors()
            with pytest.raises(RuntimeError, match="cannot be nested"), nested:
                pass
            kept.clear()


class TestPlaces:
    def test_leaves_have_hooks(self):
        x = leaf(1.0, 2.0)
        node = torch.autograd.graph.get_gradient_edge(x).node
        seen = []
        node.register_prehook(lambda go: (go[0] * 2,))
        x.register_post_accumulate_grad_hook(lambda p: seen.append(("gathered", p.grad.tolist())))
        node.register_hook(lambda gi, go: seen.append(("after", gi, go[0].tolist())))
        (x * 3).sum().backward()
        assert x.grad.tolist() == [6, 6]
        assert seen == [("gathered", [6, 6]), ("after", (), [6, 6])]
        assert node.variable is x
        assert node.requires_grad

    @pytest.mark.parametrize(
        ("register", "error", "text"),
        [
            (
                lambda y: y.grad_fn.register_hook(lambda gi, go: gi[0]),
                TypeError,
                "expected tuple, but",
            ),
            (lambda y: y.grad_fn.register_prehook(lambda go: 5), TypeError, "expected tuple, but"),
            (
                lambda y: y.grad_fn.next_functions[0][
                    0
                ].variable.register_post_accumulate_grad_hook(lambda p: p.data),
                RuntimeError,
                "should return None",
            ),
            (
                lambda y: y.grad_fn.next_functions[0][
                    0
                ].variable.register_post_accumulate_grad_hook(lambda p: 5),
                TypeError,
                "expected Variable, but hook returned 'int'",
            ),
        ],
    )
    def test_answers_of_hooks_are_checked(self, register, error, text):
        y = leaf(1.0, 2.0) * 2
        register(y)
        with pytest.raises(error, match=text):
            y.sum().backward()

    def test_hooks_are_not_written_to_files(self):
        x = leaf(1.0)
        x.grad = torch.ones(1)
        x.register_hook(lambda g: g)
        with pytest.warns(UserWarning, match="will not be serialized"):
            made = pickle.loads(pickle.dumps(x))
        assert made.requires_grad
        assert made.grad is None
        assert copy.deepcopy(x).grad.tolist() == [1]
        marked = leaf(1.0)
        marked.register_hook(unserializable_hook(lambda g: g))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warn_if_has_hooks(marked)
            assert len(marked._backward_hooks) == 1 and leaf(1.0)._backward_hooks is None
            # A view that may not be asked for its history any more.
            base = leaf([1.0, 2.0])
            with torch.no_grad():
                view = base.view(2)
                base.add_(1)
            assert pickle.loads(pickle.dumps(view)).tolist() == [2, 3]
        weight = torch.nn.Parameter(torch.ones(1))
        weight.grad = torch.ones(1)
        assert copy.deepcopy(weight).grad is None


class TestMessages:
    @pytest.mark.parametrize(
        ("make", "maker"),
        [
            (lambda x: x.sum(0), "Sum1"),
            (lambda x: x.clone().unsqueeze_(0), "Unsqueeze1"),
            (lambda x: x.clone(), "Clone"),
        ],
    )
    def test_name_what_made_a_tensor(self, make, maker):
        y = make(torch.ones(2, 2, requires_grad=True))
        z = (y * y).sum()
        y.detach().add_(1)
        with pytest.raises(RuntimeError, match=f"which is output 0 of {maker}, is at version"):
            z.backward()

    def test_name_what_wrote_it_last(self):
        x = torch.ones(2, 2, requires_grad=True)
        for write, maker in (
            (lambda y: y.add_(1), "Add"),
            (lambda y: y[0].mul_(2), "torch::autograd::CopySlices"),
        ):
            y = x * 2
            z = (y * y).sum()
            write(y)
            with pytest.raises(RuntimeError, match=f"which is output 0 of {maker}, is at version"):
                z.backward()
        y = torch.ones(2, 2)
        z = (y[0] * x).sum()
        y.mul_(x)
        with pytest.raises(RuntimeError, match="output 0 of AsStrided, is at version 1"):
            z.backward()


def test_names_are_those_of_results_and_of_what_calls_come_down_to():
    x = leaf(1.0, 2.0).view(1, 2)
    assert [x.std(1).grad_fn._saved_correction, x.var().grad_fn._saved_correction] == [1, 1]
    assert x.cummax(1)[0].grad_fn._saved_indices.tolist() == [[0, 1]]
    assert not [name for name in dir(torch.cat([x, x]).grad_fn) if "_sym_sizes" in name]


def test_gradients_of_functions_take_no_hooks_as_pytorchs_do_not():
    x = torch.tensor([1.0, 2.0])
    size = lambda x: (x.sin() * x).sum()  # noqa: E731

    def hooked(x):
        with H(lambda t: t.clone(), lambda t: t):
            return size(x)

    refused = pytest.raises(RuntimeError, match="don't yet support saved tensor hooks")
    with refused:
        torch.func.grad(hooked)(x)
    for transform in (torch.func.grad, torch.func.jacrev, torch.func.hessian):
        with H(lambda t: t.clone(), lambda t: t), refused:
            transform(size)(x)
    assert torch.func.jvp(hooked, (x,), (x,))[0] == size(x) == torch.func.vmap(size)(x[None])[0]


def test_what_a_checkpoint_is_given_is_packed():
    packed = []

    def pack(t):
        packed.append(tuple(t.shape))
        return t.clone()

    x, h = torch.ones(2, 3, requires_grad=True), torch.ones(2, 3)
    with H(pack, lambda t: t):
        y = checkpoint(lambda a, b, k: a.sin() * b * k, x, h, 2.0, use_reentrant=False)
    assert packed == [(2, 3), (2, 3)]
    y.sum().backward()
    torch.testing.assert_close(x.grad, 2 * torch.ones(2, 3).cos())
    y = checkpoint(lambda a, b: a * b, x, h, use_reentrant=False)
    h.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
