"""Hooks of the older kind, parametrizations, calls with other tensors, and gradients at their edges."""

from __future__ import annotations

import copy
import gc
import math
import pickle
import weakref
from collections import namedtuple
from typing import Any

import pytest

import torchlike as torch
from torchlike import nn
from torchlike.autograd import functional as AF
from torchlike.nn.utils import parametrize, rnn, stateless


@pytest.fixture
def no_global_hooks() -> Any:
    from torchlike.nn import _hooks

    yield
    for name in ("_backward_hooks", "_backward_pre_hooks"):
        _hooks.global_tables[name].clear()
    _hooks.everywhere.full = None
    _hooks.everywhere.settle()


def test_older_hooks_of_every_module_come_first(no_global_hooks: None) -> None:
    seen: list[str] = []
    layer, x = nn.Sigmoid(), torch.ones(2, requires_grad=True)
    nn.modules.module.register_module_backward_hook(lambda *_: seen.append("every"))
    layer.register_backward_hook(lambda *_: seen.append("own"))
    with pytest.warns(FutureWarning, match="multiple autograd Nodes"):
        layer(x).sum().backward()
    assert seen == ["every", "own"]
    with pytest.raises(RuntimeError, match="as a global Module hook"):
        nn.modules.module.register_module_full_backward_hook(lambda *_: None)


def test_older_hooks_say_what_they_do_not_see() -> None:
    class Several(nn.Module):
        def forward(self, x: Any) -> Any:
            return (
                {"a": x.sin()}
                if self.kind == "dict"
                else (x.sin(), x.cos())
                if self.kind
                else x.sin().cos()
            )

    for kind, text in (
        ("dict", "single Tensor or a tuple"),
        ("two", "different autograd Nodes"),
        ("", "multiple autograd Nodes"),
    ):
        layer = Several()
        layer.kind = kind
        layer.register_backward_hook(lambda *_: None)
        with pytest.warns(FutureWarning, match=text):
            layer(torch.ones(2, requires_grad=True).exp())


def test_hooks_keep_the_class_of_outputs_and_no_module_alive() -> None:
    Pair = namedtuple("Pair", ["a", "b"])

    class Layer(nn.Module):
        def forward(self, x: Any) -> Any:
            return Pair(x * 2, x * 3)

    layer = Layer()
    layer.register_full_backward_hook(lambda *_: None)
    assert isinstance(layer(torch.ones(2, requires_grad=True)), Pair)
    linear = nn.Linear(2, 2)
    called: list[Any] = []
    linear.register_load_state_dict_pre_hook(lambda module, *_: called.append(module))
    twin = copy.deepcopy(linear)
    twin.load_state_dict(linear.state_dict())
    assert called == [twin]
    dead = weakref.ref(linear)
    gc.disable()
    try:
        del linear
        assert dead() is None
    finally:
        gc.enable()
    del twin._state_dict_pre_hooks
    assert len(twin.state_dict()) == 2


def test_calls_with_tensors_of_new_names() -> None:
    class Layer(nn.Module):
        def forward(self, x: Any) -> Any:
            return x + self.extra

    layer, one = Layer(), torch.ones(())
    given = {"extra": torch.zeros(())}
    assert torch.func.functional_call(layer, given, one) == 1 and not hasattr(layer, "extra")
    with pytest.raises(RuntimeError, match=r"Unexpected key.s.: 'extra'"):
        torch.func.functional_call(layer, given, one, strict=True)
    assert stateless._functional_call(layer, given, one, tie_weights=False) == 1
    with pytest.raises(RuntimeError, match=r"can't be used with nn.DataParallel"):
        torch.func.functional_call(nn.DataParallel(nn.Linear(1, 1)), {}, one)


class Double(nn.Module):
    def forward(self, x: Any) -> Any:
        return x * 2

    def right_inverse(self, x: Any) -> Any:
        return x / 2


class Split(nn.Module):
    def forward(self, a: Any, b: Any) -> Any:
        return a + b

    def right_inverse(self, x: Any) -> Any:
        return x / 2, x / 2


