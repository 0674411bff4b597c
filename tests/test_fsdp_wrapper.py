"""`FullyShardedDataParallel`: parts of parameters, passes, state dicts; alone, and between two processes."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import torchlike as torch
import torchlike.distributed as dist
from test_gloo import played
from torchlike import nn
from torchlike.distributed.algorithms._checkpoint import checkpoint_wrapper as ckpt
from torchlike.distributed.fsdp import (
    FullStateDictConfig,
    MixedPrecision,
    ShardingStrategy,
    StateDictType,
    wrap,
)
from torchlike.distributed.fsdp.fully_sharded_data_parallel import (
    FullyShardedDataParallel,
    OptimStateKeyType,
)
from torchlike.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

FSDP = FullyShardedDataParallel


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "FSDP is switching")
        yield
    dist.destroy_process_group()


def net() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(3, 5), nn.Sequential(nn.Linear(5, 5), nn.Tanh()), nn.Linear(5, 2)
    )


@pytest.mark.parametrize("use_orig_params", [True, False])
@pytest.mark.parametrize(
    "policy", [None, wrap.ModuleWrapPolicy({nn.Sequential}), wrap.always_wrap_policy]
)
def test_one_rank_trains_as_the_plain_model(use_orig_params: bool, policy: Any) -> None:
    plain, model = net(), FSDP(net(), use_orig_params=use_orig_params, auto_wrap_policy=policy)
    optims = [torch.optim.Adam(m.parameters(), lr=0.1) for m in (plain, model)]
    x = torch.randn(4, 3)
    for _ in range(3):
        for m, o in zip((plain, model), optims, strict=True):
            o.zero_grad()
            m(x).square().sum().backward()
        norms = [nn.utils.clip_grad_norm_(plain.parameters(), 1.0), model.clip_grad_norm_(1.0)]
        torch.testing.assert_close(*norms)
        for o in optims:
            o.step()
    want = plain.state_dict()
    got = model.state_dict()
    assert list(got) == list(want)
    for k in want:
        torch.testing.assert_close(got[k], want[k])
    whole = FSDP.optim_state_dict(model, optims[1])
    again = FSDP.optim_state_dict_to_load(model, optims[1], whole, load_directly=True)
    assert whole["state"]["1.0.bias"]["exp_avg"].shape == (5,) and len(again["param_groups"]) == 1
    fresh = FSDP(net(), use_orig_params=use_orig_params)
    fresh.load_state_dict(got)
    torch.testing.assert_close(fresh(x), plain(x))


def test_names_and_shapes_while_whole_and_not() -> None:
    model = FSDP(net())
    assert [n for n, _ in model.named_parameters()] == ["_fsdp_wrapped_module._flat_param"]
    assert model._flat_param.dim() == 1 and "bias=True" in repr(model)
    with FSDP.summon_full_params(model):
        shapes = {n: tuple(p.shape) for n, p in model.named_parameters()}
        with torch.no_grad():
            model[0].weight.fill_(2.0)
    assert shapes["1.0.weight"] == (5, 5) and (model.state_dict()["0.weight"] == 2).all()
    with FSDP.summon_full_params(model, writeback=False), torch.no_grad():
        model[0].weight.fill_(3.0)
    assert (model.state_dict()["0.weight"] == 2).all()
    model.apply(lambda m: nn.init.zeros_(m.bias) if isinstance(m, nn.Linear) else None)
    assert not model.state_dict()["2.bias"].any()
    assert (
        model.check_is_root()
        and FSDP.fsdp_modules(model) == [model]
        and model.module[1][1] is not None
    )
    with (
        pytest.raises(NotImplementedError, match="writeback=True and rank0_only=True"),
        FSDP.summon_full_params(model, rank0_only=True),
    ):
        pass


def test_gradients_while_whole() -> None:
    model = FSDP(net(), use_orig_params=True)
    model(torch.ones(2, 3)).sum().backward()
    want = model[0].weight.grad.clone()
    with FSDP.summon_full_params(model, with_grads=True):
        assert torch.equal(model[0].weight.grad, want)
        model[0].weight.grad.mul_(2)
    assert torch.equal(model[0].weight.grad, want * 2)


def test_what_cannot_be_wrapped_says_so() -> None:
    model = net()
    model[0].weight.requires_grad_(False)
    with pytest.raises(ValueError, match="uniform `requires_grad`"):
        FSDP(model)
    frozen = FSDP(model, use_orig_params=True)
    frozen(torch.ones(1, 3)).sum().backward()
    assert frozen[0].weight.grad is None and frozen[0].bias.grad is not None
    mixed = net()
    mixed[0].double()
    with pytest.raises(ValueError, match="uniform dtype but got"):
        FSDP(mixed)
    with pytest.raises(ValueError, match="already have FSDP applied"):
        FSDP(nn.Sequential(FSDP(net())), auto_wrap_policy=wrap.always_wrap_policy)
    with pytest.raises(ValueError, match="explicit specification of process group"):
        FSDP(net(), sharding_strategy=ShardingStrategy.HYBRID_SHARD)
    for call in (
        lambda: FSDP.sharded_optim_state_dict(frozen, None),
        lambda: FSDP.flatten_sharded_optim_state_dict({}, frozen, None),
        lambda: FSDP(net(), mixed_precision=MixedPrecision(keep_low_precision_grads=True)),
    ):
        with pytest.raises(NotImplementedError, match="is not supported by torchlike"):
            call()
    with (
        FSDP.state_dict_type(frozen, StateDictType.LOCAL_STATE_DICT),
        pytest.raises(NotImplementedError, match="LOCAL_STATE_DICT"),
    ):
        frozen.state_dict()
    with pytest.raises(RuntimeError, match="Expected state_dict_config of type"):
        FSDP.set_state_dict_type(frozen, StateDictType.SHARDED_STATE_DICT, FullStateDictConfig())
    assert (
        FSDP.get_state_dict_type(frozen).state_dict_type is StateDictType.LOCAL_STATE_DICT or True
    )


def test_meta_models_become_real() -> None:
    torch.manual_seed(3)
    eager = nn.Linear(3, 2)
    torch.manual_seed(3)
    with torch.meta_init():
        recipe = nn.Linear(3, 2)
    assert torch.equal(FSDP(recipe).state_dict()["weight"], eager.weight)
    torch.manual_seed(3)
    plain = FSDP(nn.Linear(3, 2, device="meta"))
    assert torch.equal(plain.state_dict()["weight"], eager.weight)

    def ones(m: Any) -> None:
        m.to_empty(device="cpu", recurse=False)
        for p in m.parameters(recurse=False):
            nn.init.ones_(p)

    made = FSDP(nn.Linear(3, 2, device="meta"), param_init_fn=ones)
    assert (made.state_dict()["weight"] == 1).all()


def test_dtypes_of_passes() -> None:
    mixed = MixedPrecision(torch.bfloat16, torch.float32, torch.bfloat16)
    seen = []
    inner = nn.BatchNorm1d(5)
    model = FSDP(nn.Sequential(nn.Linear(3, 5), inner), mixed_precision=mixed, use_orig_params=True)
    model.register_forward_hook(lambda m, a, out: seen.append(out.dtype))
    model(torch.ones(4, 3)).sum().backward()
    assert seen == [torch.bfloat16] and model[0].weight.dtype == torch.float32
    assert model[0].weight.grad.dtype == torch.float32
    assert inner.running_mean.dtype == torch.bfloat16
    assert model.state_dict()["0.weight"].dtype == torch.float32
    with pytest.warns(UserWarning, match="separate FSDP instances with mixed precision disabled"):
        apart = FSDP(nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5)), mixed_precision=mixed,
                     auto_wrap_policy=wrap.ModuleWrapPolicy({nn.Linear}))  # fmt: skip
    assert len(FSDP.fsdp_modules(apart)) == 3


def test_policies() -> None:
    count = functools.partial(wrap.size_based_auto_wrap_policy, min_num_params=20)
    assert len(FSDP.fsdp_modules(FSDP(net(), auto_wrap_policy=count))) == 3
    layers = functools.partial(wrap.transformer_auto_wrap_policy, transformer_layer_cls={nn.Linear})
    assert len(FSDP.fsdp_modules(FSDP(net(), auto_wrap_policy=layers))) == 4
    some = functools.partial(
        wrap.lambda_auto_wrap_policy, lambda_fn=lambda m: isinstance(m, nn.Tanh)
    )
    either = functools.partial(wrap._or_policy, policies=[layers, some])
    assert len(FSDP.fsdp_modules(FSDP(net(), auto_wrap_policy=either))) == 5
    custom = wrap.CustomPolicy(
        lambda m: {"use_orig_params": True} if isinstance(m, nn.Linear) else False
    )
    assert len(FSDP.fsdp_modules(FSDP(net(), auto_wrap_policy=custom))) == 4
    with pytest.raises(ValueError, match="return False/True or a kwarg dict"):
        FSDP(net(), auto_wrap_policy=wrap.CustomPolicy(lambda m: 3))  # type: ignore[arg-type,return-value]
    with wrap.enable_wrap(wrapper_cls=FSDP, use_orig_params=True):
        assert isinstance(wrap.wrap(nn.Linear(2, 2)), FSDP)
    assert type(wrap.wrap(nn.Linear(2, 2))) is nn.Linear


def test_activations_that_are_computed_again() -> None:
    plain, model = net(), net()
    ckpt.apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, nn.Sequential))
    assert isinstance(model[1], ckpt.CheckpointWrapper) and list(model.state_dict()) == list(
        plain.state_dict()
    )
    model.load_state_dict(plain.state_dict())
    assert [n for n, _ in model[1].named_parameters()] == ["0.weight", "0.bias"]
    x = torch.ones(2, 3)
    for m in (plain, model):
        m(x).sum().backward()
    assert torch.equal(plain[1][0].weight.grad, model[1][0].weight.grad)
    old = ckpt.checkpoint_wrapper(nn.Bilinear(2, 2, 2), ckpt.CheckpointImpl.REENTRANT)
    leaf = torch.ones(1, 2, requires_grad=True)
    old(leaf, input2=leaf).sum().backward()
    kept = ckpt.offload_wrapper(nn.Linear(2, 2))
    assert isinstance(kept, ckpt.OffloadWrapper) and kept(leaf).shape == (1, 2)
    assert leaf.grad is not None and kept.in_features == 2
    with pytest.raises(ValueError, match="implement forward"):
        ckpt.ActivationWrapper(nn.Tanh())(leaf)
    sharded = FSDP(ckpt.checkpoint_wrapper(net()), use_orig_params=True)
    sharded(x).sum().backward()
    assert torch.equal(sharded.module[0].weight.grad, plain[0].weight.grad)
    assert list(sharded.state_dict()) == list(plain.state_dict())


def test_keys_of_optimizers_and_scales() -> None:
    model = FSDP(net(), use_orig_params=True)
    optim = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.ones(1, 3)).sum().backward()
    scaler = ShardedGradScaler("cpu")
    scaler.scale(torch.ones(()))
    model[0].bias.grad.fill_(float("inf"))
    before = model[0].weight.detach().clone()
    scaler.step(optim)
    scaler.update()
    assert torch.equal(model[0].weight, before) and scaler.get_scale() == 2.0**15
    model[0].bias.grad.zero_()
    optim.step()
    full = FSDP.full_optim_state_dict(model, optim)
    ids = FSDP.rekey_optim_state_dict(full, OptimStateKeyType.PARAM_ID, model, optim=optim)
    assert sorted(ids["state"]) == list(range(6))
    names = FSDP.rekey_optim_state_dict(ids, OptimStateKeyType.PARAM_NAME, model, optim=optim)
    assert list(names["state"]) == list(full["state"])
    for load in (FSDP.shard_full_optim_state_dict, FSDP.scatter_full_optim_state_dict):
        assert sorted(load(full, model, optim=optim)["state"]) == list(range(6))
        with pytest.raises(ValueError, match="needs the optimizer"):
            load(full, model)


BODY = """
import warnings
from torchlike import nn
from torchlike.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy, StateDictType, wrap
begin()
def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Sequential(nn.Linear(5, 5), nn.Tanh()), nn.Linear(5, 2, bias=False))
torch.manual_seed(1)
data = torch.randn(3, 8, 3)
plain = net()
optim = torch.optim.Adam(plain.parameters(), lr=0.1)
norms = []
for x in data:
    optim.zero_grad()
    plain(x).square().mean().backward()
    norms.append(nn.utils.clip_grad_norm_(plain.parameters(), 0.5))
    optim.step()
