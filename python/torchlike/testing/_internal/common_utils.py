"""The test class of PyTorch's own tests and what stands around it, for the libraries whose tests import it."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import random
import sys
import tempfile
import unittest
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

import torchlike as torch
from torchlike.testing import _Comparison, _Mismatch, make_tensor

__all__ = [
    "IS_LINUX",
    "IS_MACOS",
    "IS_WINDOWS",
    "SEED",
    "TEST_CUDA",
    "TEST_NUMPY",
    "TemporaryDirectoryName",
    "TemporaryFileName",
    "TestCase",
    "freeze_rng_state",
    "instantiate_parametrized_tests",
    "make_tensor",
    "parametrize",
    "run_tests",
    "set_default_dtype",
    "set_rng_seed",
    "skipIfRocm",
    "skipIfTorchDynamo",
    "subtest",
]

SEED = 1234
IS_LINUX = sys.platform == "linux"
IS_MACOS = sys.platform == "darwin"
IS_WINDOWS = sys.platform == "win32"
TEST_NUMPY = True
TEST_CUDA = torch.cuda.is_available()
_NUMBERS = (bool, int, float, complex, np.generic)


def set_rng_seed(seed: int | None = None) -> None:
    """Seeds the generators of torchlike, Python and NumPy."""
    seed = SEED if seed is None else seed
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


@contextlib.contextmanager
def freeze_rng_state() -> Iterator[None]:
    """Puts the states of all generators of random numbers back at the end of a block."""
    devices = list(range(torch.cuda.device_count())) if TEST_CUDA else []
    with torch.random.fork_rng(devices):
        yield


@contextlib.contextmanager
def set_default_dtype(dtype: Any) -> Iterator[None]:
    """Another default type for a block."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def TemporaryFileName(
    mode: str = "w+b", suffix: str | None = None, prefix: str | None = None, dir: Any = None
) -> Iterator[str]:
    """The name of a file that is there for a block, and that nobody has open meanwhile."""
    handle, name = tempfile.mkstemp(suffix, prefix, dir)
    os.close(handle)
    try:
        yield name
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)


@contextlib.contextmanager
def TemporaryDirectoryName(suffix: str | None = None) -> Iterator[str]:
    """The name of a folder that is there for a block."""
    with tempfile.TemporaryDirectory(suffix=suffix) as name:
        yield name


def skipIfTorchDynamo(msg: Any = "") -> Any:
    """The test itself: nothing is compiled here."""
    return msg if callable(msg) else lambda test: test


def skipIfRocm(func: Any = None, **_: Any) -> Any:
    """The test itself: there is no ROCm here."""
    return func if callable(func) else lambda test: test


class subtest:
    """The values of one test of many, with its name and decorators of its own."""

    __slots__ = ("arg_values", "decorators", "name")

    def __init__(self, arg_values: Any, name: Any = None, decorators: Any = None) -> None:
        self.arg_values, self.name, self.decorators = arg_values, name, list(decorators or ())


def _part(name: str, value: Any, index: int) -> str:
    """What an argument adds to the name of a test."""
    if isinstance(value, torch.dtype):
        return str(value).rpartition(".")[2]
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, int | float | str):
        return f"{name}_{str(value).replace('.', '_')}"
    return f"{name}{index}"


class parametrize:
    """Marks a test that `instantiate_parametrized_tests` makes once for each of the values.

    Args:
        arg_str: the names of the arguments, with commas between them.
        arg_values: values; tuples for several names; or `subtest`s.
        name_fn: what gives the end of a test's name for its values.
    """

    def __init__(
        self, arg_str: str, arg_values: Iterable[Any], name_fn: Callable[..., str] | None = None
    ) -> None:
        self.names = [name.strip() for name in arg_str.split(",") if name.strip()]
        self.values, self.name_fn = arg_values, name_fn

    def __call__(self, test: Any) -> Any:
        test._parametrized = [self, *getattr(test, "_parametrized", [])]
        return test

    def cases(self) -> Iterator[tuple[str, dict[str, Any], list[Any]]]:
        """The end of the name, the arguments and the decorators of each test."""
        for index, given in enumerate(self.values):
            case = given if isinstance(given, subtest) else subtest(given)
            values = case.arg_values if len(self.names) > 1 else (case.arg_values,)
            if len(values) != len(self.names):
                raise RuntimeError(
                    f"Expected # values == # arg names, but got: {len(values)} values and "
                    f"{len(self.names)} names"
                )
            if case.name is not None:
                name = case.name
            elif self.name_fn is not None:
                name = self.name_fn(*values)
            else:
                parts = zip(self.names, values, strict=True)
                name = "_".join(_part(n, v, index) for n, v in parts)
            yield name, dict(zip(self.names, values, strict=True)), case.decorators