def test_parametrizations_keep_the_parameter_and_are_checked() -> None:
    layer = nn.Linear(2, 2)
    weight, value = layer.weight, layer.weight.detach().clone()
    parametrize.register_parametrization(layer, "weight", Double())
    assert layer.parametrizations.weight.original is weight and torch.equal(layer.weight, value)
    parametrize.remove_parametrizations(layer, "weight")
    assert layer.weight is weight and torch.equal(layer.weight, value)
    parametrize.register_parametrization(layer, "bias", Split())
    with pytest.raises(ValueError, match=r"may not change the shape .* the `unsafe` flag"):
        parametrize.register_parametrization(layer, "bias", Wider())
    other = parametrize.transfer_parametrizations_and_params(layer, nn.Linear(2, 2))
    assert torch.equal(other.bias, layer.bias)

    class Bad(Double):
        def right_inverse(self, x: Any) -> Any:
            return None, x

    with pytest.raises(ValueError, match="Got element 0 of the sequence with type NoneType"):
        parametrize.register_parametrization(layer, "weight", Bad())


class Wider(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.cat([x, x])


def test_packed_sequences_of_other_types_and_of_nothing() -> None:
    packed = rnn.pack_padded_sequence(torch.ones(3, 2, 1), torch.tensor([3, 1]))
    assert packed.long().data.dtype == torch.int64 and packed.byte().data.dtype == torch.uint8
    assert packed.cpu() is packed and packed.cpu(dtype=torch.int16).data.dtype == torch.int16
    with pytest.raises(RuntimeError, match="Cannot pack empty tensors"):
        rnn.pack_padded_sequence(torch.ones(0, 0), [])


def test_what_modules_are_moved_to_and_registered_as() -> None:
    layer = nn.Linear(1, 1)
    for args in ((None, True), ("cpu", True), (torch.float, "cpu")):
        with pytest.raises(TypeError, match="invalid combination of arguments"):
            layer.to(*args)
    with pytest.raises(RuntimeError, match="does not accept copy argument"):
        layer.to(torch.float, True, True)
    assert nn.Linear(1, 1).to(float).weight.dtype == torch.float64
    layer.note = 5
    with pytest.raises(KeyError, match="'note' already exists"):
        layer.note = nn.Buffer(torch.ones(1))

    class Older(nn.Linear):
        def register_buffer(self, name: str, tensor: Any) -> None:
            super().register_buffer(name, tensor, True)

    older = Older(1, 1)
    older.table = nn.Buffer(torch.ones(1))
    assert "table" in older.state_dict()
    with pytest.raises(RuntimeError, match="without the persistent argument"):
        older.other = nn.Buffer(torch.ones(1), persistent=False)


def test_states_of_the_older_spectral_norm() -> None:
    layer = nn.utils.spectral_norm(nn.Linear(3, 5))
    state = copy.deepcopy(layer.state_dict())
    state["weight"] = layer(torch.ones(1, 3)) is None or layer.weight.detach().clone()
    del state["weight_v"], state._metadata[""]["spectral_norm"]
    layer.load_state_dict(state)
    assert layer.weight_v.shape == (3,)
    with pytest.raises(ValueError, match="`SpectralNorm` can't have uninitialized parameters"):
        nn.utils.spectral_norm(nn.LazyLinear(2))


def test_averages_and_schedules_of_older_states() -> None:
    assert pickle.loads(pickle.dumps(torch.optim.swa_utils.AveragedModel(nn.Linear(1, 1))))
    optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=1.0, momentum=0.9)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=2.0, total_steps=4)
    del schedule._anneal_func_type
    schedule.load_state_dict({**schedule.state_dict(), "anneal_func": lambda a, b, part: a})
    optimizer.step()
    schedule.step()
    assert optimizer.param_groups[0]["lr"] > 0


def test_nothing_is_freed_where_nothing_was_saved() -> None:
    x = torch.ones(2, 2, requires_grad=True)
    for f in (torch.clone, torch.neg, torch.t):
        made = f(x)
        made.sum().backward()
        made.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [[2.0, 2.0], [2.0, 2.0]]
    assert x._grad is x.grad


