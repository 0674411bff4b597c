"""`__torch_function__`, subclasses and function modes."""

import copy
import pickle

import pytest

import torchlike as torch
from torchlike import nn, overrides

F = nn.functional


class Kept(torch.Tensor):
    """A class that does not override."""


class Log(torch.Tensor):
    log: list = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        Log.log.append(func)
        return super().__torch_function__(func, types, args, kwargs)


class Duck:
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func, types, args, kwargs


class Mode(overrides.TorchFunctionMode):
    def __init__(self):
        self.log = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.log.append(func)
        return func(*args, **(kwargs or {}))


KEPT = {
    "function": lambda x: torch.add(x, 1),
    "method": lambda x: x.mul(2),
    "operator": lambda x: x + 1,
    "reflected": lambda x: 1 - x,
    "other operand": lambda x: torch.ones(2, 2) + x,
    "attribute": lambda x: x.T,
    "index": lambda x: x[0],
    "list": lambda x: torch.cat([torch.ones(2, 2), x]),
    "view": lambda x: x.view(4),
    "python": lambda x: torch.tensordot(x, x),
    "functional": lambda x: F.relu(x),
    "new": lambda x: x.new_tensor([1.0]),
    "like": lambda x: torch.zeros_like(x),
    "in place": lambda x: x.add_(1),
}


@pytest.mark.parametrize("call", KEPT.values(), ids=KEPT)
def test_subclasses_that_do_not_override_are_kept(call):
    assert type(call(torch.ones(2, 2).as_subclass(Kept))) is Kept
    with torch._C.DisableTorchFunctionSubclass():
        x = torch.ones(2, 2).as_subclass(Kept)
        assert type(call(x)) is torch.Tensor or call(x) is x


def test_several_results_are_kept():
    values, indices = torch.sort(torch.ones(2).as_subclass(Kept))
    assert type(values) is Kept and type(indices) is Kept
    assert all(type(t) is Kept for t in torch.ones(2, 2).as_subclass(Kept).unbind())


def test_handlers_receive_the_public_function():
    x = torch.ones(2).as_subclass(Log)
    Log.log = []
    torch.add(x, 1), x.add(1), x + 1, x.shape, x[0], x.size()
    T = torch.Tensor
    assert Log.log == [torch.add, T.add, T.add, T.shape.__get__, T.__getitem__, T.size]


def test_objects_that_are_no_tensors_are_asked():
    d = Duck()
    assert torch.add(d, 1) == (torch.add, (Duck,), (d, 1), None)
    assert torch.cat([torch.ones(1), d])[0] is torch.cat
    assert torch.sum(torch.ones(2), dim=d)[3] == {"dim": d}
    assert torch.zeros(d)[0] is torch.zeros
    assert (torch.ones(2) + d)[0] is torch.Tensor.add
    assert torch.ones(2)[d][0] is torch.Tensor.__getitem__
    assert F.layer_norm(d, (3,))[2:] == ((d, (3,)), {"weight": None, "bias": None, "eps": 1e-05})
    assert F.embedding(d, torch.ones(3, 2))[1] == (Duck, torch.Tensor)


def test_subclasses_are_asked_first():
    class More(Duck):
        pass

    assert torch.add(Duck(), More())[1] == (More, Duck)


def test_nobody_answers():
    class Declines:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return NotImplemented

    with pytest.raises(TypeError, match=r"Multiple dispatch failed for 'torch\.add'"):
        torch.add(Declines(), 1)
    with pytest.raises(
        TypeError, match=r"no implementation found for 'torch\.nn\.functional\.relu'"
    ):
        F.relu(Declines())
    with pytest.raises(TypeError, match="unsupported operand type"):
        torch.ones(1) + Declines()


def test_a_disabled_handler_is_no_handler():
    class Off:
        __torch_function__ = torch._C._disabled_torch_function_impl

    assert not overrides.has_torch_function((Off(),))
    with pytest.raises(TypeError, match="must be Tensor, not Off"):
        torch.sum(Off())


