"""Small tools that reports, benchmarks and code about sizes take: what they say of known cases."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

import torchlike as torch

BENCHMARK: Any = importlib.import_module("torchlike.utils.benchmark")
SIZES: Any = importlib.import_module("torchlike.fx.experimental.symbolic_shapes")
PACKAGE: Any = importlib.import_module("torchlike.package")
REPORT: Any = importlib.import_module("torchlike.utils.collect_env")


def measured(*times: float) -> Any:
    task = BENCHMARK.TaskSpec("f(x)", "y = 1", label="L", sub_label="s", description="d")
    return BENCHMARK.Measurement(10, [10 * t for t in times], task)


def test_what_measurements_say() -> None:
    m = measured(1e-5, 1.2e-5, 1.1e-5, 1.15e-5)
    assert m.significant_figures == 1 and not m.has_warnings  # PyTorch's answers
    assert (m.title, m.as_row_name, m.env) == ("L: s", "s", None)
    assert m.task_spec.summarize() == "L: s\nd\nsetup: y = 1"
    assert BENCHMARK.TaskSpec("x", "a\nb").setup_str() == "setup:\n  a\n  b"
    assert BENCHMARK.TaskSpec("x", "pass").setup_str() == ""
    assert measured(1.0, 1.0, 1.0, 1.0).significant_figures == 4
    assert measured(1.0, 2.0, 5.0, 9.0).has_warnings
    timer = BENCHMARK.Timer("pass")
    for call in (timer.repeat, timer.autorange):
        with pytest.raises(NotImplementedError, match=r"See `Timer\.blocked_autorange"):
            call()


def test_numbers_words_and_threads() -> None:
    assert BENCHMARK.trim_sigfig(1234.567, 2) == 1200.0 and BENCHMARK.trim_sigfig(0, 3) == 0.0
    assert BENCHMARK.trim_sigfig(-0.01234, 1) == -0.01
    assert BENCHMARK.unit_to_english("us") == "microsecond"
    assert BENCHMARK.ordered_unique([3, 1, 3]) == [3, 1]
    before = torch.get_num_threads()
    with BENCHMARK.set_torch_threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before
    for part, name in (("common", "Measurement"), ("compare", "Compare"), ("timer", "Timer")):
        home = importlib.import_module(f"torchlike.utils.benchmark.utils.{part}")
        assert getattr(home, name) is getattr(BENCHMARK, name)


def test_questions_about_sizes() -> None:
    assert SIZES.sym_eq((1, [2]), (1, [2])) and not SIZES.sym_eq((1, 2), (1, 3))
    assert not SIZES.sym_eq((1,), (1, 2)) and SIZES.sym_eq(3, 3)
    assert SIZES.sym_and(True, 1 < 2) and not SIZES.sym_and(True, 1 > 2)
    assert SIZES.sym_or(False, 1 < 2) and not SIZES.sym_or(False)
    assert SIZES.create_contiguous((2, 3, 4)) == list(torch.empty(2, 3, 4).stride())
    assert SIZES.statically_known_false(1 > 2) and SIZES.statically_known_true(x=1 < 2)
    assert SIZES.optimization_hint(3) == SIZES.guarding_hint_or_throw(3) == 3
    assert SIZES.guard_scalar(2.5) == SIZES.guard_float(2.5) == 2.5
    assert SIZES.has_static_value(3) and not SIZES.is_nested_int(3)
    ragged = torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], layout=torch.jagged)
    assert SIZES.is_nested_int(ragged.shape[1]) and not SIZES.has_static_value(ragged.shape[1])
    SIZES.check_consistent(torch.ones(2), torch.zeros(2))
    for call, kind, text in (
        (lambda: SIZES.check_consistent(3, 4), RuntimeError, r"4 != 3 \(old != new\)"),
        (lambda: SIZES.check_consistent(torch.ones(2), torch.ones(3)), RuntimeError, "old != new"),
        (lambda: SIZES.guard_float(3), AssertionError, "Expected float, got 3"),
        (lambda: SIZES.guard_scalar("a"), AssertionError, "unrecognized scalar a"),
    ):
        with pytest.raises(kind, match=text):
            call()


@pytest.mark.parametrize(
    ("include", "exclude", "name", "wanted"),
    [
        ("torch.*", (), "torch.fx", True),
        ("torch.*", (), "torch", False),
        ("torch.*", (), "torch.fx.graph", False),
        ("torch.**", (), "torch", True),
        ("torch.**", (), "torch.fx.graph", True),
        ("torch.**", (), "torchvision", False),
        ("**.graph", (), "torch.fx.graph", True),
        ("torch.**.test_*", (), "torch.a.b.test_c", True),
        (["a", "b.*"], "b.c", "b.c", False),
        (["a", "b.*"], "b.c", "b.d", True),
        ("**", "torch.nn.**", "torch.nn.modules", False),
    ],
)
def test_patterns_of_names(include: Any, exclude: Any, name: str, wanted: bool) -> None:
    assert PACKAGE.GlobGroup(include, exclude=exclude).matches(name) is wanted


def test_patterns_that_are_none() -> None:
    with pytest.raises(ValueError, match="entire path segment"):
        PACKAGE.GlobGroup("torch.**x")
    assert PACKAGE.GlobGroup("a/*", separator="/").matches("a/b")
    assert not PACKAGE.is_from_package(torch) and issubclass(PACKAGE.PackagingError, Exception)
    with pytest.raises(NotImplementedError, match=r"package\.OrderedImporter"):
        PACKAGE.OrderedImporter()


def test_reports_of_the_machine() -> None:
    found = REPORT.get_env_info()
    assert found.torch_version == str(torch.__version__) and found.gcc_version is None
    assert found.is_cuda_available == str(torch.cuda.is_available())
    text = REPORT.pretty_str(found)
    assert "gcc_version" not in text and f"torch_version: {torch.__version__}" in text
    manager, packages = REPORT.get_pip_packages(patterns=["pytest"])
    assert manager == "pip3" and f"pytest=={pytest.__version__}" in packages.splitlines()


def test_determinism_is_asked_for_by_truth_values():
    for call in (
        lambda: torch.use_deterministic_algorithms(1),
        lambda: torch.use_deterministic_algorithms(True, warn_only=None),
    ):
        with pytest.raises(TypeError, match=r"^_set_deterministic_algorithms\(\): argument '"):
            call()
    assert not torch.are_deterministic_algorithms_enabled()
