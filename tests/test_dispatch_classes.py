"""Tensors of classes that handle their calls (`__torch_dispatch__`): how they are made, copied and passed on."""

import copy
import pickle

import pytest

import torchlike as torch
from torchlike.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing


class Passing(torch.Tensor):
    """Hands its calls to the class above, and notes them."""

    log = []

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        cls.log.append(str(func))
        return super().__torch_dispatch__(func, types, list(args), kwargs)


def test_instances_that_are_constructed_handle_their_calls():
    class Three(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            return Three(3)

        def __repr__(self):
            return super().__repr__(tensor_contents="three")

    x = Three(2)
    made = (x + 1, x.clone(), torch.zeros_like(x), x.new_ones(5), torch.randint_like(x, high=3))
    assert all(type(t) is Three and t.shape == (3,) for t in made)
    assert repr(x) == "Three(three)" and repr(torch.ones(1)) == "tensor([1.])"


def test_the_class_above_computes():
    x = Passing([1.0, 2.0])
    assert type(x) is Passing and type(x + x) is torch.Tensor
    assert (x.neg().tolist(), x.mul_(2) is x) == ([-1, -2], True)
    assert Passing.log == ["aten.add.Tensor", "aten.neg.default", "aten.mul_.Tensor"]


def test_modes_are_no_class_methods():
    class Wrong(TorchDispatchMode):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            return func(*args)

    with Wrong(), pytest.raises(RuntimeError, match="please make it a plain method"):
        torch.ones(1) + 1


class Pair(torch.Tensor):
    """Two tensors that go through the same calls."""

    @staticmethod
    def __new__(cls, a, b):
        return torch.Tensor._make_wrapper_subclass(cls, a.shape, dtype=a.dtype)

    def __init__(self, a, b):
        self.a, self.b = a, b

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        a, b = (
            func(*(getattr(x, side) if isinstance(x, Pair) else x for x in args), **(kwargs or {}))
            for side in "ab"
        )
        return Pair(a, b)


def test_wrappers_are_copied_and_pickled():
    x = Pair(torch.ones(2), torch.zeros(2))
    for made in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert type(made) is Pair and made.a is not x.a and made.shape == (2,)
        assert made.a.tolist() == [1, 1] and made.b.tolist() == [0, 0]
    layer = torch.nn.Linear(2, 2)
    layer.weight = torch.nn.Parameter(Pair(torch.ones(2, 2), torch.zeros(2, 2)))
    assert copy.deepcopy(layer).weight.a.sum() == 4
    with pytest.raises(NotImplementedError):
        x.untyped_storage().clone()


def test_other_data_leaves_the_class_its_calls():
    x = Passing(torch.zeros(2))
    x.data = torch.ones(3)
    Passing.log.clear()
    assert x.add(1).tolist() == [2, 2, 2] and "aten.add.Tensor" in Passing.log


def test_layers_convert_what_a_wrapper_holds():
    class Flat(Pair):
        def __tensor_flatten__(self):
            return ["a", "b"], None

        @staticmethod
        def __tensor_unflatten__(tensors, context, size, stride):
            return Flat(tensors["a"], tensors["b"])

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            made = Pair.__torch_dispatch__.__func__(cls, func, types, args, kwargs)
            return Flat(made.a, made.b)

    layer = torch.nn.Linear(2, 2, bias=False)
    weight = layer.weight = torch.nn.Parameter(Flat(torch.ones(2, 2), torch.zeros(2, 2)))
    for change in (layer.double, layer.half):
        change()
        assert layer.weight is weight and weight.dtype == weight.a.dtype == weight.b.dtype
        assert weight.requires_grad and isinstance(weight, torch.nn.Parameter)
    assert (weight * 2).a.tolist() == [[2, 2], [2, 2]]
    one, other = Flat(torch.ones(2), torch.ones(2)), Flat(torch.zeros(3), torch.zeros(3))
    torch.utils.swap_tensors(one, other)
    assert one.shape == (3,) and one.a.tolist() == [0, 0, 0] and (other + 1).a.tolist() == [2, 2]


def test_handlers_that_are_methods_of_an_object():
    asked = []

    class Own(torch.Tensor):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            asked.append((id(self), func, len(args)))
            return torch.zeros(3)

    made = torch.Tensor._make_subclass(Own, torch.ones(2))
    assert made.neg().tolist() == [0, 0, 0]
    assert asked == [(id(made), torch.ops.aten.neg.default, 1)]


def test_what_is_written_is_the_argument_itself():
    aten, out = torch.ops.aten, torch.ones(2)
    values, places = torch.ones(2), torch.zeros(2, dtype=torch.int64)
    for func, args, kwargs, made, want in (
        (aten.add_.Tensor, (out, 1), {}, torch.zeros(2), out),
        (aten.add.out, (out, 1), {"out": values}, torch.zeros(2), values),
        (aten.add.Tensor, (out, 1), {}, values, values),
        (aten.sort.values, (out,), {"values": values, "indices": places}, (1, 2), (values, places)),
    ):
        result = return_and_correct_aliasing(func, args, kwargs, made)
        pairs = zip(result, want, strict=True) if isinstance(want, tuple) else [(result, want)]
        assert all(a is b for a, b in pairs)


def test_a_reshape_is_one_view():
    def shown(call, x):
        Passing.log.clear()
        call(x.as_subclass(Passing))
        return Passing.log[:]

    x = torch.arange(6.0).view(2, 3)
    assert shown(lambda x: x.reshape(-1), x) == ["aten.view.default"]
    assert shown(lambda x: x.flatten(), x) == ["aten.view.default"]
    # What the class above makes of the copy is plain.
    assert shown(lambda x: x.reshape(-1), x.t()) == ["aten.clone.default"]
    assert shown(lambda x: x.flatten(), x.t()) == ["aten.clone.default"]


class Held(torch.Tensor):
    """A wrapper of one tensor, whose handler says what is an argument and what is new."""

    @staticmethod
    def __new__(cls, held):
        said = {"dtype": held.dtype, "strides": held.stride()}
        return torch.Tensor._make_wrapper_subclass(cls, held.shape, **said)

    def __init__(self, held):
        self.held = held

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        inner = [a.held if isinstance(a, Held) else a for a in args]
        out = Held(func(*inner, **(kwargs or {})))
        return return_and_correct_aliasing(func, args, kwargs, out)


class Anew(Held):
    """Answers every call with another wrapper."""

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return Anew(func(*(a.held if isinstance(a, Held) else a for a in args), **(kwargs or {})))


@pytest.mark.parametrize("cls", [Held, Anew])
def test_parameters_that_are_written_stay_parameters(cls):
    p = torch.nn.Parameter(cls(torch.ones(2)))
    with torch.no_grad():
        assert torch.nn.init.constant_(p, 3) is p
    assert p.requires_grad and p.is_leaf and p.held.tolist() == [3, 3]
    (p * 2).sum().backward()
    p.grad = cls(torch.ones(2))
    torch.optim.SGD([p], lr=1.0).step()
    assert p.requires_grad and p.held.tolist() == [2, 2]
    made = copy.deepcopy(p)
    assert (
        isinstance(made, torch.nn.Parameter) and type(made) is cls and made.held.tolist() == [2, 2]
    )


def test_views_in_place_change_what_a_wrapper_says():
    x = Held(torch.zeros(2, 3))
    assert x.transpose_(0, 1) is x
    assert (x.shape, x.stride(), x.held.shape) == ((3, 2), (1, 3), (3, 2))
    assert x.unsqueeze_(0).shape == (1, 3, 2) and x.squeeze_().shape == (3, 2)
    assert x.add_(1) is x and x.held.tolist() == [[1, 1]] * 3


def test_views_in_place_by_the_class_above():
    x = Passing(torch.arange(6.0).reshape(2, 3))
    assert x.t_() is x and (x.shape, x.stride()) == ((3, 2), (1, 3))
    assert x.unsqueeze_(0).shape == (1, 3, 2) and x.sum().item() == 15
    assert x.set_(torch.ones(4)) is x and x.neg().tolist() == [-1] * 4 and type(x) is Passing


def test_a_handler_may_give_nothing():
    class Silent(Held):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            return None

    x, other = Silent(torch.ones(2)), Anew(torch.ones(2))
    assert x + 1 is None and x.add_(1) is x
    assert other.set_(torch.zeros(3)) is other and other.shape == (2,)
    with pytest.raises(RuntimeError, match="None to Tensor"):
        torch.nn.functional.softsign(x)
