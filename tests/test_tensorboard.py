"""Events for TensorBoard, where its package is installed; without it the import says so as PyTorch's does."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import torchlike as torch


def test_without_its_package_the_import_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    for name in [n for n in sys.modules if n.startswith("torchlike.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ModuleNotFoundError, match="tensorboard"):
        importlib.import_module("torchlike.utils.tensorboard")


def events(folder: Path) -> list[Any]:
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    found: list[Any] = []
    for file in sorted(folder.rglob("events*")):
        found.extend(LegacyEventFileLoader(str(file)).Load())
    return found


def test_what_is_written_is_read(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    tensorboard: Any = importlib.import_module("torchlike.utils.tensorboard")
    torch.manual_seed(0)
    with tensorboard.SummaryWriter(tmp_path / "run", purge_step=2) as w:
        w.add_scalar("loss", torch.tensor(1.5), 1)
        w.add_scalar("new", 2, 2, new_style=True)
        w.add_scalar("double", np.float64(0.1), 2, new_style=True, double_precision=True)
        w.add_scalars("both", {"a": 1.0, "b": 2}, 3)
        w.add_histogram("h", torch.randn(1000), 1, max_bins=100)
        w.add_histogram_raw("raw", 0, 1, 2, 1.0, 1.0, [0, 1], [1, 1])
        w.add_text("words", "hello", 1)
        w.add_tensor("tensor", torch.arange(6.0).view(2, 3), 1)
        if importlib.util.find_spec("PIL"):  # type: ignore[attr-defined]
            w.add_image("image", torch.rand(3, 4, 5), 1)
            w.add_images("images", torch.rand(10, 1, 4, 5), 1)
        w.add_hparams({"lr": 0.1, "b": True, "s": "x"}, {"acc": 1.0}, run_name="hp")
        for call in (
            lambda: w.add_scalar("x", torch.ones(2)),
            lambda: w.add_image("x", torch.ones(2)),
        ):
            with pytest.raises(AssertionError):
                call()
        with pytest.raises(NotImplementedError, match=r"SummaryWriter\.add_graph is not supported"):
            w.add_graph(torch.nn.Linear(1, 1))
        with pytest.raises(NotImplementedError, match="numpy array or torch tensor are expected"):
            w.add_histogram("x", [1])
        with pytest.raises(ValueError, match="len"):
            w.add_histogram_raw("x", 0, 1, 1, 1, 1, [1], [])
    w.add_scalar("after", 1.0)
    w.close()
    found = {v.tag: v for e in events(tmp_path / "run") for v in e.summary.value}
    assert found["loss"].simple_value == 1.5 and found["after"].simple_value == 1
    assert found["new"].tensor.float_val[0] == 2 and found["double"].tensor.double_val[0] == 0.1
    assert found["h"].histo.num == 1000 and sum(found["h"].histo.bucket) == 1000
    assert len(found["h"].histo.bucket) <= 100 and found["raw"].histo.max == 1
    assert found["words/text_summary"].tensor.string_val[0] == b"hello"
    assert "_hparams_/session_start_info" in found and found["acc"].simple_value == 1
    writer = tensorboard.FileWriter(tmp_path / "other")
    assert writer.get_logdir() == str(tmp_path / "other") and w.get_logdir() == str(
        tmp_path / "run"
    )
    writer.close()
