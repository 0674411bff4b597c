"""Generators of GPUs: draws by them, their states, and what keeps and restores these."""

import pickle

import pytest

import torchlike as torch
from torchlike import nn
from torchlike.utils.checkpoint import checkpoint

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.filterwarnings("ignore:.*has no CUDA kernel yet"),
    pytest.mark.skipif(
        not torch.cuda.is_available(), reason="torchlike.cuda.is_available() is False"
    ),
]


def _seeded(seed):
    return torch.Generator("cuda").manual_seed(seed)


def _empty(*shape):
    return torch.empty(shape, device="cuda")


CHANCES = [0.1, 0.9, 0.4, 0.6] * 20
DRAWS = {
    "rand": lambda g: torch.rand(30, device="cuda", generator=g),
    "randint": lambda g: torch.randint(0, 99, (30,), device="cuda", generator=g),
    "randperm": lambda g: torch.randperm(50, device="cuda", generator=g),
    "normal": lambda g: torch.normal(_empty(9).zero_(), _empty(9).fill_(1.0), generator=g),
    "exponential": lambda g: _empty(30).exponential_(generator=g),
    "bernoulli": lambda g: torch.bernoulli(torch.tensor(CHANCES).cuda(), generator=g),
    "multinomial": lambda g: torch.multinomial(torch.tensor(CHANCES).cuda(), 40, generator=g),
    "repeated": lambda g: torch.multinomial(torch.tensor(CHANCES).cuda(), 90, True, generator=g),
    "poisson": lambda g: torch.poisson(torch.tensor(CHANCES).cuda() * 9, generator=g),
    "kaiming": lambda g: nn.init.kaiming_uniform_(_empty(5, 6), generator=g),
}


@pytest.mark.parametrize("draw", DRAWS)
def test_draws_follow_their_generator_alone(draw):
    draw = DRAWS[draw]
    assert torch.equal(draw(_seeded(1)), draw(_seeded(1)))
    assert not torch.equal(draw(_seeded(1)), draw(_seeded(2)))
    g = _seeded(1)
    assert torch.equal(draw(g), draw(_seeded(1)))
    assert not torch.equal(draw(g), draw(_seeded(1))), "the generator did not move"
    with pytest.raises(RuntimeError, match="Expected a 'cuda' device type for generator but found"):
        draw(torch.Generator())


def test_the_host_does_not_draw_by_a_gpus_generator():
    with pytest.raises(RuntimeError, match="Expected a 'cpu' device type for generator but found"):
        torch.rand(2, generator=_seeded(1))


def test_states_are_sixteen_bytes():
    g = _seeded(5)
    assert g.device == torch.device("cuda", torch.cuda.current_device())
    assert g.initial_seed() == 5
    torch.rand(3, device="cuda", generator=g)
    state = g.get_state()
    assert state.tolist() == [5, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0]
    want = torch.rand(7, device="cuda", generator=g)
    for other in (torch.Generator("cuda").set_state(state), pickle.loads(pickle.dumps(g))):
        other.set_state(state)
        assert torch.equal(torch.rand(7, device="cuda", generator=other), want)
    with pytest.raises(RuntimeError, match="RNG state is wrong size"):
        g.set_state(state[:3])
    with pytest.raises(RuntimeError, match="multiple of 4"):
        g.set_state(torch.tensor([0] * 8 + [1] + [0] * 7, dtype=torch.uint8))


def test_the_default_generator_can_be_asked_and_set():
    torch.manual_seed(3)
    assert torch.cuda.initial_seed() == 3
    state = torch.cuda.get_rng_state()
    first = torch.randn(3, device="cuda")
    torch.cuda.set_rng_state(state)
    assert torch.equal(torch.randn(3, device="cuda"), first)
    torch.cuda.set_rng_state_all(torch.cuda.get_rng_state_all())
    torch.cuda.default_generators[0].manual_seed(3)
    assert torch.equal(torch.randn(3, device="cuda:0"), first)
    with torch.random.fork_rng(range(torch.cuda.device_count())):
        torch.randn(3, device="cuda")
        torch.rand(3)
    after = torch.randn(3, device="cuda"), torch.rand(3)
    torch.manual_seed(3)
    torch.randn(3, device="cuda")
    assert torch.equal(torch.randn(3, device="cuda"), after[0])
    assert torch.equal(torch.rand(3), after[1])


@pytest.mark.parametrize(
    "draw",
    [
        lambda: torch.randperm(50, device="cuda"),
        lambda: torch.poisson(torch.full((40,), 9.0, device="cuda")),
        lambda: torch.nn.functional.rrelu(torch.full((40,), -1.0, device="cuda"), training=True),
    ],
    ids=["randperm", "poisson", "rrelu"],
)
def test_what_the_host_draws_for_a_gpu_follows_the_gpus_generator(draw):
    before, state = torch.get_rng_state(), torch.cuda.get_rng_state()
    first, second = draw(), draw()
    assert not torch.equal(first, second)
    assert torch.equal(torch.get_rng_state(), before)
    torch.cuda.set_rng_state(state)
    assert torch.equal(draw(), first)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpoints_drop_the_same_elements_again(use_reentrant):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 8)).cuda()
    x = torch.ones(4, 8, device="cuda", requires_grad=True)
    torch.manual_seed(1)
    out = checkpoint(model, x, use_reentrant=use_reentrant)
    torch.rand(5, device="cuda")
    out.sum().backward()
    got, x.grad = x.grad, None
    torch.manual_seed(1)
    model(x).sum().backward()
    assert torch.equal(got, x.grad)
