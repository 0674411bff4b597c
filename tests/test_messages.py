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
