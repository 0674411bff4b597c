"""Training runs that any library of PyTorch's form can make: the same text runs here and in PyTorch."""

from __future__ import annotations

from typing import Any

KINDS = ("mlp", "cnn", "transformer", "lstm")


def build(torch: Any, kind: str, dtype: Any) -> tuple[Any, Any, Any]:
    """A model, its inputs and its targets, from one seed. Random numbers are drawn in single precision."""
    nn = torch.nn
    torch.manual_seed(11)
    if kind == "mlp":
        model = nn.Sequential(
            nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 5)
        )
        x = torch.randn(24, 12)
    elif kind == "cnn":
        model = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, stride=2), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
            nn.Flatten(), nn.Linear(16, 5),
        )  # fmt: skip
        x = torch.randn(24, 3, 12, 12)
    elif kind == "transformer":
        model = _transformer(nn)
        x = torch.randn(24, 6, 16)
    else:
        model = _recurrent(nn)
        x = torch.randn(24, 7, 10)
    y = torch.randint(0, 5, (24,))
    return model.to(dtype), x.to(dtype), y


def _transformer(nn: Any) -> Any:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.head = nn.Linear(16, 5)

        def forward(self, x: Any) -> Any:
            return self.head(self.encoder(x).mean(1))

    return Net()


def _recurrent(nn: Any) -> Any:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(10, 16, num_layers=2, batch_first=True)
            self.head = nn.Linear(16, 5)

        def forward(self, x: Any) -> Any:
            return self.head(self.lstm(x)[0][:, -1])

    return Net()


class Run:
    """A run of one model: batches are drawn by a generator of the run's own."""

    def __init__(self, torch: Any, kind: str, optimizer: str, dtype: Any) -> None:
        self.torch = torch
        self.model, self.x, self.y = build(torch, kind, dtype)
        options = (
            {"lr": 0.05, "momentum": 0.9}
            if optimizer == "SGD"
            else {"lr": 0.003, "weight_decay": 0.05}
        )
        self.optimizer = getattr(torch.optim, optimizer)(self.model.parameters(), **options)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 200)
        self.generator = torch.Generator().manual_seed(5)

    def steps(self, count: int) -> list[float]:
        """The losses of so many steps."""
        losses = []
        for _ in range(count):
            rows = self.torch.randperm(24, generator=self.generator)[:16]
            self.optimizer.zero_grad()
            loss = self.torch.nn.functional.cross_entropy(self.model(self.x[rows]), self.y[rows])
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()
            losses.append(loss.item())
        return losses

    def state(self) -> dict[str, Any]:
        """Everything that a later run needs to go on."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "generator": self.generator.get_state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Goes on from there."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        self.generator.set_state(state["generator"])