def test_modes_see_every_call_of_the_thread():
    with Mode() as m:
        x = torch.ones(2)
        assert (x + 1).shape == (2,)
        F.relu(x)
    torch.zeros(1)
    assert m.log == [torch.ones, torch.Tensor.add, torch.Tensor.shape.__get__, F.relu]


def test_what_modes_see_of_classes_and_values():
    class Types(overrides.TorchFunctionMode):
        def __init__(self):
            super().__init__()
            self.log = []

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.log.append((func, types))
            return func(*args, **(kwargs or {}))

    x, p = torch.ones(2, 2), torch.nn.Parameter(torch.ones(1))
    with Types() as m:
        x.t()
        x.sum(0)
        torch.abs(x)
        p.grad_fn  # noqa: B018
        x == x  # noqa: B015
        torch.tensor(1.0, dtype=torch.float64)
        torch.ops.aten.add(x, x)
    tensor = (torch.Tensor,)
    assert m.log == [
        (torch.Tensor.t, tensor),
        (torch.Tensor.sum, ()),
        (torch.abs, ()),
        (torch.Tensor.grad_fn.__get__, (torch.nn.Parameter,)),
        (torch.Tensor.__eq__, ()),
        (torch.tensor, ()),
        (torch.ops.aten.add, ()),
    ]
    assert overrides.resolve_name(torch.empty) == "torch.empty"
    assert torch.empty not in overrides.get_overridable_functions()[torch]


def test_modes_nest_and_are_off_while_they_are_asked():
    with Mode() as a, Mode() as b:
        torch.ones(1)
    assert a.log == b.log == [torch.ones]
    with pytest.raises(RuntimeError, match="empty mode stack"):
        a.__exit__(None, None, None)


def test_device_contexts_are_modes_to_the_user():
    with torch.device("meta"), Mode() as m:
        assert torch.ones(2).is_meta
    with Mode(), torch.device("meta"):
        assert torch.ones(2).is_meta
        assert torch._C._len_torch_function_stack() == 2
    assert torch.ones in m.log
    assert torch.ones(1).device.type == "cpu"


