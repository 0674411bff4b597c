"""TorchScript: forward hooks are compiled with their module and run wherever it is called, here and in archives."""

from typing import Tuple  # noqa: UP035  (as scripted code is written)

import pytest

import torchlike as torch
from jit_cases import through_a_file
from torchlike import Tensor, jit, nn


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = 2

    def forward(self, x: Tensor):
        return x * self.factor


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x: Tensor):
        return self.inner(x) + self.inner.forward(x)


def before(self, input: Tuple[Tensor]) -> Tuple[Tensor]:  # noqa: UP006
    return (input[0] + 1,)


def before_alone(self, input: Tuple[Tensor]) -> Tensor:  # noqa: UP006
    return input[0] + 10


def after(self, input: Tuple[Tensor], output: Tensor):  # noqa: UP006
    return output * 3


def writes(self, input: Tuple[Tensor], output: Tensor) -> None:  # noqa: UP006
    output.add_(input[0])


def hooked():
    model = Outer()
    model.register_forward_pre_hook(before)
    model.register_forward_hook(after)
    model.register_forward_hook(writes)
    model.inner.register_forward_pre_hook(before_alone)
    model.inner.register_forward_hook(after)
    model.inner.register_forward_hook(after)
    return model


def test_hooks_run():
    x = torch.tensor([1.0, 2.0])
    assert hooked()(x).tolist() == [662, 723]
    scripted = jit.script(hooked())
    within = jit.script(nn.Sequential(scripted))
    for each in (scripted, through_a_file(scripted), within, through_a_file(within)):
        assert each(x).tolist() == [662, 723]
    assert scripted.forward(x).tolist() == [200, 220]
    assert scripted.inner(x).tolist() == [198, 216]


def test_traces_have_them_in_their_code():
    x = torch.tensor([1.0, 2.0])
    traced = jit.trace(hooked(), x)
    assert traced(x).tolist() == through_a_file(traced)(x).tolist() == [662, 723]


def no_result(self, input: Tuple[Tensor]):  # noqa: UP006
    return input


def three(self, input: Tuple[Tensor], more: Tensor) -> None:  # noqa: UP006
    pass


def no_tuple(self, input: Tensor) -> None:
    pass


def forward(self, input: Tuple[Tensor]) -> None:  # noqa: UP006
    pass


class Called:
    def __call__(self, module, input):
        return None


@pytest.mark.parametrize(
    ("hook", "text"),
    [
        (no_result, "is missing a return annotation"),
        (three, "only have exactly 2 inputs but it had 3 inputs"),
        (no_tuple, "typed as a Tuple but found type: 'Tensor'"),
        (forward, "a method or hook with that name already exists"),
        (Called(), "is no function"),
    ],
)
def test_hooks_that_are_refused(hook, text):
    model = Outer()
    model.inner.register_forward_pre_hook(hook)
    with pytest.raises(RuntimeError, match=text):
        jit.script(model)


def test_modules_that_are_not_ready():
    class Empty(nn.Module):
        def __init__(self):
            pass

    with pytest.raises(RuntimeError, match="has not been initialized, did you forget to call"):
        jit.script(Empty())
    for make in (jit.script, lambda m: jit.trace(m, torch.ones(2, 2))):
        with pytest.raises(RuntimeError, match="LazyLinear' has uninitialized parameters weight"):
            make(nn.Sequential(nn.LazyLinear(3)))
    alone = nn.Module()
    alone.register_forward_pre_hook(before)
    with pytest.raises(RuntimeError, match="Couldn't find method: 'forward'"):
        jit.script(alone)
