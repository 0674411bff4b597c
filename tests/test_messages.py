"""What wrong calls are told, against types and texts recorded from PyTorch."""

import json
import pathlib

import pytest

import torchlike as torch

CASES = json.loads((pathlib.Path(__file__).parent / "data" / "messages.json").read_text())


@pytest.mark.parametrize(("code", "want"), CASES, ids=[c[0] for c in CASES])
def test_message(code, want):
    try:
        got = ["result", repr(eval(code, {"torch": torch, "x": torch.ones(2)}))]
    except Exception as e:
        got = [type(e).__name__, str(e)]
    got[1] = got[1].replace("torchlike.", "torch.")
    assert got == want


def test_recurrent_layers_name_what_does_not_fit():
    cell = torch.nn.LSTMCell(3, 4)
    x, state = torch.ones(2, 3), torch.ones(2, 4)
    for call, want in (
        (lambda: cell(torch.ones(2, 5)), "input has inconsistent input_size: got 5 expected 3"),
        (
            lambda: cell(x, (state, torch.ones(2, 5))),
            "hidden1 has inconsistent hidden_size: got 5, expected 4",
        ),
        (
            lambda: cell(x, (torch.ones(3, 4), state)),
            "Input batch size 2 doesn't match hidden0 batch size 3",
        ),
        (
            lambda: torch.nn.LSTM(3, 4, device="meta")(torch.ones(5, 2, 3)),
            "Input and parameter tensors are not at the same device, "
            "found input tensor at cpu and parameter tensor at meta",
        ),
    ):
        with pytest.raises(RuntimeError) as error:
            call()
        assert str(error.value) == want


@pytest.mark.parametrize("convert", [int, float, complex])
def test_python_numbers_are_made_of_one_element(convert):
    assert convert(torch.ones(1, 1)) == 1
    with pytest.raises(ValueError, match=r"^only one element tensors can be"):
        convert(torch.ones(2))