def test_an_error_in_a_handler_leaves_the_modes_as_they_were():
    class Fails(overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            raise KeyError("mine")

    with Fails():
        for _ in range(2):
            with pytest.raises(KeyError, match="mine"):
                torch.ones(1)
    assert torch.ones(1).item() == 1


def test_wrap_and_names():
    @overrides.wrap_torch_function(lambda a: (a,))
    def mine(a):
        return a

    assert mine(1) == 1 and mine(Duck())[0] is mine
    assert overrides.resolve_name(torch.Tensor.shape.__get__) == "torch.Tensor.shape.__get__"
    assert overrides.is_tensor_method_or_property(torch.Tensor.add)
    assert torch.add in overrides.get_overridable_functions()[torch]
    assert torch.zeros in overrides.get_ignored_functions()


def test_subclasses_by_hand():
    t = torch.ones(2)
    k = t.as_subclass(Kept)
    k[0] = 5
    assert t.tolist() == [5.0, 1.0] and k.data_ptr() == t.data_ptr()
    with pytest.raises(TypeError, match="does not inherit from Tensor"):
        t.as_subclass(int)


# in-place operators ------------------------------------------------------------------------------


def test_an_in_place_operator_gives_what_the_handler_gives():
    x = torch.ones(2)
    x += Duck()
    assert x[0] is torch.Tensor.add_
    y = torch.ones(2)
    same = y
    y += torch.ones(2).as_subclass(Log)
    assert type(y) is Log and same.tolist() == [2.0, 2.0]
    z = torch.ones(2)
    same = z
    z **= 2
    assert z is same
    assert torch.Tensor.__iadd__.__name__ == "__iadd__"


@pytest.mark.parametrize("code", ["x += 'a'", "x -= None", "x **= 'a'", "x + 'a'", "x & None"])
def test_operators_refuse_as_python_does(code):
    with pytest.raises(TypeError, match=r"unsupported operand type\(s\) for"):
        exec(code, {"x": torch.ones(2)})


# numbers in tensors that override ----------------------------------------------------------------


def test_a_tensor_that_stands_for_a_number_is_not_asked():
    one = torch.tensor(1).as_subclass(Log)
    x = torch.ones(2, 3)
    added, filled = torch.add(x, x, alpha=one), torch.full_like(x, one)
    for made in (added, filled, torch.sum(x, one), x.unsqueeze(one), torch.eye(one)):
        assert type(made) is torch.Tensor
    for made in (torch.zeros(one), torch.zeros([one]), x.reshape(one, 6), x.clamp(one)):
        assert type(made) is Log
    assert torch.zeros(Duck())[0] is torch.zeros and torch.sum(x, Duck())[0] is torch.sum


# parameters --------------------------------------------------------------------------------------


class Named(nn.Parameter):
    pass


def test_a_parameter_of_a_subclass_keeps_the_class():
    p = nn.Parameter(torch.ones(2).as_subclass(Kept))
    assert (
        type(p) is Kept and isinstance(p, nn.Parameter) and p.requires_grad and type(p + 1) is Kept
    )
    assert repr(p) == "Parameter(Kept([1., 1.], requires_grad=True))"
    assert not isinstance(torch.ones(2).as_subclass(Kept), nn.Parameter)
    m = nn.Module()
    m.p, m.t = p, torch.ones(2).as_subclass(Kept)
    assert list(dict(m.named_parameters())) == ["p"] and m.p is p
    plain = torch.ones(2).as_subclass(Renewed)
    with pytest.raises(
        RuntimeError, match="requires that detach\\(\\) returns an instance of the same type"
    ):
        nn.Parameter(plain)
    with pytest.raises(RuntimeError, match="Only Tensors of floating point"):
        nn.Parameter(torch.ones(2, dtype=torch.int64))


def test_a_class_derived_from_parameter():
    p = Named(torch.ones(2))
    assert type(p) is Named and type(p + 1) is torch.Tensor and type(p.data) is torch.Tensor
    assert repr(p) == "Parameter containing:\nParameter(Named([1., 1.], requires_grad=True))"
    assert type(copy.deepcopy(p)) is Named and copy.deepcopy(p).requires_grad
    back = pickle.loads(pickle.dumps(p))
    assert type(back) is nn.Parameter and back.requires_grad and back.tolist() == [1.0, 1.0]


class Renewed(torch.Tensor):
    __torch_function__ = torch._C._disabled_torch_function_impl

    def new_empty(self, *args, **kwargs):
        return torch.Tensor.new_empty(self, *args, **kwargs).as_subclass(Renewed)


def test_deepcopy_asks_a_class_for_another_of_its_kind():
    x = torch.ones(2).as_subclass(Renewed)
    x.note = [1]
    y = copy.deepcopy(x)
    assert (
        type(y) is Renewed and y.tolist() == [1.0, 1.0] and y.note == [1] and y.note is not x.note
    )
    assert y.data_ptr() != x.data_ptr()
    with pytest.raises(RuntimeError, match="implement new_empty"):
        copy.deepcopy(torch.ones(2).as_subclass(Kept))
    with pytest.raises(RuntimeError, match="implement clone"):
        copy.deepcopy(torch.ones(2, device="meta").as_subclass(Kept))


def test_a_device_is_a_context_and_no_decorator():
    with pytest.raises(TypeError, match="not callable"):
        torch.device("meta")(lambda: None)


def test_questions_of_tensors_are_asked_of_who_overrides_them():
    class Asked:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func

    names = "is_complex is_floating_point is_conj is_neg is_inference is_signed is_distributed get_device dequantize"
    for name in names.split():
        function = getattr(torch, name)
        assert function(Asked()) is function
    assert torch.is_same_size(Asked(), torch.ones(1)) is torch.is_same_size
    distance = torch.nn.functional.triplet_margin_with_distance_loss
    assert distance(Asked(), torch.ones(1), torch.ones(1)) is distance


def test_a_difference_is_one_whichever_operand_is_of_a_subclass():
    class Seen(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func.__name__, [type(a).__name__ for a in args]

    s = torch.ones(2).as_subclass(Seen)
    assert torch.ones(2) - s == ("sub", ["Tensor", "Seen"])
    assert s - torch.ones(2) == ("sub", ["Seen", "Tensor"])
    assert 1 - s == ("__rsub__", ["Seen", "int"])
