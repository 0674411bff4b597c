"""Module: registration, hooks, state dicts, conversions, copies and messages."""

import copy
import pickle
import warnings

import pytest

import torchlike as torch
from torchlike import nn


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Linear(2, 3)
        self.two = nn.Linear(3, 2)
        self.register_buffer("steps", torch.zeros(2))
        self.register_buffer("scratch", torch.ones(2), persistent=False)

    def forward(self, x):
        return self.two(self.one(x))


def tied(device=None):
    table = nn.Embedding(4, 3, device=device)
    head = nn.Linear(3, 4, bias=False, device=device)
    head.weight = table.weight
    return nn.Sequential(table, head)


def test_values_are_plain_attributes_and_the_views_write_through():
    m = nn.Linear(2, 3)
    assert m._state_["weight"] is m.weight
    assert list(m._parameters) == ["weight", "bias"]
    fresh = nn.Parameter(torch.ones(3, 2))
    m._parameters["weight"] = fresh
    assert m.weight is fresh
    m._buffers["extra"] = torch.zeros(1)
    assert [name for name, _ in m.named_buffers()] == ["extra"]
    del m._parameters["bias"]
    assert not hasattr(m, "bias")
    pair = Pair()
    assert (
        list(reversed(pair._modules))
        == ["two", "one"]
        == [n for n, _ in reversed(pair._modules.items())]
    )
    assert next(reversed(pair._modules.values())) is pair.two and len(pair._buffers.keys()) == 2
    m._modules = {"child": nn.ReLU()}
    assert isinstance(m.child, nn.ReLU)


class Kept(nn.Linear):
    def __getstate__(self):
        state = self.__dict__.copy()
        state["extra"] = 5
        return state


def test_the_dictionary_shows_what_pytorchs_has():
    m = Pair()
    m.x = 1
    m.__dict__["hidden"] = nn.Linear(1, 1)
    assert list(m.__dict__)[:3] == ["training", "_parameters", "_buffers"]
    assert list(m.__dict__)[-3:] == ["_modules", "x", "hidden"]
    assert "one" not in m.__dict__ and m.__dict__.get("one") is None and "_modules" in vars(m)
    assert list(m.__dict__["_modules"]) == ["one", "two"] == [n for n, _ in m.named_children()]
    assert m.__dict__["_non_persistent_buffers_set"] == {"scratch"}
    m.__dict__["_parameters"]["w"] = nn.Parameter(torch.ones(1))
    assert m.w.tolist() == [1]
    m.register_forward_hook(lambda *_: None)
    assert len(m.__dict__["_forward_hooks"]) == 1 and m.__dict__["_is_full_backward_hook"] is None
    assert m.__dict__.pop("x") == 1 and not hasattr(m, "x") and m.__dict__.pop("x", 2) == 2
    assert m.__dict__.setdefault("y", 4) == 4 == m.y and dict(m.__dict__)["y"] == 4
    del m.__dict__["y"]
    for name in ("y", "one", "_kinds"):
        with pytest.raises(KeyError):
            m.__dict__[name]
    m.__dict__["_buffers"] = {"only": torch.zeros(3)}
    assert [n for n, _ in m.named_buffers()] == ["only"]
    assert nn.Module.__new__(nn.Module).__dict__ == {}


def test_dictionaries_make_copies_of_modules():
    m = Pair()
    m.x = 1
    for how in ("assigned", "updated", "joined"):
        twin = Pair.__new__(Pair)
        if how == "assigned":
            twin.__dict__ = m.__dict__.copy()
        elif how == "updated":
            twin.__dict__.update(m.__dict__)
        else:
            twin.__dict__ |= m.__dict__
        assert twin.x == 1 and twin(torch.ones(1, 2)).shape == (1, 2)
        assert all(a is b for a, b in zip(twin.parameters(), m.parameters(), strict=True))
        assert list(twin.state_dict()) == list(m.state_dict())
    for made in (copy.deepcopy(Kept(2, 2)), pickle.loads(pickle.dumps(Kept(2, 2)))):
        assert made.extra == 5 and made(torch.ones(1, 2)).shape == (1, 2)
    emptied = nn.Linear(1, 1)
    emptied.__dict__.clear()
    assert not hasattr(emptied, "weight")
    last = nn.Linear(1, 1)
    assert last.__dict__.popitem() == ("out_features", 1) and not hasattr(last, "out_features")


