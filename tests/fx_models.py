"""Models that the tests of `torchlike.fx` trace."""

import torchlike as torch
from torchlike import fx, nn


def wrapped(x, y):
    return x + y


fx.wrap("wrapped")
fx.wrap("len")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.seq = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.ReLU())
        self.w = nn.Parameter(torch.ones(4))
        self.register_buffer("b", torch.arange(4.0))
        self.plain = torch.ones(4)

    def forward(self, x, y=None):
        z = self.seq(self.lin(x)) * self.w + self.b
        return wrapped(z, x * len(x.shape)) + self.plain


class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.lin, self.norm, self.drop = nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout(0.3)

    def forward(self, x):
        return self.drop(self.norm(self.lin(self.bn(self.conv(x)).mean((2, 3)))))


def body(gm):
    """The lines of the generated function, without what is let go."""
    code = gm if isinstance(gm, str) else gm.code
    lines = code.replace("torchlike.", "torch.").strip().split("\n")
    return [line.strip().partition(";  ")[0] for line in lines]
