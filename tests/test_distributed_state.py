"""State dicts of models and optimizers under plain names: what is missing in them is said."""

from __future__ import annotations

from typing import Any

import pytest

import torchlike as torch
from torchlike.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torchlike.nn import Linear, Sequential


def trained(kind: Any = torch.optim.Adam) -> tuple[Any, Any]:
    model = Sequential(Linear(2, 2), Linear(2, 2))
    optimizer = kind(model.parameters(), lr=0.1)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    return model, optimizer


@pytest.mark.parametrize("flat", [False, True])
def test_a_state_that_is_missing_is_an_error_unless_it_may_be(flat: bool) -> None:
    options = StateDictOptions(flatten_optimizer_state_dict=flat)
    state = get_optimizer_state_dict(*trained(), options=options)
    if flat:
        state = {k: v for k, v in state.items() if not k.startswith("state.1.bias")}
    else:
        del state["state"]["1.bias"]
    with pytest.raises(RuntimeError, match=r"Missing optimizer state for parameter '1\.bias'"):
        set_optimizer_state_dict(*trained(), state, options=options)
    options.strict = False
    model, optimizer = trained()
    set_optimizer_state_dict(model, optimizer, state, options=options)
    assert sorted(optimizer.state_dict()["state"]) == [0, 1, 2]


def test_optimizers_without_states_need_none() -> None:
    model, optimizer = trained(torch.optim.SGD)
    set_optimizer_state_dict(model, optimizer, get_optimizer_state_dict(model, optimizer))


def test_nothing_is_no_state() -> None:
    model, optimizer = trained()
    with pytest.raises(RuntimeError, match=r"model state_dict is empty\.rank = dist"):
        set_model_state_dict(model, {})
    with pytest.raises(RuntimeError, match="but optim state_dict is empty"):
        set_optimizer_state_dict(model, optimizer, {})
    with pytest.raises(ValueError, match="a different number of parameter groups"):
        set_optimizer_state_dict(model, optimizer, {"state": {}, "param_groups": []})
    options = StateDictOptions(broadcast_from_rank0=True)
    with pytest.raises(ValueError, match="full_state_dict must be True"):
        get_model_state_dict(model, options=options)