def test_none_keeps_its_place():
    m = nn.Linear(2, 3, bias=False)
    assert m.bias is None and "bias" in m._parameters and list(m.state_dict()) == ["weight"]
    m.bias = nn.Parameter(torch.zeros(3))
    assert [name for name, _ in m.named_parameters()] == ["weight", "bias"]


def test_an_attribute_can_change_its_kind():
    m = nn.Module()
    m.register_buffer("x", torch.ones(2))
    m.x = nn.Parameter(torch.ones(2))
    assert list(m._buffers) == [] and list(m._parameters) == ["x"]
    m.y = 3
    m.y = nn.ReLU()
    assert list(m._modules) == ["y"]
    m.z = nn.Buffer(torch.ones(1), persistent=False)
    assert list(m._buffers) == ["z"] and "z" not in m.state_dict()


class NoInit(nn.Module):
    def __init__(self):
        pass


@pytest.mark.parametrize(
    ("act", "kind", "text"),
    [
        (lambda m: setattr(m, "p", nn.Parameter(torch.ones(1))), AttributeError,
         "cannot assign parameters before Module.__init__() call"),
        (lambda m: setattr(m, "p", nn.ReLU()), AttributeError,
         "cannot assign module before Module.__init__() call"),
        (lambda m: m.register_buffer("b", None), AttributeError,
         "cannot assign buffer before Module.__init__() call"),
        (lambda m: m(1), AttributeError, "'NoInit' object has no attribute '_backward_hooks'"),
    ],
)  # fmt: skip
def test_forgotten_init(act, kind, text):
    with pytest.raises(kind) as caught:
        act(NoInit())
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("act", "kind", "text"),
    [
        (lambda m: m.register_parameter("a.b", None), KeyError,
         "'parameter name can\\'t contain \".\"'"),
        (lambda m: m.register_parameter("", None), KeyError,
         "'parameter name can\\'t be empty string \"\"'"),
        (lambda m: m.register_parameter("forward", None), KeyError,
         "\"attribute 'forward' already exists\""),
        (lambda m: m.add_module("a", 3), TypeError, "int is not a Module subclass"),
        (lambda m: m.add_module("a.b", None), KeyError,
         "'module name can\\'t contain \".\", got: a.b'"),
        (lambda m: setattr(m, "steps", 3), TypeError,
         "cannot assign 'int' as buffer 'steps' (torch.nn.Buffer, torch.Tensor or None expected)"),
        (lambda m: setattr(m, "one", 3), TypeError,
         "cannot assign 'int' as child module 'one' (torch.nn.Module or None expected)"),
        (lambda m: m.get_submodule("three"), AttributeError, "Pair has no attribute `three`"),
        (lambda m: m.get_parameter("one.steps"), AttributeError,
         "Linear has no attribute `steps`"),
        (lambda m: m.get_buffer("one.weight"), AttributeError, "`weight` is not a buffer"),
        (lambda m: delattr(m, "foo"), AttributeError, "'Pair' object has no attribute 'foo'"),
        (lambda m: m.train("a"), ValueError, "training mode is expected to be boolean"),
        (lambda m: m.to_empty("cpu"), TypeError,
         "Module.to_empty() takes 1 positional argument but 2 were given"),
        (lambda m: m.to_empty(), TypeError,
         "Module.to_empty() missing 1 required keyword-only argument: 'device'"),
        (lambda m: m.to(torch.int64), TypeError,
         "nn.Module.to only accepts floating point or complex dtypes, "
         "but got desired dtype=torch.int64"),
        (lambda m: nn.Module()(1), NotImplementedError,
         'Module [Module] is missing the required "forward" function'),
        (lambda m: nn.Module(3), TypeError,
         "Module.__init__() takes 1 positional argument but 2 were given"),
    ],
)  # fmt: skip
def test_messages(act, kind, text):
    with pytest.raises(kind) as caught:
        act(Pair())
    assert str(caught.value).replace("torchlike.", "torch.") == text