def test_views_without_gradients_of_what_was_written_through_views() -> None:
    class Same(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, t: Any) -> Any:
            return t.view_as(t)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * 3

    x = torch.ones(2, requires_grad=True)
    base = torch.zeros(2)
    base[0] = x[0]
    with torch.no_grad():
        view = base.view_as(base)
    assert torch.zeros_like(view).tolist() == [0.0, 0.0]
    Same.apply(base).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [3.0, 0.0]
    with torch.no_grad():
        later = x[:]
        later *= 2
    assert repr(later) == "tensor([2., 2.], grad_fn=<Invalid>)"


def test_kept_gradients_of_views_that_are_written() -> None:
    base = torch.ones(1, requires_grad=True).clone()
    view = base[:]
    view.retain_grad()
    view.mul_(2)
    view.sum().backward()
    assert view.grad is not None and view.grad.tolist() == [1.0]


def test_powers_of_zero_and_of_negative_numbers() -> None:
    b = torch.tensor([-1.0, 0.0, 1.0], requires_grad=True)
    (grad,) = torch.autograd.grad((0**b).sum(), b)
    assert grad.tolist() == [-math.inf, 0.0, 0.0]
    x = torch.tensor([-2.0], dtype=torch.float64)
    e = torch.tensor([1 + 2j], dtype=torch.complex128, requires_grad=True)
    (grad,) = torch.autograd.grad(torch.pow(x, e).real.sum(), e)
    whole = torch.pow(x.to(torch.complex128), e)
    assert torch.allclose(grad, (whole * torch.log(x.to(torch.complex128))).conj())


def test_batches_of_gradients_of_cross_entropy_and_empty_batches() -> None:
    x, y = torch.full((3,), 0.5, requires_grad=True), torch.ones(3)
    made = nn.functional.binary_cross_entropy(x, y)
    (grads,) = torch.autograd.grad(made, x, torch.ones(2), is_grads_batched=True)
    assert grads.shape == (2, 3)
    empty = torch.empty(0, 3, 5, requires_grad=True)
    nn.functional.nll_loss(empty, torch.empty(0, 5, dtype=torch.int64)).backward()
    assert empty.grad is not None and empty.grad.shape == (0, 3, 5)


def test_strict_derivatives_say_what_is_missing() -> None:
    x = torch.ones(2)
    for call, text in (
        (
            lambda: AF.vjp(lambda a: a.sum(), x, create_graph=True, strict=True),
            "independent of input 0.*create_graph",
        ),
        (lambda: AF.vhp(lambda a: a.sum() * 2, x, x, strict=True), "found that the jacobian"),
        (lambda: AF.jvp(torch.clone, x, (x, x)), "The given v should contain a single Tensor"),
        (
            lambda: AF.hessian(lambda a: a.detach().requires_grad_().sum(), x, strict=True),
            "the jacobian of the user-provided function with respect to input 0",
        ),
    ):
        with pytest.raises(RuntimeError, match=text):
            call()


def test_functional_derivatives_refuse_what_they_cannot_mean() -> None:
    from torchlike.func import grad, jacfwd, jacrev, vjp

    assert torch.allclose(jacrev(torch.sin)(torch.tensor(1.0)), torch.cos(torch.tensor(1.0)))
    c = torch.ones(2, dtype=torch.complex64)
    for name, f in (("jacrev", jacrev), ("jacfwd", jacfwd)):
        with pytest.raises(RuntimeError, match=f"{name}: Expected all inputs to be real"):
            f(torch.abs)(c)
        with pytest.raises(RuntimeError, match=f"{name}: Expected all outputs to be real"):
            f(lambda x: x.to(torch.complex64))(torch.ones(2))
    with pytest.raises(RuntimeError, match="argnum must be int, got: <class 'float'>"):
        jacrev(torch.sin, argnums=(0.0,))(torch.ones(2))  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="unsupported type <class 'int'>"):
        grad(lambda x: (x.sum(), 1), has_aux=True)(torch.ones(2))
    with pytest.raises(RuntimeError, match=r"non-empty output \(got output = \[\]\)"):
        vjp(lambda x: (), torch.ones(2))
    x = torch.ones(2, requires_grad=True)
    _, pull = vjp(torch.sin, x)
    with torch.no_grad():
        assert not pull(torch.ones(2))[0].requires_grad


