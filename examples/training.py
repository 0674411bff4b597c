"""Trains a small transformer on text and a CNN on images, both made by this program.

    python examples/training.py text --steps 200 --checkpoint text.pt --plot text.png
    python examples/training.py images --steps 100 --checkpoint images.pt --resume

The model is first run on the meta device: shapes, parameters and memory are known before anything is allocated. A run
that is stopped and resumed ends with the bits of one that was not.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torchlike as torch
from torchlike import nn
from torchlike.nn import functional as F
from torchlike.utils.data import DataLoader, Dataset, Sampler

LETTERS = "0123456789+=; "
CONTEXT = 32


class Sums(Dataset[Any]):
    """Pieces of a text of sums, `7+12=19; `, and the letters that follow each letter."""

    def __init__(self, count: int = 512) -> None:
        generator = torch.Generator().manual_seed(1)
        pairs = torch.randint(0, 50, (count, 2), generator=generator).tolist()
        text = "".join(f"{a}+{b}={a + b}; " for a, b in pairs)
        self.letters = torch.tensor([LETTERS.index(c) for c in text])

    def __len__(self) -> int:
        return len(self.letters) // CONTEXT - 1

    def __getitem__(self, i: int) -> tuple[Any, Any]:
        piece = self.letters[i * CONTEXT : (i + 1) * CONTEXT + 1]
        return piece[:-1], piece[1:]


class Shapes(Dataset[Any]):
    """Images of bars, crosses and squares somewhere in noise, and which of the three it is."""

    def __init__(self, count: int = 384) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> tuple[Any, int]:
        generator = torch.Generator().manual_seed(i)
        image = 0.3 * torch.randn(1, 16, 16, generator=generator)
        row, column = torch.randint(1, 9, (2,), generator=generator).tolist()
        kind = i % 3
        if kind == 2:
            image[0, row : row + 6, column : column + 6] += 1.0
        else:
            image[0, row + 2 : row + 4, column : column + 6] += 1.0
        if kind == 1:
            image[0, row : row + 6, column + 2 : column + 4] += 1.0
        return image, kind


class Transformer(nn.Module):
    """Letters to the letters that follow."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.letters = nn.Embedding(len(LETTERS), width)
        self.places = nn.Embedding(CONTEXT, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, len(LETTERS))

    def forward(self, x: Any) -> Any:
        n = x.shape[1]
        h = self.letters(x) + self.places(torch.arange(n, device=x.device))
        mask = nn.Transformer.generate_square_subsequent_mask(n, device=x.device)
        return self.head(self.layers(h, mask=mask, is_causal=True)).flatten(0, 1)


def cnn() -> nn.Module:
    """Images to three classes."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Dropout(0.1), nn.Linear(32, 3),
    )  # fmt: skip


TASKS: dict[str, tuple[Any, Any]] = {"text": (Transformer, Sums), "images": (cnn, Shapes)}


class Shuffled(Sampler[int]):
    """Indices in an order that each pass draws anew, from where a checkpoint was."""

    def __init__(self, count: int, seed: int = 0) -> None:
        self.count = count
        self.generator = torch.Generator().manual_seed(seed)
        self.before = self.generator.get_state()
        self.skip = 0

    def __iter__(self) -> Iterator[int]:
        self.before = self.generator.get_state()
        order = torch.randperm(self.count, generator=self.generator).tolist()
        skip, self.skip = self.skip, 0
        yield from order[skip:]

    def __len__(self) -> int:
        return self.count

    def state_dict(self, used: int) -> dict[str, Any]:
        """Where a pass is of which `used` samples were taken."""
        return {"before": self.before, "used": used}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on there."""
        self.generator.set_state(state["before"])
        self.skip = state["used"]


def plan(task: str, batch: int) -> str:
    """What a step will need, found on meta."""
    make, samples = TASKS[task]
    with torch.device("meta"):
        model = make()
    x, _ = samples()[0]
    out = model(x.expand(batch, *x.shape).to("meta"))
    count = sum(p.numel() for p in model.parameters())
    state = sum(p.nbytes for p in model.parameters()) * 4
    return (
        f"{task}: {count:,} parameters, {state / 1e6:.2f} MB with gradients and AdamW's state, "
        f"output {tuple(out.shape)}"
    )


class Trainer:
    """A model, what trains it, and where it is."""

    def __init__(self, task: str, batch: int = 16, workers: int = 0) -> None:
        make, samples = TASKS[task]
        torch.manual_seed(0)
        self.task, self.batch = task, batch
        self.model = make()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 1000)
        data = samples()
        self.sampler = Shuffled(len(data))
        self.loader = DataLoader(
            data, batch, sampler=self.sampler, num_workers=workers, drop_last=True,
            generator=torch.Generator(),
        )  # fmt: skip
        self.used = 0
        self.losses: list[float] = []

    def batches(self) -> Iterator[Any]:
        """Batches without end; `used` says how many samples of the pass are gone."""
        while True:
            for batch in self.loader:
                self.used += self.batch
                yield batch
            self.used = 0

    def train(self, steps: int, show: Any = None) -> None:
        """So many steps more."""
        self.model.train()
        batches = self.batches()
        for _ in range(steps):
            x, y = next(batches)
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self.model(x), y.flatten())
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.scheduler.step()
            self.losses.append(loss.item())
            if show is not None:
                show(self.losses)

    def save(self, path: str | Path) -> None:
        """Everything that decides what comes next."""
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "sampler": self.sampler.state_dict(self.used),
            "generator": torch.get_rng_state(),
            "losses": self.losses,
        }
        torch.save(state, path)

    def load(self, path: str | Path) -> None:
        """Goes on from a file."""
        state = torch.load(path)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        self.sampler.load_state_dict(state["sampler"])
        self.used = state["sampler"]["used"]
        self.losses = state["losses"]
        torch.set_rng_state(state["generator"])


def progress(total: int) -> Any:
    """A function that shows how far a run is: a bar of tqdm's where it is installed and somebody looks, else lines."""
    try:
        from tqdm import tqdm
    except ImportError:
        tqdm = None
    if tqdm is None or not sys.stderr.isatty():

        def line(losses: list[float]) -> None:
            if len(losses) % 50 == 0 or len(losses) == total:
                print(f"step {len(losses)}: loss {losses[-1]:.4f}", flush=True)

        return line
    bar = tqdm(total=total)

    def move(losses: list[float]) -> None:
        bar.update(len(losses) - bar.n)
        bar.set_postfix(loss=f"{losses[-1]:.4f}")

    return move


def plot(losses: list[float], path: str | Path) -> None:
    """The losses as an image.

    Raises:
        SystemExit: if matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise SystemExit("--plot needs matplotlib: pip install 'torchlike[training]'") from None
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot(xlabel="step", ylabel="loss", yscale="log")
    axes.plot(range(1, len(losses) + 1), losses)
    figure.savefig(path)


def main(argv: list[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--checkpoint", help="written at the end")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint")
    parser.add_argument("--plot", help="an image of the losses")
    args = parser.parse_args(argv)
    print(plan(args.task, args.batch))
    trainer = Trainer(args.task, args.batch, args.workers)
    if args.resume:
        if args.checkpoint is None:
            parser.error("--resume needs --checkpoint")
        trainer.load(args.checkpoint)
    trainer.train(args.steps, progress(len(trainer.losses) + args.steps))
    if args.checkpoint:
        trainer.save(args.checkpoint)
    if args.plot:
        plot(trainer.losses, args.plot)


if __name__ == "__main__":
    main()