def instantiate_parametrized_tests(generic_cls: Any) -> Any:
    """Puts the tests that `parametrize` asks for in the place of those that it marks."""
    for name in dir(generic_cls):
        test = getattr(generic_cls, name)
        marks = getattr(test, "_parametrized", None)
        if marks is None:
            continue
        delattr(generic_cls, name)
        # The decorator next to the test turns slowest, and its part of the name comes last.
        for cases in itertools.product(*(mark.cases() for mark in marks)):
            arguments = {k: v for _, given, _ in cases for k, v in given.items()}

            @functools.wraps(test)
            def made(self: Any, _test: Any = test, _arguments: Any = arguments) -> None:
                _test(self, **_arguments)

            whole: Any = made
            for decorator in (d for *_, more in cases for d in more):
                whole = decorator(whole)
            own = "_".join([name, *(part for part, *_ in cases)])
            if hasattr(generic_cls, own):
                raise AssertionError(f"Redefinition of test {own}")
            setattr(generic_cls, own, whole)
    return generic_cls


class _Relaxed(_Comparison):
    """The rules of `TestCase`: also of strings, sets and objects, and of a number beside a tensor of one element."""

    def __init__(self, case: TestCase, *given: Any, **checks: bool) -> None:
        super().__init__(*given, **checks, subclasses=True, metadata_only=False)
        self.least = (case.rel_tol, case.precision)

    def tolerances(self, *dtypes: Any) -> tuple[float, float]:
        usual = super().tolerances(*dtypes)
        return max(usual[0], self.least[0]), max(usual[1], self.least[1])

    def any(self, actual: Any, expected: Any, path: tuple[Any, ...]) -> None:
        """Compares two values, or the values in two containers."""
        values, arrays = (actual, expected), (torch.Tensor, np.ndarray)
        if all(isinstance(v, np.ndarray) and v.dtype.kind in "OSU" for v in values):
            actual, expected = (v.tolist() for v in values)  # texts, which no tensor holds
            values = (actual, expected)
        if all(
            isinstance(v, (*arrays, Sequence, Mapping)) and not isinstance(v, str) for v in values
        ):
            tensors = any(isinstance(v, torch.Tensor) for v in values)
            a, e = (
                torch.as_tensor(v) if tensors and not isinstance(v, Mapping) else v for v in values
            )
            super().any(a, e, path)
        elif all(isinstance(v, (*arrays, *_NUMBERS)) for v in values):
            a, e = (v.item() if isinstance(v, (*arrays, np.generic)) else v for v in values)
            self.numbers(a, e, path)
        elif actual != expected:
            raise _Mismatch(f"{actual!r} is not {expected!r}", path)

    def numbers(self, actual: Any, expected: Any, path: tuple[Any, ...]) -> None:
        if type(actual) is not type(expected):
            actual, expected = (
                complex(v) if isinstance(v, complex) else float(v) for v in (actual, expected)
            )
        super().numbers(actual, expected, path)


class TestCase(unittest.TestCase):
    """A test class that seeds the generators before each test and compares tensors, within their types' tolerances.

    Attributes:
        precision, rel_tol: the least absolute and relative tolerances.
    """

    maxDiff = None
    precision: float = 0
    rel_tol: float = 0

    def setUp(self) -> None:
        """Seeds the generators."""
        set_rng_seed(SEED)

    def assertEqual(
        self,
        x: Any,
        y: Any,
        msg: Any = None,
        *,
        atol: float | None = None,
        rtol: float | None = None,
        equal_nan: bool = True,
        exact_dtype: bool = True,
        exact_device: bool = False,
        exact_layout: bool = False,
        exact_stride: bool = False,
        exact_is_coalesced: bool = False,
    ) -> None:
        """Raises AssertionError if two things differ: tensors and numbers by more than the tolerances allow."""
        rules = _Relaxed(
            self,
            rtol,
            atol,
            equal_nan,
            device=exact_device,
            dtype=exact_dtype,
            layout=exact_layout,
            stride=exact_stride,
        )
        text = rules.found(x, y)
        if text is None and exact_is_coalesced:
            coalesced = [v.is_sparse and v.is_coalesced() for v in (x, y)]
            text = None if coalesced[0] == coalesced[1] else "One tensor is coalesced, one is not"
        if text is not None:
            text = msg(text) if callable(msg) else text if msg is None else f"{text}\n{msg}"
            raise AssertionError(text)

    def assertNotEqual(self, x: Any, y: Any, msg: Any = None, **options: Any) -> None:  # type: ignore[override]
        """Raises AssertionError unless `assertEqual` does."""
        try:
            self.assertEqual(x, y, **options)  # noqa: PT009  (it is the assertion)
        except AssertionError:
            return
        raise AssertionError(msg or "AssertionError not raised")


def run_tests(argv: Any = None) -> None:
    """Runs the tests of the program, as `unittest.main` does."""
    unittest.main(argv=argv)