def test_names_come_parents_first_and_once():
    m = tied()
    assert [name for name, _ in m.named_modules()] == ["", "0", "1"]
    assert [name for name, _ in m.named_parameters()] == ["0.weight"]
    names = [name for name, _ in m.named_parameters(remove_duplicate=False)]
    assert names == ["0.weight", "1.weight"]
    assert repr(m.parameters()).startswith("<generator object Module.parameters at ")


def test_state_dict_round_trip():
    m = Pair()
    sd = m.state_dict()
    assert list(sd) == ["steps", "one.weight", "one.bias", "two.weight", "two.bias"]
    assert sd._metadata["one"] == {"version": 1}
    assert repr(Pair().load_state_dict(sd)) == "<All keys matched successfully>"
    result = Pair().load_state_dict({"zzz": torch.ones(1)}, strict=False)
    assert result.unexpected_keys == [] or result.unexpected_keys == ["zzz"]
    assert result.missing_keys == list(sd)


def test_state_dict_errors_are_gathered():
    with pytest.raises(RuntimeError) as caught:
        nn.Linear(3, 4).load_state_dict({"weight": torch.ones(4, 4), "zzz": torch.ones(1)})
    text = str(caught.value).replace("torchlike.", "torch.")
    assert text == (
        "Error(s) in loading state_dict for Linear:\n"
        '\tMissing key(s) in state_dict: "bias". \n'
        '\tUnexpected key(s) in state_dict: "zzz". \n'
        "\tsize mismatch for weight: copying a param with shape torch.Size([4, 4]) from "
        "checkpoint, the shape in current model is torch.Size([4, 3])."
    )


def test_loading_into_meta():
    real = nn.Linear(2, 3).state_dict()
    m = nn.Linear(2, 3, device="meta")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        m.load_state_dict(real)
    assert m.weight.is_meta and len(seen) == 2
    assert str(seen[0].message).startswith("for weight: copying from a non-meta parameter")
    m.load_state_dict(real, assign=True)
    assert not m.weight.is_meta and isinstance(m.weight, nn.Parameter)
    with pytest.raises(RuntimeError, match=r"Cannot copy out of meta tensor; no data!"):
        nn.Linear(2, 3).load_state_dict(nn.Linear(2, 3, device="meta").state_dict())


def test_state_dict_hooks():
    m = Pair()
    seen = []
    m.register_state_dict_pre_hook(lambda mod, prefix, keep: seen.append("pre"))
    m.register_state_dict_post_hook(lambda mod, sd, *rest: sd.__delitem__("steps"))
    m.register_load_state_dict_pre_hook(lambda mod, sd, *rest: seen.append(mod is m))
    m.register_load_state_dict_post_hook(lambda mod, keys: keys.missing_keys.clear())
    sd = m.state_dict()
    assert "steps" not in sd
    m.load_state_dict(sd)
    assert seen == ["pre", True]


def test_extra_state():
    class Counter(nn.Module):
        n = 0

        def get_extra_state(self):
            return {"n": self.n}

        def set_extra_state(self, state):
            self.n = state["n"]

    m = Counter()
    m.n = 5
    other = Counter()
    other.load_state_dict(m.state_dict())
    assert other.n == 5 and list(m.state_dict()) == ["_extra_state"]


def test_ties_survive_everything():
    m = tied()
    m.half()
    assert m[0].weight is m[1].weight and m[0].weight.dtype is torch.float16
    m.to("meta")
    assert m[0].weight is m[1].weight and m[0].weight.is_meta
    m.to_empty(device="cpu")
    assert m[0].weight is m[1].weight and not m[0].weight.is_meta
    twin = copy.deepcopy(m)
    assert twin[0].weight is twin[1].weight and twin[0].weight is not m[0].weight


