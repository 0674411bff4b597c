"""`torch.testing._internal.common_utils`: the test class that libraries' own tests stand on."""

# ruff: noqa: PT009  (the assertions are what is tested)

import io
import unittest

import numpy as np
import pytest

import torchlike as torch
from torchlike.testing._internal.common_utils import (
    TemporaryFileName,
    TestCase,
    freeze_rng_state,
    instantiate_parametrized_tests,
    parametrize,
    set_default_dtype,
    subtest,
)

case = TestCase()
T = torch.tensor

EQUAL = [
    (T(1.0), 1.0),
    (1, 1.0),
    (T([1.0, 2.0]), T([1.0, 2.0 + 1e-6])),
    (np.ones(2), T([1.0, 1.0], dtype=torch.float64)),
    ([1, 2], T([1, 2])),
    (np.array([["a", "b"]]), np.array([["a", "b"]])),
    ([1], (1,)),
    ({1, 2}, {2, 1}),
    ({"a": [T(1), "b", None]}, {"a": [T(1), "b", None]}),
    (T(float("nan")), T(float("nan"))),
    (torch.float32, torch.float32),
]
UNEQUAL = [
    (T([1.0]), T([1])),
    (T([1.0]), T([1.1])),
    ("a", "b"),
    (np.array(["a"]), np.array(["b"])),
    (None, 1),
    ({"a": 1}, {"b": 1}),
    ([1], [1, 2]),
    (T(2), 3),
]


@pytest.mark.parametrize(("a", "b"), EQUAL)
def test_equal(a, b):
    case.assertEqual(a, b)
    with pytest.raises(AssertionError):
        case.assertNotEqual(a, b)


@pytest.mark.parametrize(("a", "b"), UNEQUAL)
def test_unequal(a, b):
    case.assertNotEqual(a, b)
    with pytest.raises(AssertionError, match="said"):
        case.assertEqual(a, b, "said")


def test_tolerances():
    case.assertEqual(T([1.0]), T([1]), exact_dtype=False)
    case.assertEqual(T([1.0]), T([1.1]), atol=0.2, rtol=0)
    wide = TestCase()
    wide.precision = 0.2
    wide.assertEqual(T([1.0]), T([1.1]))


def test_names_and_runs_of_parametrized_tests():
    class Cases(TestCase):
        @parametrize(
            "x,y", [(1, 2), subtest((3, 4), name="odd", decorators=[unittest.expectedFailure])]
        )
        @parametrize("z", [torch.float32, 0.5, sum])
        def test_a(self, x, y, z):
            self.assertEqual((x, y), (1, 2))

        @parametrize("m", [[1], None], name_fn=lambda m: f"none_{m is None}")
        def test_b(self, m):
            self.assertEqual(
                torch.rand(1), torch.rand(1, generator=torch.Generator().manual_seed(1234))
            )

    instantiate_parametrized_tests(Cases)
    names = [n for n in dir(Cases) if n.startswith("test_")]
    assert names == [
        *(f"test_a_odd_{z}" for z in ("float32", "z2", "z_0_5")),
        *(f"test_a_x_1_y_2_{z}" for z in ("float32", "z2", "z_0_5")),
        *("test_b_none_False", "test_b_none_True"),
    ]
    suite = unittest.TestLoader().loadTestsFromTestCase(Cases)
    result = unittest.TextTestRunner(stream=io.StringIO()).run(suite)
    assert (result.testsRun, len(result.expectedFailures), result.wasSuccessful()) == (8, 3, True)


def test_what_is_put_back():
    state = torch.get_rng_state()
    with freeze_rng_state(), set_default_dtype(torch.float64):
        assert torch.rand(1).dtype == torch.float64
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_default_dtype() == torch.float32
    with TemporaryFileName() as name:
        torch.save(T([1]), name)
        assert torch.load(name).tolist() == [1]


def test_the_functions_of_the_core_have_a_module():
    assert torch._VF.lstm is torch.lstm
    assert torch._C._VariableFunctions.mm is torch.mm
    assert {"mm", "einsum", "_fused_adam_"} <= set(dir(torch._VF))
    assert {"mm", "Tensor", "float32", "no_grad"} <= set(torch.__all__)
    assert not {"nn", "torch", "_C"} & set(torch.__all__)