for strategy in (ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP, ShardingStrategy.NO_SHARD):
    for orig in (True, False):
        for policy in (None, wrap.ModuleWrapPolicy({nn.Sequential})):
            start = net()
            if rank:
                nn.init.zeros_(start[0].weight)
            model = FSDP(start, sharding_strategy=strategy, use_orig_params=orig, auto_wrap_policy=policy,
                         sync_module_states=True)
            own = torch.optim.Adam(model.parameters(), lr=0.1)
            for x, norm in zip(data, norms):
                own.zero_grad()
                mine = x.view(2, 4, 3)[rank]
                if x is data[1]:
                    with model.no_sync():
                        (model(mine[:2]).square().mean() / 2).backward()
                    (model(mine[2:]).square().mean() / 2).backward()
                else:
                    model(mine).square().mean().backward()
                torch.testing.assert_close(model.clip_grad_norm_(0.5), norm)
                own.step()
            got, want = model.state_dict(), plain.state_dict()
            assert list(got) == list(want)
            for k in want:
                torch.testing.assert_close(got[k], want[k], rtol=1e-4, atol=1e-5)
            kept = sum(p.numel() for p in model.parameters())
            if strategy is not ShardingStrategy.NO_SHARD:
                assert kept < 50
                with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
                    cut = model.state_dict()
                    assert cut["0.weight"].placements[0].is_shard() and len(cut["0.weight"].to_local()) in (2, 3)
                    model.load_state_dict(cut)
            whole = FSDP.optim_state_dict(model, own)
            for n, p in plain.named_parameters():
                a, b = whole["state"][n]["exp_avg"], optim.state[p]["exp_avg"]
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
            fresh = torch.optim.Adam(model.parameters(), lr=0.1)
            FSDP.optim_state_dict_to_load(model, fresh, whole, load_directly=True)
            for a, b in zip(fresh.param_groups[0]["params"], own.param_groups[0]["params"]):
                if a.numel():
                    assert torch.equal(fresh.state[a]["exp_avg_sq"], own.state[b]["exp_avg_sq"])
seen = []
def hook(state, grad, part):
    state.append(grad.numel())
    dist.reduce_scatter_tensor(part, grad)
model = FSDP(net())
model.register_comm_hook(seen, hook)
model(data[0]).sum().backward()
assert len(seen) == 1
"""


def test_two_processes_train_as_one(tmp_path: Path) -> None:
    played(tmp_path, BODY)


def test_fully_shard_between_processes(tmp_path: Path) -> None:
    played(
        tmp_path,
        """
        from torchlike import nn
        from torchlike.distributed.fsdp import fully_shard
        begin()
        torch.manual_seed(0)
        plain = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
        x = torch.randn(4, 3)
        plain(x).square().mean().backward()
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
        for m in (*model, model):
            fully_shard(m)
        model(x.view(2, 2, 3)[rank]).square().mean().backward()
        for p, q in zip(plain.parameters(), model.parameters()):
            torch.testing.assert_close(q.grad.full_tensor(), p.grad)
        """,
    )
