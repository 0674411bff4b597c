"""Several GPUs: which one is meant, what goes between them, and what must not be mixed."""

import io

import pytest

import torchlike as torch
from torchlike import nn

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="fewer than two GPUs"),
]


@pytest.fixture
def two():
    return torch.arange(4.0, device="cuda:0"), torch.arange(4.0, device="cuda:1")


def test_devices_without_a_number_are_the_current_one():
    def seen():
        made = torch.zeros(1, device="cuda"), torch.ones(1).cuda(), torch.ones(1).to("cuda")
        numbers = {t.device.index for t in made} | {torch.Generator("cuda").device.index}
        return numbers, torch.cuda.current_device()

    assert seen() == ({0}, 0)
    with torch.cuda.device(1):
        assert seen() == ({1}, 1)
        with torch.cuda.device(0):
            assert seen() == ({0}, 0)
    with torch.cuda.device_of(torch.ones(1, device="cuda:1")):
        assert seen() == ({1}, 1)
    torch.cuda.set_device(1)
    try:
        assert seen() == ({1}, 1)
    finally:
        torch.cuda.set_device("cuda:0")
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.cuda.set_device(torch.cuda.device_count())


@pytest.mark.parametrize(
    "call",
    [
        torch.add,
        torch.allclose,
        lambda a, b: torch.cat([a, b]),
        lambda a, b: a.view(2, 2) @ b.view(2, 2),
        lambda a, b: torch.where(a > 1, a, b),
        lambda a, b: a[b.long()],
        lambda a, b: nn.functional.linear(a.view(2, 2), b.view(2, 2)),
        lambda a, b: a + b[0],
    ],
)
def test_devices_are_not_mixed(two, call):
    with pytest.raises(RuntimeError, match="found at least two devices, cuda:0 and cuda:1!"):
        call(*two)


def test_copies_go_between_devices(two):
    a, b = two
    assert torch.equal(a.to("cuda:1"), b)
    assert torch.equal(
        torch.zeros(2, 2, device="cuda:0").copy_(b.view(2, 2).t()).cpu().t(), b.view(2, 2).cpu()
    )
    assert (a.to("cuda:1", torch.int32) + b.int()).tolist() == [0, 2, 4, 6]
    assert torch._neg_view(b).to("cuda:0").tolist() == [-0.0, -1, -2, -3]
    b[:2] = a[2:]
    assert b.tolist() == [2, 3, 2, 3]


def test_gradients_go_back_over_devices(two):
    x = two[0].clone().requires_grad_()
    ((x * 2).to("cuda:1") * two[1]).sum().backward()
    assert x.grad.device == x.device
    assert x.grad.tolist() == [0, 2, 4, 6]


class _Pipeline(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x):
        x = self.first(x.to(self.first.weight.device)).relu()
        return self.second(x.to(self.second.weight.device))


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad])
def test_a_model_on_two_devices_trains_as_on_one(kind, fused):
    losses = []
    for second in ("cpu", "cuda:0", "cuda:1"):
        first = "cpu" if second == "cpu" else "cuda:0"
        model = _Pipeline()
        model.first.to(first), model.second.to(second)
        optimizer = kind(model.parameters(), lr=0.05, fused=fused)
        scaler = torch.amp.GradScaler(first, init_scale=4.0)
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(torch.ones(5, 4)).square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        losses.append(loss.item())
    assert losses[1] == losses[2] == pytest.approx(losses[0], rel=1e-5)


def test_files_name_their_devices(two):
    file = io.BytesIO()
    torch.save(list(two), file)

    def devices(**kwargs):
        file.seek(0)
        return [str(t.device) for t in torch.load(file, **kwargs)]

    assert devices() == ["cuda:0", "cuda:1"]
    assert devices(map_location={"cuda:1": "cuda:0"}) == ["cuda:0", "cuda:0"]
    assert devices(map_location="cuda:1") == ["cuda:1", "cuda:1"]
    assert devices(map_location="cpu") == ["cpu", "cpu"]


def test_random_states_of_all_devices_are_kept_and_that_is_said(monkeypatch):
    monkeypatch.setattr(torch.random, "_told", False)
    torch.manual_seed(1)
    with (
        pytest.warns(UserWarning, match="available devices, and you have used fork_rng without"),
        torch.random.fork_rng(),
    ):
        torch.rand(3, device="cuda:1")
    again = torch.rand(3, device="cuda:1")
    torch.manual_seed(1)
    assert torch.equal(torch.rand(3, device="cuda:1"), again)


def test_each_device_has_its_own_generator_and_memory():
    torch.manual_seed(1)
    first, second = torch.rand(3, device="cuda:0"), torch.rand(3, device="cuda:1")
    assert torch.equal(first.cpu(), second.cpu())
    with torch.cuda.device(1):
        torch.cuda.manual_seed(9)
    assert [torch.cuda.default_generators[i].initial_seed() for i in (0, 1)] == [1, 9]
    before = torch.cuda.memory_allocated(0)
    kept = torch.zeros(1 << 20, device="cuda:1")
    assert torch.cuda.memory_allocated(0) == before
    assert torch.cuda.memory_allocated(1) >= kept.nbytes
