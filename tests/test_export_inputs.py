"""Ways to say what a program is to be exported for, and drafts of programs that cannot be."""

from __future__ import annotations

import io
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
    assert sound._report.successful() and list(sound.range_constraints) == ["s31"]
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


class Nested(nn.Module):
    def forward(self, x: Any, x_foo: Any, x_foo_0: Any, **kw: Any) -> Any:
        return x["foo"][0] + x_foo[0] + x_foo_0 + kw["k"]["N"]


class Holding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.Param, self.alpha = nn.Parameter(torch.ones(2)), nn.Buffer(torch.ones(2))
        self.gamma = self.same = torch.ones(2)

    def forward(self, p: Any, b_alpha: Any) -> Any:
        return p["param"] * self.Param + b_alpha * self.alpha + self.gamma + self.same


def test_names_of_inputs_are_those_of_pytorch() -> None:
    x = torch.ones(2)
    program = X.export(Nested(), ({"foo": [x]}, (x,), x), {"k": {"N": x}})
    names = [s.arg.name for s in program.graph_signature.input_specs]
    assert names == ["x_foo_0", "x_foo_0_1", "x_foo_0_2", "k_n"]
    program = X.export(Holding(), ({"param": x}, x))
    specs = program.graph_signature.input_specs
    assert [(s.arg.name, s.target) for s in specs] == [
        ("p_param_1", "Param"), ("b_alpha_1", "alpha"), ("c_gamma", "gamma"), ("p_param", None), ("b_alpha", None),
    ]  # fmt: skip
    assert set(program.constants) == {"gamma", "same"}
    assert torch.equal(program.module()({"param": x}, x), x * 4)
    vals = {n.name: n.meta["val"] for n in program.graph.nodes if n.op == "placeholder"}
    assert [n for n, v in vals.items() if v.requires_grad] == ["p_param_1"]


def test_modules_of_programs_stay_in_their_mode() -> None:
    x = torch.ones(2)
    program = X.export(Holding(), ({"param": x}, x))
    for name in ("train", "eval"):
        with pytest.raises(NotImplementedError, match=rf"Calling {name}\(\) is not supported yet"):
            getattr(program.module(), name)()
    with pytest.raises(
        ValueError, match=r"keyword mismatch: Got the following keywords \['q'\] but"
    ):
        program.module()({"param": x}, q=x)
    with pytest.raises(ValueError, match="Exporting a ScriptModule is not supported"):
        X.export(torch.jit.script(Plain()), (x,))


class Plain(nn.Module):
    def forward(self, x: Any) -> Any:
        return x + 1


def test_sizes_that_no_dim_allows() -> None:
    from torchlike.fx.experimental.symbolic_shapes import ConstraintViolationError

    x = torch.ones(3)
    for low, high, says in (
        (6, None, r"3 not in range \[6, int_oo\]"),
        (0, 2, r"3 not in range \[2, 2\]"),
    ):
        with pytest.raises(ConstraintViolationError, match=says):
            X.export(Plain(), (x,), dynamic_shapes={"x": {0: Dim("d", min=low, max=high)}})
    for wrong, says in (
        (Dim("d"), "Unexpected input tensor shape Dim"),
        ({0: "a"}, "Unexpected dimension mapped"),
    ):
        with pytest.raises(X.UserError, match=says):
            X.export(Plain(), (x,), dynamic_shapes={"x": wrong})
    assert [repr(Dim("d")), repr(Dim("d", min=2, max=4))] == ["Dim('d', min=0)", "Dim('d', max=4)"]


def test_symbols_are_named_after_where_sizes_come_from():
    class Several(nn.Module):
        def forward(self, x: Any, d: Any, *, q: Any) -> Any:
            return x.sum(), d["a"].sum(), q.sum()

    a, b = Dim("a", max=9), Dim("b")
    shapes = {"x": {0: a}, "d": {"a": {0: 2 * a}}, "q": {0: b, 1: a}}
    args, named = (torch.ones(4, 5), {"a": torch.ones(8)}), {"q": torch.ones(7, 4)}
    program = X.export(Several(), args, named, dynamic_shapes=shapes)
    said = "{s34: VR[0, 9], s85: VR[0, int_oo], 2*s34: VR[0, 18]}"
    assert str(program.range_constraints) == said
    assert str(program.run_decompositions().range_constraints) == said
    file = io.BytesIO()
    X.save(program, file)
    assert str(X.load(io.BytesIO(file.getvalue())).range_constraints) == said
