"""Functions that are rewritten before they are traced, and the annotations of the library's own modules."""

import pickle

import pytest

import torchlike as torch
from torchlike import fx, nn
from torchlike.fx.experimental.rewriter import RewritingTracer


class Part(nn.Module):
    def forward(self, x):
        assert x.sum() != 7, "seven"
        return x + 1


class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.part, self.lin = Part(), nn.Linear(3, 3)

    def forward(self, x, *, n: int = 3):
        assert x.dim() == 2
        y: torch.Tensor = self.lin(self.part(x)) * n
        return y


def test_checks_and_types_are_traced():
    tracer, model, x = RewritingTracer(), Whole(), torch.ones(2, 3)
    graph = tracer.trace(model)
    gm = fx.GraphModule(tracer.root, graph)
    assert torch.equal(gm(x), model(x))
    assert [n.target for n in graph.nodes if n.op == "call_function"].count(torch._assert) == 2
    assert [n.target for n in graph.nodes if n.op == "call_module"] == ["lin"]
    assert next(n for n in graph.nodes if n.name == "mul").type is torch.Tensor
    assert next(n for n in graph.nodes if n.name == "n").type is int
    with pytest.raises(AssertionError, match="seven"):
        gm(torch.tensor([[7.0, 0, 0]]))


def test_functions_see_what_is_around_them():
    least = 3

    def f(x, y):
        assert x.numel() > least
        return x + y

    graph = RewritingTracer().trace(f)
    assert [n.name for n in graph.nodes] == ["x", "y", "numel", "gt", "_assert", "add", "output"]
    assert str(graph).count("(%numel, 3)") == 1


@pytest.mark.parametrize(
    "model", [nn.Linear(2, 2), nn.EmbeddingBag(4, 2, mode="sum"), nn.MSELoss()]
)
def test_modules_of_the_library_have_types(model):
    gm = fx.Tracer().trace(model)
    first, *others = [n.type for n in gm.nodes if n.op == "placeholder"]
    assert first is torch.Tensor
    assert all(t in (torch.Tensor, torch.Tensor | None) for t in others)
    traced = fx.symbolic_trace(model)
    again = pickle.loads(pickle.dumps(traced))
    assert again.code == traced.code and ": torchlike.Tensor" in again.code


def test_names_of_functions():
    assert torch.typename(torch.log_).endswith(".log_")
    assert torch.typename(nn.functional.relu).endswith("nn.functional.relu")
    assert torch.typename(torch.Tensor.add_).endswith("add_")
    assert [torch.typename(o) for o in (3, int, torch.int64)] == ["int", "int", "torchlike.dtype"]
