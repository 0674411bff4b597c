"""Schedulers: PyTorch's learning rates to the last bit, state dicts, warnings; averages of models."""

from __future__ import annotations

import json
import pathlib

import pytest

import optim_cases
import torchlike as torch
from torchlike import nn, optim
from torchlike.optim import lr_scheduler as sched
from torchlike.optim import swa_utils as swa

RECORDED = json.loads((pathlib.Path(__file__).parent / "data/optim.json").read_text())["schedules"]


def sgd(lr=0.5):
    return optim.SGD([nn.Parameter(torch.ones(2))], lr=lr, momentum=0.9)


@pytest.mark.parametrize("name", list(optim_cases.SCHEDULES))
def test_rates_are_pytorchs(name):
    rates = optim_cases.rates(torch, name)
    want, last = RECORDED[name]
    assert rates[-2:] == last
    assert optim_cases.digest(rates) == want


@pytest.mark.parametrize("name", list(optim_cases.SCHEDULES))
def test_state_dicts_continue_a_schedule(name):
    def start():
        o = sgd()
        names = {"S": sched, "o": o, "torch": torch}
        return o, eval(optim_cases.SCHEDULES[name], names)

    def go(o, s, n):
        rates = []
        for _ in range(n):
            o.step()
            s.step()
            rates.append(s.get_last_lr())
        return rates

    o, s = start()
    go(o, s, 9)
    p, t = start()
    p.load_state_dict(o.state_dict())
    t.load_state_dict(s.state_dict())
    assert go(o, s, 12) == go(p, t, 12)


def test_a_plateau_lowers_the_rate():
    o = sgd()
    s = sched.ReduceLROnPlateau(o, factor=0.5, patience=1, cooldown=1, min_lr=0.1)
    rates = []
    for loss in (3.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0):
        s.step(loss)
        rates += s.get_last_lr()
    assert rates == [0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.125, 0.125, 0.125, 0.1]
    t = sched.ReduceLROnPlateau(sgd(), mode="max", threshold_mode="abs")
    t.load_state_dict(s.state_dict())
    assert (t.best, t.mode, t.num_bad_epochs) == (2.0, "min", s.num_bad_epochs)
    for options, text in [
        ({"factor": 1.0}, "Factor should be < 1.0"),
        ({"mode": "up"}, "mode up is unknown"),
        ({"min_lr": [0.1, 0.2]}, "expected 1 min_lrs, got 2"),
    ]:
        with pytest.raises(ValueError, match=text):
            sched.ReduceLROnPlateau(sgd(), **options)


def test_rates_may_be_tensors():
    o = optim.SGD([nn.Parameter(torch.ones(2))], lr=torch.tensor(0.5))
    lr = o.param_groups[0]["lr"]
    s = sched.ExponentialLR(o, 0.5)
    o.step()
    s.step()
    assert o.param_groups[0]["lr"] is lr and lr == 0.25


def test_the_order_of_calls_is_watched():
    s = sched.StepLR(sgd(), 3)
    with pytest.warns(UserWarning, match=r"lr_scheduler.step\(\)` before `optimizer.step"):
        s.step()
    with pytest.warns(UserWarning, match="get_last_lr"):
        s.get_lr()
    with pytest.warns(UserWarning, match="epoch parameter"):
        s.step(6)
    assert s.get_last_lr() == [0.5 * 0.1**2]
    o = sgd()
    s = sched.ConstantLR(o)
    o.step = lambda: None
    with pytest.warns(UserWarning, match="has been overridden"):
        s.step()


def test_refused_schedules():
    o = sgd()
    cases = [
        (lambda: sched.LRScheduler(3), TypeError, "int is not an Optimizer"),
        (lambda: sched.LRScheduler(o), NotImplementedError, None),
        (lambda: sched.LambdaLR(o, [len, len]), ValueError, "Expected 1 lr_lambdas, but got 2"),
        (lambda: sched.MultiplicativeLR(o, 3), TypeError, "should be a function, but got int"),
        (lambda: sched.LinearLR(o, start_factor=2), ValueError, "Starting multiplicative factor"),
        (lambda: sched.SequentialLR(o, [], []), ValueError, "at least one scheduler, but"),
        (lambda: sched.ChainedScheduler([]), ValueError, "scheduler to be chained"),
        (lambda: sched.OneCycleLR(o, 0.1), ValueError, "either total_steps OR"),
        (lambda: sched.CyclicLR(o, 0.1, 0.2, mode="no"), ValueError, "mode is invalid"),
        (lambda: sched.CosineAnnealingWarmRestarts(o, 0), ValueError, "positive integer T_0"),
        (lambda: sched.StepLR(sgd(), 3, last_epoch=2), KeyError, "initial_lr"),
    ]
    for make, error, text in cases:
        with pytest.raises(error, match=text):
            make()


def filled(value):
    layer = nn.Linear(2, 1)
    with torch.no_grad():
        for p in layer.parameters():
            p.fill_(value)
    return layer


@pytest.mark.parametrize(
    ("options", "want"),
    [
        ({}, 2.0),
        ({"avg_fn": swa.get_swa_avg_fn()}, 2.0),
        ({"multi_avg_fn": swa.get_swa_multi_avg_fn()}, 2.0),
        ({"avg_fn": swa.get_ema_avg_fn(0.5)}, 2.25),
        ({"multi_avg_fn": swa.get_ema_multi_avg_fn(0.5)}, 2.25),
    ],
)
def test_averages_of_models(options, want):
    averaged = swa.AveragedModel(filled(0.0), **options)
    for value in (1.0, 2.0, 3.0):
        averaged.update_parameters(filled(value))
    assert averaged.n_averaged == 3 and averaged.module.weight.tolist() == [[want, want]]
    assert averaged(torch.ones(1, 2)).shape == (1, 1)


def test_statistics_are_computed_anew():
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 1)).eval()
    swa.update_bn([(torch.ones(4, 2), None), (torch.full((4, 2), 3.0), None)], model)
    assert model[0].running_mean.tolist() == [2.0, 2.0] and model[0].momentum == 0.1
    assert not model.training
    with pytest.raises(ValueError, match="Invalid decay value 2"):
        swa.get_ema_avg_fn(2)
    with pytest.raises(ValueError, match="anneal_strategy must be one of"):
        swa.SWALR(sgd(), 0.1, anneal_strategy="no")