def test_the_older_package_and_modes_by_their_older_names() -> None:
    import importlib

    functorch: Any = importlib.import_module("torchlike._functorch.package")
    with pytest.warns(FutureWarning, match="`functorch.vmap` is deprecated .* use `torch.vmap`"):
        assert functorch.vmap(torch.sin)(torch.zeros(2)).tolist() == [0.0, 0.0]
    modes: Any = importlib.import_module("torchlike.autograd.grad_mode")
    assert modes.no_grad is torch.no_grad


def test_random_tensors_for_tests_stay_within_their_type() -> None:
    from torchlike.testing import make_tensor

    assert make_tensor((50,), dtype=torch.uint8, device="cpu", low=-5, high=3).max() < 3
    with pytest.raises(
        ValueError, match=r"is \[200, 300\), but torch.*int8 only supports \[-128, 128\)"
    ):
        make_tensor(2, dtype=torch.int8, device="cpu", low=200, high=300)
    with pytest.warns(FutureWarning, match=r"Passing `low==high`"):
        make_tensor(2, dtype=torch.float32, device="cpu", low=1, high=1)


def test_convolutions_of_no_channels_have_gradients() -> None:
    with pytest.warns(UserWarning, match="Initializing zero-element tensors is a no-op"):
        layer = nn.Conv1d(0, 8, 2)
    layer(torch.ones(4, 0, 5, requires_grad=True)).sum().backward()
    assert layer.bias is not None and layer.bias.grad is not None
    assert layer.bias.grad.tolist() == [0.0] * 8
    assert nn.functional.grad.conv1d_input is nn.grad.conv1d_input


def test_poolings_to_nothing_have_no_gradient() -> None:
    x = torch.ones(1, 2, 4, 4, requires_grad=True)
    for pool in (nn.AdaptiveMaxPool2d(0), nn.AdaptiveAvgPool2d(0)):
        with pytest.raises(
            RuntimeError, match=r"sizes \[1, 2, 0, 0\] with dimension 2 being empty"
        ):
            pool(x).sum().backward()
    with pytest.raises(
        RuntimeError, match="kernel_size must either be a single Int or tuple of three"
    ):
        nn.FractionalMaxPool3d((1, 1), output_size=2)(torch.ones(1, 1, 4, 4, 4))


def test_hooks_that_give_too_many_gradients() -> None:
    x = torch.ones(2, requires_grad=True)
    layer = nn.Linear(2, 2)
    handle = layer.register_full_backward_pre_hook(lambda _, g: (g[0], g[0]))
    with pytest.raises(
        RuntimeError, match="Backward pre hook returned an invalid number of grad_output"
    ):
        layer(x).sum().backward()
    handle.remove()
    layer.register_full_backward_hook(lambda *_: (x, x))
    with pytest.raises(
        RuntimeError, match="Backward hook returned an invalid number of grad_input"
    ):
        layer(x).sum().backward()


def test_slots_of_classes_that_handle_calls_stay_with_their_tensors() -> None:
    from torchlike.utils._pytree import tree_map

    class Wrapped(torch.Tensor):
        __slots__ = ["inner"]

        @staticmethod
        def __new__(cls: Any, inner: Any) -> Any:
            made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
            made.inner = inner
            return made

        @classmethod
        def __torch_dispatch__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            args = tree_map(lambda x: x.inner if isinstance(x, cls) else x, args)
            made = func(*args, **(kwargs or {}))
            return tree_map(lambda x: cls(x) if isinstance(x, torch.Tensor) else x, made)

    x = Wrapped(torch.ones(2))
    _, made = AF.hvp(lambda a: a.exp().sum(), x, x)
    assert torch.allclose(made.inner, torch.exp(torch.ones(2)))


