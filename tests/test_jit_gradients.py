"""Gradients that code asks for: `torch.autograd.grad` and `backward` in TorchScript."""

import io
from pathlib import Path
from typing import List, Optional  # noqa: UP035  (as scripted code is written)

import pytest

import torchlike as torch
from torchlike import nn

DATA = Path(__file__).parent / "data" / "torchscript"


class Energy(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, x: torch.Tensor, training: bool = False):
        x.requires_grad_(True)
        energy = self.layer(x).tanh().sum()
        ones: List[Optional[torch.Tensor]] = [torch.ones_like(energy)]  # noqa: UP006, UP045
        force = torch.autograd.grad(
            outputs=[energy],
            inputs=[x],
            grad_outputs=ones,
            retain_graph=training,
            create_graph=training,
            allow_unused=True,
        )[0]
        if force is None:
            return energy, torch.zeros_like(x)
        return energy, -1 * force


@pytest.mark.parametrize("training", [False, True])
def test_forces_of_scripted_and_loaded_modules(training):
    model, archive = Energy(), io.BytesIO()
    scripted = torch.jit.script(model)
    assert "torch.autograd.grad([energy], [x], ones, training, training, True)[0]" in scripted.code
    torch.jit.save(scripted, archive)
    archive.seek(0)
    x = torch.randn(2, 3)
    want = model(x.clone(), training)
    for made in (scripted, torch.jit.load(archive)):
        energy, force = made(x.clone(), training)
        assert torch.equal(energy, want[0]) and torch.equal(force, want[1])
        assert force.requires_grad == training


def test_forces_of_what_pytorch_wrote():
    loaded = torch.jit.load(DATA / "energy.pt")
    model, x = Energy(), torch.randn(2, 3)
    model.layer.load_state_dict(loaded.l.state_dict())
    for got, want in zip(loaded(x.clone()), model(x.clone()), strict=True):
        assert torch.equal(got, want)


def test_backward():
    @torch.jit.script
    def back(x):
        (x * x).sum().backward()
        torch.autograd.backward([(x * 3).sum()])
        torch.sum(x).backward(create_graph=False, gradient=torch.tensor(2.0))
        return x.grad

    assert "torch.autograd.backward(torch.sum(x), torch.tensor(2.0), None, False)" in back.code
    assert back(torch.ones(2, requires_grad=True)).tolist() == [7, 7]


def batched(x):
    return torch.autograd.grad([x], [x], is_grads_batched=True)


def of_nothing(x):
    return torch.autograd.grad([x])


def twice(x):
    return torch.autograd.grad([x], [x], outputs=[x])


def too_many(x):
    return x.backward(x, True, False, None)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (batched, "has no argument 'is_grads_batched'"),
        (of_nothing, "missing value for argument 'inputs'"),
        (twice, "no argument 'outputs' left"),
        (too_many, "takes 3 arguments, not 4"),
    ],
)
def test_what_code_may_not_ask(code, told):
    with pytest.raises(RuntimeError, match=told):
        torch.jit.script(code)
