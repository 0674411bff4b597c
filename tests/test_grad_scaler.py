"""Scaling of losses: taking the scale out of gradients, skipping steps, and choosing the next scale."""

from __future__ import annotations

import pickle

import pytest

import torchlike as torch
import torchlike.nn.functional as F
from torchlike import nn
from torchlike.amp import GradScaler
from torchlike.amp.grad_scaler import OptState

BF16, F16, F32, F64 = torch.bfloat16, torch.float16, torch.float32, torch.float64


@pytest.mark.parametrize("dtype", [F32, F64, BF16, F16])
@pytest.mark.parametrize("size", [3, 100_000])
def test_unscaling_multiplies_and_finds_what_is_not_finite(dtype, size):
    for bad in (None, float("inf"), float("-inf"), float("nan")):
        grads = [torch.full((size,), 4.0, dtype=dtype), torch.ones(4, 4, dtype=dtype).t()[::2]]
        if bad is not None:
            grads[0][size - 1] = bad
        found = torch.zeros(1)
        torch._amp_foreach_non_finite_check_and_unscale_(grads, found, torch.tensor(0.25))
        assert found.item() == (bad is not None)
        assert grads[0][0].item() == 1.0
        assert torch.equal(grads[1], torch.full((2, 4), 0.25, dtype=dtype))


def test_unscaling_refuses():
    unscale, grads = torch._amp_foreach_non_finite_check_and_unscale_, [torch.ones(2)]
    with pytest.raises(RuntimeError, match="inv_scale must be a 1-element tensor"):
        unscale(grads, torch.zeros(1), torch.ones(2))
    with pytest.raises(RuntimeError, match="found_inf must be a float tensor"):
        unscale(grads, torch.zeros(1, dtype=F64), torch.ones(1))
    with pytest.raises(NotImplementedError, match="not implemented for 'Long'"):
        unscale([torch.ones(2, dtype=torch.int64)], torch.zeros(1), torch.ones(1))
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        unscale([torch.ones(1).expand(3)], torch.zeros(1), torch.ones(1))
    meta = torch.ones(2, device="meta")
    assert unscale([meta], meta[:1].clone(), meta[:1].clone()) is None


@pytest.mark.parametrize(
    ("scale", "tracker", "found", "due", "left"),
    [(8.0, 0, 0.0, 8.0, 1), (8.0, 1, 0.0, 16.0, 0), (8.0, 1, 1.0, 4.0, 0), (3e38, 1, 0.0, 3e38, 0)],
)
def test_the_next_scale(scale, tracker, found, due, left):
    s, t = torch.tensor([scale]), torch.tensor([tracker], dtype=torch.int32)
    assert torch._amp_update_scale_(s, t, torch.tensor([found]), 2.0, 0.5, 2) is s
    assert (s, t.tolist()) == (torch.tensor([due]), [left])
    with pytest.raises(RuntimeError, match="growth_tracker must be an int tensor"):
        torch._amp_update_scale_(s, t.long(), s, 2.0, 0.5, 2)


def leaf(*values, **options):
    return torch.tensor(values, requires_grad=True, **options)


def test_a_scaler_grows_skips_and_backs_off():
    s, x = GradScaler("cpu", init_scale=8.0, growth_interval=2), leaf(1.0, 2.0)
    o = torch.optim.SGD([x], lr=0.1)
    scales = []
    for _ in range(4):
        o.zero_grad()
        s.scale((x * x).sum()).backward()
        s.step(o)
        s.update()
        scales.append(s.get_scale())
    assert scales == [8.0, 16.0, 16.0, 32.0]
    assert [round(v, 4) for v in x.tolist()] == [0.4096, 0.8192]
    before = x.tolist()
    o.zero_grad()
    s.scale((x * float("inf")).sum()).backward()
    assert s.step(o) is None
    s.update()
    assert (x.tolist(), s.get_scale()) == (before, 16.0)


@pytest.mark.parametrize(
    "make", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad]
)
@pytest.mark.parametrize("clipped", [False, True])
def test_fused_steps_take_the_scale_out_themselves(make, clipped):
    ends = []
    for fused in (False, True):
        x = leaf(1.0, 2.0)
        o = make([x], lr=0.1, fused=fused)
        s = GradScaler("cpu", init_scale=8.0)
        for factor in (1.0, float("inf"), 2.0):
            o.zero_grad()
            s.scale((x * x * factor).sum()).backward()
            if clipped:
                s.unscale_(o)
            s.step(o)
            s.update()
        assert s.get_scale() == 4.0
        ends.append(x.tolist())
    assert ends[0] == pytest.approx(ends[1], rel=1e-6)


