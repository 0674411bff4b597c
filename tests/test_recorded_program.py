"""A program that PyTorch 2.13 exported, whose operators have arguments of their own, and what programs must not keep.

`python tests/test_recorded_program.py` records it, where both libraries are installed.
"""

import json
from pathlib import Path

import pytest

import torchlike as torch
from torchlike.fx.experimental.proxy_tensor import make_fx

DATA = Path(__file__).with_name("data")


def _model(torch):
    class Model(torch.nn.Module):
        def forward(self, x, y, a, b):
            flat = a.flatten()
            waves = torch.stft(flat, 4, 2, 4, torch.ones(4), center=False, return_complex=True)
            return (
                *(x & y, x | 3, 2 ^ x, x << y, x >> 1, 1 << y),
                a.to(torch.float64, memory_format=torch.contiguous_format),
                x.to(a),
                torch.tensordot(a, b, ([1], [0])),
                torch.cdist(a, b.t()),
                torch.nn.functional.nll_loss(a, y[0, :3]),
                torch.view_as_real(waves),
                torch.masked_select(a, a > 0),
                torch.nonzero(x),
                a * a.sum().item(),
            )

    return Model()


def _inputs(torch):
    whole = [[1, 2, 3, 4], [5, 6, 7, 0]], [[1, 0, 2, 3], [3, 2, 1, 0]]
    real = [[1.0, -2.0, 3.0, 0.5], [0.25, 4.0, -1.0, 2.0], [1.5, -0.5, 2.0, -3.0]]
    x, y, a = map(torch.tensor, (*whole, real))
    return x, y, a, torch.arange(8.0).view(4, 2) - 3


def _record(torch):
    x, y, a, b = _inputs(torch)
    program = torch.export.export(_model(torch), (x, y, a, b))
    torch.export.save(program, DATA / "program.pt2")
    others = x + 1, y, -a, b
    made = _model(torch)(*others)
    kept = {"inputs": others, "outputs": made}
    lists = {k: [t.tolist() for t in v] for k, v in kept.items()}
    dtypes = [str(t.dtype).partition(".")[2] for t in made]
    (DATA / "program.json").write_text(json.dumps({**lists, "dtypes": dtypes}))


def test_a_program_of_pytorch_computes_what_it_does_there():
    recorded = json.loads((DATA / "program.json").read_text())
    program = torch.export.load(DATA / "program.pt2").module()
    made = program(*map(torch.tensor, recorded["inputs"]))
    wanted = zip(recorded["outputs"], recorded["dtypes"], strict=True)
    for got, (want, dtype) in zip(made, wanted, strict=True):
        assert got.dtype == getattr(torch, dtype)
        torch.testing.assert_close(got, torch.tensor(want, dtype=got.dtype))


def _export(f, *inputs):
    class Model(torch.nn.Module):
        def forward(self, *args):
            return f(*args)

    return torch.export.export(Model(), inputs)


READS = {
    "tensor_split": (torch.tensor_split, torch.ones(5, 2), torch.tensor([1, 3])),
    "narrow": (lambda x, i: x.narrow(0, i, 2), torch.ones(5, 2), torch.tensor(1)),
    "grouped_mm": (
        torch._grouped_mm,
        torch.ones(4, 4),
        torch.ones(2, 4, 4),
        torch.tensor([1, 4], dtype=torch.int32),
    ),
}


@pytest.mark.parametrize("name", READS)
def test_programs_do_not_keep_values_of_their_examples(name):
    f, *inputs = READS[name]
    with pytest.raises(RuntimeError, match="trying to get value out of a tracing tensor"):
        _export(f, *inputs)


def test_constants_may_be_read():
    program = _export(lambda x: torch.tensor_split(x, torch.tensor([1, 3])), torch.ones(5))
    assert [t.tolist() for t in program.module()(torch.arange(5.0))] == [[0], [1, 2], [3, 4]]


@pytest.mark.parametrize(
    "f", [lambda x: 2 << x, lambda x: 2 >> x, lambda x: x << x, lambda x: 3 & x]
)
def test_operators_that_begin_with_numbers_are_seen(f):
    x = torch.tensor([0, 1, 3])
    assert torch.equal(make_fx(f)(x)(x + 1), f(x + 1))
    assert torch.equal(_export(f, x).module()(x + 1), f(x + 1))


def test_single_numbers_of_lists_are_seen_as_often_as_the_list_is_long():
    program = _export(lambda x: torch.nn.functional.adaptive_max_pool2d(x, 2), torch.ones(1, 6, 6))
    sizes = [n.args[1] for n in program.graph.nodes if "adaptive" in str(n.target)]
    assert sizes == [[2, 2]]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("layers", [1, 2, 4])
def test_projections_of_recurrent_layers_are_in_programs(bias, layers):
    lstm = torch.nn.LSTM(3, 4, layers, bias=bias, proj_size=2, bidirectional=layers == 2)
    x = torch.randn(5, 2, 3)
    program = torch.export.export(lstm, (x,)).module()
    torch.testing.assert_close(program(x * 2), lstm(x * 2))


@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3, 4, 5), (2, 3, 4, 5, 2)])
def test_losses_of_images_have_their_own_operator(shape):
    target = torch.zeros(shape[0], *shape[2:], dtype=torch.int64)
    program = _export(torch.nn.functional.cross_entropy, torch.randn(shape), target)
    called = [str(n.target) for n in program.graph.nodes if "nll" in str(n.target)]
    assert called == ["aten.nll_loss2d_forward.default"]


if __name__ == "__main__":
    from importlib import import_module

    _record(import_module("torch"))
