"""Training ends where PyTorch's does, and where an uninterrupted run does. Losses are PyTorch 2.13's."""

import importlib.util
import json
from pathlib import Path

import pytest

import torchlike as torch
from training_models import Run

HERE = Path(__file__).parent
LOSSES = json.loads((HERE / "data" / "training.json").read_text())


@pytest.mark.parametrize("case", LOSSES)
def test_losses(case):
    losses = Run(torch, *case.split(", "), torch.float64).steps(200)
    seen = [losses[i] for i in (0, 9, 49, 99, 199)]
    assert seen == pytest.approx(LOSSES[case], rel=1e-10, abs=0)


@pytest.mark.parametrize("case", LOSSES)
def test_losses_in_single_precision_begin_the_same(case):
    losses = Run(torch, *case.split(", "), torch.float32).steps(10)
    assert [losses[0], losses[9]] == pytest.approx(LOSSES[case][:2], rel=1e-6, abs=0)


def test_a_checkpoint_of_pytorch_goes_on():
    run = Run(torch, "mlp", "AdamW", torch.float64)
    run.load(torch.load(HERE / "data" / "training_mlp.pt"))
    assert run.steps(100)[-1] == pytest.approx(LOSSES["mlp, AdamW"][-1], rel=1e-10, abs=0)


@pytest.mark.parametrize("kind", ["cnn", "lstm"])
def test_a_resumed_run_has_the_same_bits(kind, tmp_path):
    whole = Run(torch, kind, "AdamW", torch.float32)
    losses = whole.steps(20)
    first = Run(torch, kind, "AdamW", torch.float32)
    start = first.steps(10)
    torch.save(first.state(), tmp_path / "run.pt")
    second = Run(torch, kind, "AdamW", torch.float32)
    second.load(torch.load(tmp_path / "run.pt"))
    assert start + second.steps(10) == losses
    for a, b in zip(whole.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location(
        "training_example", HERE.parent / "examples" / "training.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("task", ["text", "images"])
def test_the_example_learns_and_resumes(example, task, tmp_path, capsys):
    file = str(tmp_path / "run.pt")
    whole = example.Trainer(task)
    # Longer than a pass of the text's pieces in the middle of which it stops.
    whole.train(40)
    assert sum(whole.losses[-5:]) < 0.9 * sum(whole.losses[:5])
    example.main([task, "--steps", "25", "--checkpoint", file])
    example.main([task, "--steps", "15", "--checkpoint", file, "--resume"])
    state = torch.load(file)
    assert state["losses"] == whole.losses
    assert all(torch.equal(state["model"][k], v) for k, v in whole.model.state_dict().items())
    printed = capsys.readouterr().out
    assert "parameters" in printed and f"step 40: loss {whole.losses[-1]:.4f}" in printed


def test_the_plot_is_an_image_or_says_what_it_needs(example, tmp_path):
    path = tmp_path / "loss.png"
    if importlib.util.find_spec("matplotlib") is None:
        with pytest.raises(SystemExit, match="--plot needs matplotlib"):
            example.plot([1.0, 0.5], path)
    else:
        example.plot([1.0, 0.5], path)
        assert path.read_bytes().startswith(b"\x89PNG")