def test_encoders_of_sequences_that_are_padding_alone() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 1).eval()
    padding = torch.tensor([[True, True], [False, True]])
    with torch.no_grad():
        made = encoder(torch.ones(2, 2, 8), src_key_padding_mask=padding)
    assert made[0].abs().sum() == 0 and made[1, 0].abs().sum() > 0


def test_hooks_of_modules_that_no_gradient_leaves_say_so():
    layer = nn.Linear(2, 1)
    layer.register_full_backward_hook(lambda m, given, taken: (None,))
    with pytest.warns(
        UserWarning, match="Full backward hook is firing when gradients are computed"
    ):
        layer(torch.ones(1, 2)).sum().backward()


def test_hooks_see_gradients_of_inputs_that_want_none():
    layer, seen = nn.GRUCell(2, 2), []
    layer.register_full_backward_hook(lambda m, given, taken: seen.extend(given))
    layer(torch.ones(1, 2), torch.ones(1, 2, requires_grad=True)).sum().backward()
    assert seen[0].tolist() == [[0.0, 0.0]] and seen[1].shape == (1, 2)


def test_weights_of_attention_fit_what_comes_in():
    attention = nn.MultiheadAttention(2, 1, kdim=2, vdim=3)
    x = torch.ones(1, 2)
    with pytest.raises(AssertionError, match=r"expecting value weights shape of \(2, 2\), but got"):
        attention(x, x, x)
    with pytest.raises(AssertionError, match=r"expecting key weights shape of \(2, 3\), but got"):
        attention(x, torch.ones(1, 3), torch.ones(1, 3))


def test_only_vectors_of_one_element_are_loaded_as_numbers():
    layer = nn.BatchNorm1d(2)
    state = layer.state_dict()
    layer.load_state_dict({**state, "num_batches_tracked": torch.tensor([3])})
    assert layer.num_batches_tracked.item() == 3
    with pytest.raises(RuntimeError, match="size mismatch for num_batches_tracked"):
        layer.load_state_dict({**state, "num_batches_tracked": torch.tensor([3, 4])})


def test_hooks_of_modules_take_tuples_of_anything(recwarn):
    layer = nn.LSTM(2, 2)
    layer.register_full_backward_hook(lambda m, given, taken: None)
    layer(torch.ones(1, 1, 2, requires_grad=True))[0].sum().backward()
    assert not recwarn.list


def test_loading_exchanges_what_is_told_to() -> None:
    from torchlike import __future__ as future

    class Given(torch.Tensor):
        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if func is torch.Tensor.module_load:
                return args[1]
            return super().__torch_function__(func, types, args, kwargs or {})

    layer = nn.BatchNorm1d(2)
    held = [layer.weight, layer.running_mean]
    state = {name: torch.full_like(t, 3) for name, t in layer.state_dict().items()}
    state["running_mean"] = state["running_mean"].double()
    future.set_swap_module_params_on_conversion(True)
    try:
        layer.load_state_dict(state, assign=True)
        assert layer.weight is held[0] and layer.running_mean is held[1]
        assert held[0].tolist() == [3, 3] and held[1].dtype == torch.float64
        assert held[0].requires_grad and isinstance(held[0], nn.Parameter)
        state["bias"] = state["bias"].as_subclass(Given)
        with pytest.raises(
            RuntimeError, match=r'While swapping the parameter named "bias".*of self or other'
        ):
            layer.load_state_dict(state)
    finally:
        future.set_swap_module_params_on_conversion(False)


def test_response_across_maps_has_windows_of_odd_widths():
    x = torch.linspace(-1, 1, 48).reshape(2, 6, 2, 2)
    got = nn.CrossMapLRN2d(4, alpha=0.4)(x)
    assert torch.equal(got, nn.functional.local_response_norm(x, 3, alpha=0.3))
    with pytest.raises(ValueError, match="Expected input to be 4D, got 2D"):
        nn.CrossMapLRN2d(4)(x[0, 0])
