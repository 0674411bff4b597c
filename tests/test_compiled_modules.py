"""What `torch.compile` makes of a module: a wrapper that names its state as PyTorch does, and runs it as it is."""

import copy
import io
import pickle
import warnings
from typing import Any

import pytest

import torchlike as torch
from torchlike import nn
from torchlike._dynamo import OptimizedModule, optimize


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.drop = nn.Dropout(0.5)
        self.scale = 2.0

    def forward(self, x: Any, *, twice: bool = False) -> Any:
        y = self.drop(self.layer(x)) * self.scale
        return y + y if twice else y

    def half_of(self, x: Any) -> Any:
        return self.layer(x) / 2


def compiled(module: Any, **settings: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.compile(module, **settings)


def test_state_has_pytorchs_names_and_results_are_the_modules() -> None:
    net = Net().eval()
    wrapped = compiled(net, mode="reduce-overhead", fullgraph=True)
    assert type(wrapped) is OptimizedModule and wrapped._orig_mod is net
    names = ["_orig_mod.layer.weight", "_orig_mod.layer.bias"]
    assert list(wrapped.state_dict()) == names == [n for n, _ in wrapped.named_parameters()]
    assert wrapped.layer.weight is net.layer.weight is next(wrapped.parameters())
    x = torch.randn(4, 3)
    assert torch.equal(wrapped(x, twice=True), net(x, twice=True))
    assert torch.equal(wrapped.half_of(x), net.half_of(x))
    wrapped(x).sum().backward()
    assert net.layer.weight.grad is not None
    assert repr(wrapped).startswith("OptimizedModule(\n  (_orig_mod): Net(\n")
    how = wrapped.dynamo_ctx
    assert (how.backend, how.mode, how.fullgraph) == ("inductor", "reduce-overhead", True)


def test_attributes_and_modes_are_the_modules() -> None:
    net = Net()
    wrapped = compiled(net)
    wrapped.scale = 3.0
    wrapped.extra = nn.Linear(2, 2)
    assert net.scale == 3.0 and "_orig_mod.extra.weight" in wrapped.state_dict()
    del wrapped.extra
    assert not hasattr(net, "extra") and "half_of" in dir(wrapped) and "training" in dir(wrapped)
    wrapped.eval()
    assert not net.training and not net.drop.training and not wrapped.training
    net.train()
    assert wrapped.training
    assert wrapped.double() is wrapped and net.layer.weight.dtype == torch.float64
    with pytest.raises(AttributeError, match="'Net' object has no attribute 'nothing'"):
        _ = wrapped.nothing
    with pytest.raises(TypeError, match=r"^Net does not support len\(\)$"):
        len(wrapped)
    assert len(compiled(nn.Sequential(nn.ReLU(), nn.ReLU()))) == 2


def test_a_module_is_wrapped_once_and_disabled_ones_are_not() -> None:
    net = Net()
    again = compiled(compiled(net))
    assert again._orig_mod is net
    assert compiled(net, disable=True) is net and optimize(disable=True)(net) is net
    assert optimize("eager")(net)._orig_mod is net and compiled(None)(net)._orig_mod is net
    with pytest.raises(TypeError, match="unexpected keyword argument 'full_graph'"):
        torch.compile(net, full_graph=True)
    net.compile()
    assert list(net.state_dict()) == ["layer.weight", "layer.bias"]


def test_hooks_of_both_run_and_global_ones_warn() -> None:
    net, seen = Net().eval(), []
    wrapped = compiled(net)
    wrapped.register_forward_hook(lambda *_: seen.append("wrapper"))
    net.register_forward_hook(lambda *_: seen.append("module"))
    wrapped(torch.ones(1, 3))
    assert seen == ["module", "wrapper"]
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        with pytest.warns(UserWarning, match="when there are global hooks on modules"):
            wrapped(torch.ones(1, 3))
    finally:
        handle.remove()


def test_it_is_copied_pickled_saved_and_made_real_as_its_module() -> None:
    wrapped = compiled(Net().eval())
    x = torch.randn(2, 3)
    for other in (copy.deepcopy(wrapped), pickle.loads(pickle.dumps(wrapped))):
        assert type(other) is OptimizedModule and torch.equal(other(x), wrapped(x))
        assert other._orig_mod is not wrapped._orig_mod and not other.training
    file = io.BytesIO()
    torch.save(wrapped.state_dict(), file)
    file.seek(0)
    fresh = compiled(Net().eval())
    fresh.load_state_dict(torch.load(file))
    assert torch.equal(fresh(x), wrapped(x))
    with torch.meta_init():
        torch.manual_seed(3)
        later = compiled(Net())
    torch.manual_seed(3)
    now = Net()
    torch.materialize(later)
    assert torch.equal(later.layer.weight, now.layer.weight)