def test_to_empty_keeps_what_is_real():
    m = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2, device="meta"))
    before = m[0].weight.tolist()
    assert m.to_empty(device="cpu") is m
    assert m[0].weight.tolist() == before and not m[1].weight.is_meta
    assert nn.Linear(2, 3).to_empty(device="meta").weight.is_meta
    part = nn.Sequential(nn.Linear(2, 3, device="meta"))
    part.to_empty(device="cpu", recurse=False)
    assert part[0].weight.is_meta


def test_to_from_meta_hints_at_to_empty():
    with pytest.raises(NotImplementedError, match=r"Please use torch.nn.Module.to_empty\(\)"):
        nn.Linear(2, 3, device="meta").to("cpu")


def test_forward_hooks():
    m = nn.Linear(2, 3)
    log = []
    first = m.register_forward_hook(lambda mod, args, out: log.append("first"))
    m.register_forward_hook(lambda mod, args, out: log.append("zero"), prepend=True)
    m.register_forward_pre_hook(lambda mod, args: (args[0] * 0,))
    out = m(torch.ones(1, 2))
    assert log == ["zero", "first"] and out.tolist() == [m.bias.tolist()]
    first.remove()
    m(torch.ones(1, 2))
    assert log == ["zero", "first", "zero"]


def test_hooks_with_keywords_and_on_errors():
    class Fails(nn.Module):
        def forward(self, x, fail=False):
            if fail:
                raise ValueError("no")
            return x

    m = Fails()
    log = []
    m.register_forward_pre_hook(lambda mod, a, kw: (a, {**kw, "fail": True}), with_kwargs=True)
    m.register_forward_hook(lambda mod, a, out: log.append(out), always_call=True)
    with pytest.raises(ValueError, match="no"):
        m(1)
    assert log == [None]


def test_global_hooks():
    from torchlike.nn._hooks import register_module_forward_hook

    log = []
    with register_module_forward_hook(lambda mod, a, out: log.append(type(mod).__name__)):
        nn.ReLU()(torch.ones(1))
    nn.ReLU()(torch.ones(1))
    assert log == ["ReLU"]


def test_pickle_keeps_everything():
    m = pickle.loads(pickle.dumps(nn.Linear(2, 3, device="meta")))
    assert repr(m) == "Linear(in_features=2, out_features=3, bias=True)"
    assert m.weight.is_meta and m.weight.requires_grad
    assert list(m._parameters) == ["weight", "bias"]


def test_state_of_a_pytorch_module_is_understood():
    m = nn.ReLU.__new__(nn.ReLU)
    weight = nn.Parameter(torch.ones(1))
    m.__setstate__({
        "training": False, "_parameters": {"w": weight}, "_buffers": {}, "_modules": {},
        "_forward_hooks": {}, "inplace": True,
    })  # fmt: skip
    assert m.w is weight and not m.training and list(m._parameters) == ["w"]


def test_modes():
    m = Pair().eval()
    assert not m.one.training and m.train() is m and m.two.training
    m.requires_grad_(False)
    assert not any(p.requires_grad for p in m.parameters())


def test_set_submodule_and_apply():
    m = nn.Sequential(nn.Sequential(nn.ReLU()))
    m.set_submodule("0.0", nn.Tanh())
    assert isinstance(m[0][0], nn.Tanh)
    seen = []
    m.apply(lambda mod: seen.append(type(mod).__name__))
    assert seen == ["Tanh", "Sequential", "Sequential"]


def test_dir_has_no_digits():
    assert "weight" in dir(nn.Linear(1, 1)) and "0" not in dir(nn.Sequential(nn.ReLU()))


