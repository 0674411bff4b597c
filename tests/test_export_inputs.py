"""Ways to say what a program is to be exported for, and drafts of programs that cannot be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import torchlike as torch
from torchlike import nn
from torchlike.export import Dim

X: Any = torch.export


def test_shapes_by_tensor() -> None:
    class Nested(nn.Module):
        def forward(self, x: Any, y: Any = None) -> Any:
            return x["k"][0] + y

    x, y, b = torch.ones(3, 2), torch.ones(3, 2), Dim("b")
    shapes = X.ShapesCollection()
    shapes[x] = {0: b}
    shapes[y][0] = b
    given = ({"k": [x]}, y)
    assert shapes.dynamic_shapes(Nested(), given) == {"x": {"k": [{0: b}]}, "y": {0: b}}
    assert len(shapes) == 2
    program = X.export(Nested(), given, dynamic_shapes=shapes)
    assert program.module()({"k": [torch.ones(7, 2)]}, torch.ones(7, 2)).shape == (7, 2)
    with pytest.raises(AssertionError, match="do not match: expected"):
        shapes[x] = {0: Dim("other")}
    with pytest.raises(AssertionError, match="Cannot assign shape to non-tensor"):
        shapes[3] = {}
    with pytest.raises(ValueError, match="were not found in args"):
        shapes.dynamic_shapes(Nested(), ({"k": [y]}, y))


@dataclass
class Point:
    x: torch.Tensor
    rest: list[torch.Tensor]


def test_shapes_of_objects_of_registered_classes_are_lists() -> None:
    class Sum(nn.Module):
        def forward(self, p: Point) -> torch.Tensor:
            return p.x + p.rest[0]

    torch.export.register_dataclass(Point, serialized_type_name="tests.Point")
    x, y, n = torch.ones(4), torch.ones(4), Dim("n", max=9)
    shapes = torch.export.ShapesCollection()
    shapes[x], shapes[y] = (n,), (n,)
    given = (Point(x, [y]),)
    assert shapes.dynamic_shapes(Sum(), given) == {"p": [(n,), [(n,)]]}
    program = torch.export.export(Sum(), given, dynamic_shapes=([{0: n}, [{0: n}]],))
    assert program.module()(Point(torch.ones(6), [torch.ones(6)])).tolist() == [2] * 6
    with pytest.raises(torch.export.dynamic_shapes.UserError, match=r"`inputs.*` is a"):
        torch.export.export(Sum(), given, dynamic_shapes=(Point((n,), [(n,)]),))


def test_shapes_by_more_inputs() -> None:
    class Scaled(nn.Module):
        def forward(self, x: Any, k: float = 1.0) -> Any:
            return x * k

    more = X.AdditionalInputs()
    more.add((torch.ones(5, 4),))
    more.add((torch.ones(9, 4),))
    assert more.dynamic_shapes(Scaled(), (torch.ones(3, 4),)) == {"x": (Dim.DYNAMIC, None)}
    program = X.export(Scaled(), (torch.ones(3, 4),), dynamic_shapes=more)
    assert program.module()(torch.ones(17, 4)).shape == (17, 4)
    more.verify(program)
    more.add((torch.ones(5, 5),))
    with pytest.raises(RuntimeError, match=r"\*args\[0\].shape\[1\] to be equal to 4, but got 5"):
        more.verify(program)
    other = X.AdditionalInputs()
    other.add((torch.ones(3, 4), 2.5))
    with pytest.raises(ValueError, match="cannot be marked as dynamic"):
        other.dynamic_shapes(Scaled(), (torch.ones(3, 4), 2.0))
    whole = X.AdditionalInputs()
    whole.add((torch.ones(3, 4), 2))
    with pytest.raises(NotImplementedError, match="an input that is a number, 3, cannot vary"):
        X.export(Scaled(), (torch.ones(3, 4), 3), dynamic_shapes=whole)
    for wrong, text in (
        ((torch.ones(2),), "must be a tuple"),
        (((), [1]), "must be None or a dict"),
    ):
        with pytest.raises(AssertionError, match=text):
            other.add(*wrong)


def test_drafts_say_what_they_took_to_be_constant(caplog: Any) -> None:
    class Reading(nn.Module):
        def forward(self, x: Any) -> Any:
            return x * int(x.sum().item())

    class Branching(nn.Module):
        def forward(self, x: Any) -> Any:
            return x * 2 if x.shape[0] > 10 else x

    x = torch.ones(2, 3)
    sound = X.draft_export(nn.ReLU(), (x,), dynamic_shapes=({0: Dim("b")},))
    assert sound._report.successful() and list(sound.range_constraints) == ["s0"]
    draft = X.draft_export(Reading(), (x,))
    (failure,) = draft._report.failures
    assert failure.failure_type.name == "DATA_DEPENDENT_ERROR" and failure.data["result"] == "6.0"
    assert failure.data["user_stack"][-1]["filename"] == __file__
    assert "became a constant" in caplog.text
    assert torch.equal(draft.module()(x * 2), x * 12)
    draft = X.draft_export(Branching(), (x,), dynamic_shapes=({0: Dim("b", max=64)},))
    assert not draft._report.successful() and "b == 2" in str(draft._report)
    assert draft.range_constraints == {} and torch.equal(draft.module()(x), x)
    with pytest.raises(NotImplementedError, match="apply_suggested_fixes"):
        draft._report.apply_suggested_fixes()


def test_example_inputs_can_be_others() -> None:
    class Keyed(nn.Module):
        def forward(self, x: Any, k: int, *, z: Any) -> Any:
            return x * k + z

    x = torch.ones(2)
    program = X.export(Keyed(), (x, 3), {"z": x})
    values = {n.name: n.meta["val"] for n in program.graph.nodes if n.op == "placeholder"}
    assert values["k"] == 3 and values["x"].shape == (2,)
    program.example_inputs = ((x * 2, 3), {"z": x})
    assert torch.equal(program.example_inputs[0][0], x * 2)
    for wrong, text in (
        (3, "Example inputs should be a tuple containing"),
        (([x, 3], {"z": x}), "Example inputs should be a tuple containing"),
        (((x, 3), {}), r"Got the following keywords \[\] but expected \['z'\]"),
        (((x,), {"z": x}), "Trying to flatten user inputs"),
    ):
        with pytest.raises(ValueError, match=text):
            program.example_inputs = wrong
    program.example_inputs = None
    with pytest.raises(X.UserError, match="needs the example inputs"):
        program.run_decompositions()