def test_scalers_refuse_what_is_out_of_order():
    s, x = GradScaler("cpu"), leaf(1.0)
    o = torch.optim.SGD([x], lr=0.1)
    for name, call in (
        ("step", lambda: s.step(o)),
        ("update", s.update),
        ("unscale_", lambda: s.unscale_(o)),
    ):
        with pytest.raises(AssertionError, match=f"Attempted {name} but _scale is None."):
            call()
    with pytest.raises(ValueError, match="outputs must be a Tensor or an iterable of Tensors"):
        s.scale(5)
    s.scale(x.sum()).backward()
    with pytest.raises(AssertionError, match="No inf checks were recorded prior to update"):
        s.update()
    s.unscale_(o)
    assert s._per_optimizer_states[id(o)]["stage"] is OptState.UNSCALED
    with pytest.raises(RuntimeError, match="unscale_\\(\\) has already been called"):
        s.unscale_(o)
    with pytest.raises(RuntimeError, match="Closure use is not currently supported"):
        s.step(o, closure=lambda: None)
    with pytest.raises(AssertionError, match="may only be pickled at the beginning"):
        pickle.dumps(s)
    s.step(o)
    with pytest.raises(RuntimeError, match="step\\(\\) has already been called"):
        s.step(o)
    with pytest.raises(RuntimeError, match="unscale_\\(\\) is being called after step"):
        s.unscale_(o)
    s.update(4.0)
    assert s.get_scale() == 4.0
    s.update(torch.tensor(2.0))
    assert s.get_scale() == 2.0
    with pytest.raises(AssertionError, match="new_scale should be a float or a 1-element"):
        s.update(torch.ones(2))
    half = leaf(1.0, dtype=F16)
    o = torch.optim.SGD([half], lr=0.1)
    s.scale(half.sum()).backward()
    with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients"):
        s.unscale_(o)
    for options in ({"growth_factor": 1.0}, {"backoff_factor": 1.0}):
        with pytest.raises(AssertionError, match="factor must be"):
            GradScaler("cpu", **options)


def test_scalers_scale_nested_outputs_and_keep_their_state():
    s = GradScaler("cpu", init_scale=4.0, growth_factor=3.0, backoff_factor=0.25, growth_interval=7)
    a, (b,) = s.scale([torch.ones(1), (torch.ones(2),)])
    assert (a.tolist(), b.tolist()) == ([4.0], [4.0, 4.0])
    state = s.state_dict()
    assert state == {
        "scale": 4.0, "growth_factor": 3.0, "backoff_factor": 0.25, "growth_interval": 7, "_growth_tracker": 0,
    }  # fmt: skip
    state["_growth_tracker"] = 5
    other = GradScaler("cpu")
    other.load_state_dict(state)
    assert other.state_dict() == state
    other.scale(torch.ones(1))
    other.load_state_dict({**state, "scale": 2.0})
    assert other.get_scale() == 2.0
    again = pickle.loads(pickle.dumps(other))
    assert again.state_dict() == other.state_dict()
    other.set_growth_factor(5.0)
    other.set_backoff_factor(0.1)
    other.set_growth_interval(9)
    found = (other.get_growth_factor(), other.get_backoff_factor(), other.get_growth_interval())
    assert found == (5.0, 0.1, 9)
    with pytest.raises(RuntimeError, match="The source state dict is empty"):
        other.load_state_dict({})
    off = GradScaler("cpu", enabled=False)
    one = torch.ones(1)
    assert off.scale(one) is one
    assert (off.state_dict(), off.get_scale(), off.is_enabled()) == ({}, 1.0, False)
    off.update()
    off.load_state_dict({})
    x = leaf(1.0)
    o = torch.optim.SGD([x], lr=0.5)
    x.sum().backward()
    off.unscale_(o)
    off.step(o)
    assert x.item() == 0.5


def test_scaled_training_in_low_precision_goes_as_without():
    def train(low):
        torch.manual_seed(0)
        m = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
        x = torch.randn(64, 4)
        y = x.sum(1, keepdim=True)
        o, s = torch.optim.Adam(m.parameters(), lr=0.01), GradScaler("cpu")
        for _ in range(40):
            o.zero_grad()
            with torch.autocast("cpu", enabled=low):
                loss = F.mse_loss(m(x), y)
            assert loss.dtype == F32
            s.scale(loss).backward()
            s.step(o)
            s.update()
        return loss.item()

    plain, mixed = train(False), train(True)
    assert mixed == pytest.approx(plain, rel=0.05)


def test_complex_gradients_are_refused_where_they_wait_too():
    def unscale():
        grad = torch.ones(2, dtype=torch.complex64)
        torch._amp_foreach_non_finite_check_and_unscale_([grad], torch.zeros(1), torch.ones(1))

    for place in (torch.device("cpu"), nn.utils.meta_init()):
        with place, pytest.raises(NotImplementedError, match="not implemented for 'ComplexFloat'"):
            unscale()