class Answering(nn.Module):
    """Says itself which modules it has."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 2, bias=False)

    def named_modules(self, memo=None, prefix="", remove_duplicate=True):
        yield prefix + "!", self.inner


def test_modules_that_answer_themselves_are_asked():
    m = nn.Sequential(nn.ReLU(), Answering(), nn.Tanh())
    assert [name for name, _ in m.named_modules()] == ["", "0", "1!", "2"]
    assert [name for name, _ in m.named_parameters()] == ["1!.weight"]
    assert [name for name, _ in m[1].named_parameters()] == ["!.weight"]
    assert [name for name, _ in m[1].named_parameters(recurse=False)] == []
    m[2].named_modules = lambda *args: iter([("other", m[0])])
    assert [name for name, _ in m.named_modules()] == ["", "0", "1!", "other"]


class Own(nn.Linear):
    """Saves itself in its own way."""

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        destination[prefix + "own"] = self.weight


class Whole(nn.Linear):
    """Has its own state_dict."""

    def state_dict(self, *args, destination=None, prefix="", keep_vars=False):
        destination[prefix + "whole"] = self.weight
        return destination


def test_modules_that_save_themselves_are_asked():
    plain = nn.BatchNorm1d(2)
    plain.register_buffer("hidden", torch.zeros(1), persistent=False)
    m = nn.Sequential(Own(2, 2), Whole(2, 2), nn.Sequential(plain), nn.ReLU())
    m[3].state_dict = lambda **options: options["destination"].update(asked=options["prefix"])
    state = m.state_dict(prefix="p.")
    assert list(state) == [
        "p.0.own", "p.1.whole", "p.2.0.weight", "p.2.0.bias", "p.2.0.running_mean",
        "p.2.0.running_var", "p.2.0.num_batches_tracked", "asked",
    ]  # fmt: skip
    assert state["asked"] == "p.3."
    assert state._metadata["p.2.0"] == {"version": 2}
    assert list(state._metadata) == ["p", "p.0", "p.2", "p.2.0"]
    assert not state["p.2.0.weight"].requires_grad
    assert m.state_dict(keep_vars=True)["2.0.weight"] is plain.weight


@pytest.mark.parametrize("name", ["xpu", "mtia", "ipu"])
def test_devices_that_torchlike_has_not(name):
    assert isinstance(getattr(nn.ReLU(), name)(), nn.ReLU)
    with pytest.raises(NotImplementedError, match=f"no device of type '{name}'"):
        getattr(nn.Linear(1, 1), name)()


def test_a_patched_registration_of_parameters_is_called(monkeypatch):
    """Libraries put their own `register_parameter` into the class, to choose devices."""
    seen = []
    own = nn.Module.register_parameter

    def register(module, name, param):
        seen.append(name)
        own(module, name, param)
        if param is not None:
            module._parameters[name] = nn.Parameter(param.to("meta"))

    monkeypatch.setattr(nn.Module, "register_parameter", register)
    layer = nn.Linear(2, 3)
    assert seen == ["weight", "bias"] and layer.weight.is_meta and layer.bias.is_meta


def test_classes_with_an_attribute_lookup_of_their_own_are_asked_for_what_is_registered():
    class Pairs:
        def __getattr__(self, name):
            value = super().__getattr__(name)
            return torch.view_as_complex(value) if name == "weight" else value

    class Complex(Pairs, nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.plain = nn.Parameter(torch.ones(3, 2)), 3
            self.layer = nn.Linear(2, 2)
            self.register_buffer("buffer", torch.ones(2))

    model = Complex()
    assert model.weight.dtype == torch.complex64 and copy.deepcopy(model).weight.is_complex()
    assert dict(model.named_parameters())["weight"].dtype == torch.float32
    assert model.plain == 3 and model.training and model.buffer.sum() == 2
    assert model.layer is model._modules["layer"]
    with pytest.raises(AttributeError, match="'Complex' object has no attribute 'nothing'"):
        _ = model.nothing


def test_such_classes_may_set_attributes_before_the_constructor_of_modules():
    class Several(nn.Module):
        def __init__(self, metrics):
            self.metrics = metrics
            super().__init__()

        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                return [getattr(metric, name) for metric in self.metrics]

    assert Several([1, 2j]).imag == [0, 2]


def test_such_classes_are_asked_for_nothing_else():
    asked = []

    class Listening(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.plain = nn.Parameter(torch.ones(1)), 1

        def __getattr__(self, name):
            asked.append(name)
            return super().__getattr__(name)

    model = Listening()
    asked.clear()
    _ = model.weight, model.plain, model.training, model.state_dict()
    assert [name for name in asked if not name.startswith("_")] == ["weight"]
