"""Thirty small models in PyTorch's words, for `archives.py`: each with inputs at two batch sizes. `torch` is
whatever the process has."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 4)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        return self.b(self.drop(F.gelu(self.a(x))))


class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Conv2d(3, 6, 3, padding=1)
        self.n = nn.BatchNorm2d(6)
        self.p = nn.MaxPool2d(2)
        self.h = nn.AdaptiveAvgPool2d((1, 1))
        self.l = nn.Linear(6, 5)

    def forward(self, x):
        x = self.p(F.relu(self.n(self.c(x))))
        return self.l(torch.flatten(self.h(x), 1))


class Block(nn.Module):
    def __init__(self, i: int, o: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(i, o, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(o)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(o, o, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(o)
        self.downsample = None
        if stride != 1 or i != o:
            self.downsample = nn.Sequential(
                nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o)
            )

    def forward(self, x: Tensor) -> Tensor:
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 7, 2, 3, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        self.layers = nn.Sequential(Block(8, 8, 1), Block(8, 16, 2), Block(16, 16, 1))
        self.fc = nn.Linear(16, 10)

    def _forward_impl(self, x: Tensor) -> Tensor:
        x = self.layers(self.stem(x))
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(x, (1, 1)), 1))

    def forward(self, x: Tensor) -> Tensor:
        return self._forward_impl(x)


class Embed(nn.Module):
    def __init__(self):
        super().__init__()
        self.e = nn.Embedding(20, 8, padding_idx=0)
        self.n = nn.LayerNorm(8)
        self.l = nn.Linear(8, 20, bias=False)

    def forward(self, ids):
        return F.log_softmax(self.l(self.n(self.e(ids))), dim=-1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(16, 16) for _ in range(4))
        self.heads = 4

    def split(self, x: Tensor) -> Tensor:
        b, n, d = x.shape
        return x.view(b, n, self.heads, d // self.heads).transpose(1, 2)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        scores = q @ k.transpose(-2, -1) / math.sqrt(4.0)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, float("-inf"))
        out = (scores.softmax(-1) @ v).transpose(1, 2).reshape(x.size(0), x.size(1), -1)
        return self.o(out)


class Causal(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.o = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).split(16, dim=2)
        q, k, v = (
            (t.view(b, n, 2, 8).transpose(1, 2) for t in (q, k, v))
            if False
            else (
                q.view(b, n, 2, 8).transpose(1, 2),
                k.view(b, n, 2, 8).transpose(1, 2),
                v.view(b, n, 2, 8).transpose(1, 2),
            )
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).reshape(b, n, d))


class RmsNorm(nn.Module):
    def __init__(self, d: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))
        self.eps = 1e-6

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = RmsNorm(16), RmsNorm(16)
        self.att = Attention()
        self.w1, self.w2, self.w3 = (
            nn.Linear(16, 32, bias=False),
            nn.Linear(32, 16, bias=False),
            nn.Linear(16, 32, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.att(self.n1(x))
        h = self.n2(x)
        return x + self.w2(F.silu(self.w1(h)) * self.w3(h))


class Loop(nn.Module):
    def __init__(self):
        super().__init__()
        self.steps = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])

    def forward(self, x: Tensor) -> list[Tensor]:
        found: list[Tensor] = []
        for i, step in enumerate(self.steps):
            x = torch.tanh(step(x)) * float(i + 1)
            found.append(x)
        return found


class Counting(nn.Module):
    def forward(self, x: Tensor, n: int = 3) -> Tensor:
        total = torch.zeros_like(x)
        i = 0
        while i < n:
            if i % 2 == 0:
                total = total + x * i
            else:
                total -= x
            i += 1
        return total


class Dicts(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleDict({"a": nn.Linear(8, 2), "b": nn.Linear(8, 3)})

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        out: dict[str, Tensor] = {}
        for name, head in self.heads.items():
            out[name] = head(x)
        return out


class Pair(NamedTuple):
    mean: Tensor
    spread: Tensor


class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        p = Pair(self.l(x).mean(-1), x.std(-1))
        return p.mean + p.spread


class Depthwise(nn.Module):
    def __init__(self):
        super().__init__()
        self.d = nn.Conv2d(4, 4, 3, padding=1, groups=4)
        self.p = nn.Conv2d(4, 8, 1)
        self.act = nn.Hardswish()
        self.se = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(8, 2, 1),
            nn.ReLU(),
            nn.Conv2d(2, 8, 1),
            nn.Hardsigmoid(),
        )

    def forward(self, x):
        y = self.act(self.p(self.d(x)))
        return y * self.se(y)


class Unet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Conv2d(3, 8, 3, 2, 1)
        self.up = nn.ConvTranspose2d(8, 4, 2, 2)
        self.out = nn.Conv2d(7, 2, 1)

    def forward(self, x):
        y = self.up(F.leaky_relu(self.down(x), 0.1))
        return torch.sigmoid(self.out(torch.cat([x, y], dim=1)))


class Upsampling(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Conv2d(3, 3, 1)

    def forward(self, x):
        return F.interpolate(self.c(x), scale_factor=2.0, mode="nearest")


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.r = nn.LSTM(8, 6, num_layers=2, batch_first=True)
        self.l = nn.Linear(6, 3)

    def forward(self, x):
        out, (h, c) = self.r(x)
        return self.l(out[:, -1]) + h[-1].mean() + c.sum()


class Gru(nn.Module):
    def __init__(self):
        super().__init__()
        self.r = nn.GRU(8, 6, bidirectional=True, batch_first=True)

    def forward(self, x):
        out, h = self.r(x)
        return out, h


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 4, 32, 0.0, batch_first=True, norm_first=True)
        self.e = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x):
        return self.e(x)


class Mha(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, x):
        y, _ = self.a(x, x, x)
        return y


class Norms(nn.Module):
    def __init__(self):
        super().__init__()
        self.g, self.i = nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, affine=True)
        self.l = nn.LayerNorm([4, 6, 6])

    def forward(self, x):
        return self.l(self.i(self.g(x)))


class Activations(nn.Module):
    def __init__(self):
        super().__init__()
        self.acts = nn.ModuleList(
            [
                nn.ELU(),
                nn.SELU(),
                nn.SiLU(),
                nn.Mish(),
                nn.Softplus(),
                nn.ReLU6(),
                nn.Hardtanh(),
                nn.GELU("tanh"),
                nn.PReLU(),
                nn.LeakyReLU(0.2),
                nn.Softsign(),
                nn.Tanhshrink(),
                nn.LogSigmoid(),
                nn.Sigmoid(),
                nn.Tanh(),
            ]
        )

    def forward(self, x):
        for act in self.acts:
            x = x + act(x)
        return x


class Pools(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.m, self.g = nn.AvgPool2d(2), nn.MaxPool2d(3, 1, 1), nn.AdaptiveMaxPool2d(2)

    def forward(self, x):
        return self.g(self.m(self.a(x)))


class Indexing(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        a = x[:, 1:, ::2]
        b = x[..., 0].unsqueeze(-1)
        c = torch.where(x > 0, x, torch.zeros_like(x))
        return a.contiguous().sum(dim=(1, 2)), (b.expand(-1, -1, 3) + c[:, :, :3]).permute(0, 2, 1)


class Positions(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.arange(32.0).view(1, 8, 4) / 10)
        self.scale = 2.0

    def forward(self, x: Tensor) -> Tensor:
        n = x.size(1)
        return torch.cat([x * self.scale + self.table[:, :n], torch.ones_like(x)], dim=-1)


class Linalg(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = torch.matmul(x, x.transpose(1, 2))
        y = torch.einsum("bij,bjk->bik", y, y)
        return torch.baddbmm(y, x, x.transpose(1, 2)).clamp(min=-10.0, max=10.0)


class Losses(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.l(x)
        target = y.argmax(dim=1)
        return (
            F.cross_entropy(y, target)
            + F.mse_loss(y, torch.zeros_like(y))
            + F.smooth_l1_loss(y, torch.ones_like(y))
        )


def _gate(x: Tensor, strength: float = 0.5) -> Tensor:
    return x * torch.sigmoid(x * strength)


class Functions(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(8, 8)
        self.names: list[str] = ["one", "two"]

    def forward(self, x: Tensor) -> Tensor:
        for name in self.names:
            if name == "two":
                x = _gate(self.l(x), 0.25)
            else:
                x = _gate(x)
        assert x.dim() == 2, f"two dimensions and not {x.dim()}"
        return x


class Types(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        ids = (x * 10).to(torch.int64).remainder(7)
        hot = F.one_hot(ids, 7).to(dtype=x.dtype)
        idx = torch.arange(x.size(1), device=x.device, dtype=torch.float32)
        return hot.sum(-1) * idx + x.float().double().to(x.dtype)


class Scatter(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        values, order = torch.topk(x, 3, dim=1)
        out = torch.zeros_like(x).scatter(1, order, values)
        return out + torch.gather(x, 1, order).sum(dim=1, keepdim=True) + x.cumsum(dim=1)


class Conv1d(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(4, 8, 3, padding="same"),
            nn.BatchNorm1d(8),
            nn.ReLU(),
            nn.ConvTranspose1d(8, 4, 2, 2),
            nn.Flatten(),
            nn.Linear(4 * 20, 3),
        )

    def forward(self, x):
        return self.net(x)


def _floats(*shape: int):
    return lambda b: (
        torch.arange(b * math.prod(shape))
        .mul(37)
        .remainder(101)
        .mul(0.031)
        .sub(1.5)
        .view(b, *shape),
    )


def _ids(b: int):
    return (torch.arange(b * 6).remainder(20).view(b, 6),)


MODELS = {
    "mlp": (Mlp, _floats(8)), "conv": (Conv, _floats(3, 8, 8)), "resnet": (ResNet, _floats(3, 32, 32)),
    "embed": (Embed, _ids), "attention": (Attention, _floats(6, 16)), "causal": (Causal, _floats(6, 16)),
    "llama": (Llama, _floats(6, 16)), "loop": (Loop, _floats(8)), "counting": (Counting, _floats(8)),
    "dicts": (Dicts, _floats(8)), "named": (Named, _floats(8)), "depthwise": (Depthwise, _floats(4, 8, 8)),
    "unet": (Unet, _floats(3, 8, 8)), "upsampling": (Upsampling, _floats(3, 4, 4)), "lstm": (Lstm, _floats(5, 8)),
    "gru": (Gru, _floats(5, 8)), "encoder": (Encoder, _floats(6, 16)), "mha": (Mha, _floats(6, 16)),
    "norms": (Norms, _floats(4, 6, 6)), "activations": (Activations, _floats(8)), "pools": (Pools, _floats(3, 8, 8)),
    "indexing": (Indexing, _floats(4, 6)), "positions": (Positions, _floats(8, 4)), "linalg": (Linalg, _floats(4, 5)),
    "losses": (Losses, _floats(8)), "functions": (Functions, _floats(8)), "types": (Types, _floats(5)),
    "scatter": (Scatter, _floats(8)), "conv1d": (Conv1d, _floats(4, 10)),
    "identity": (lambda: nn.Sequential(nn.Identity(), nn.Linear(8, 8)), _floats(8)),
}  # fmt: skip
