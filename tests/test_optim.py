"""Optimizers: PyTorch's steps, in one call and in many, state that goes to and fro, on meta too."""

from __future__ import annotations

import base64
import copy
import io
import json
import pathlib
import pickle
import warnings

import numpy as np
import pytest

import optim_cases
import torchlike as torch
from torchlike import nn, optim
from torchlike.optim import optimizer as base
from torchlike.utils._python_dispatch import TorchDispatchMode

DATA = pathlib.Path(__file__).parent / "data"
RECORDED = json.loads((DATA / "optim.json").read_text())["steps"]

# Every optimizer whose step one call can make, with options that use all of its state.
WHOLE = [
    ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("SGD", {}),
    ("Adam", {"amsgrad": True, "weight_decay": 0.1}),
    ("AdamW", {"maximize": True}),
    ("Adagrad", {"lr_decay": 0.1, "initial_accumulator_value": 0.5}),
    ("Adadelta", {"weight_decay": 0.1}),
    ("Adamax", {}),
    ("ASGD", {"t0": 2.0, "lambd": 0.1}),
    ("NAdam", {"decoupled_weight_decay": True, "weight_decay": 0.1}),
    ("RAdam", {"betas": (0.9, 0.5)}),
    ("RMSprop", {"centered": True, "momentum": 0.5}),
    ("RMSprop", {"momentum": 0.5}),
    ("Rprop", {}),
]
OTHERS = [("Adafactor", {}), ("Muon", {})]
each = pytest.mark.parametrize(("name", "options"), WHOLE)


class Passes(TorchDispatchMode):
    """A mode that only watches; steps are made operation by operation for it."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def make(*shapes, dtype=torch.float32):
    return [
        nn.Parameter(optim_cases.numbers(torch, shape, i, "float64").to(dtype))
        for i, shape in enumerate(shapes)
    ]


def push(params, k):
    for i, p in enumerate(params):
        p.grad = optim_cases.numbers(torch, tuple(p.shape), k + i, "float64").to(p.dtype)


def steps(optimizer, params, n, start=1):
    for k in range(start, start + n):
        push(params, k)
        optimizer.step()


def plain(state):
    """A state dict with lists of numbers in the place of tensors."""
    if isinstance(state, torch.Tensor):
        state = torch.view_as_real(state.detach()) if state.is_complex() else state.detach()
        return state.to(torch.float64).tolist()
    if isinstance(state, dict):
        return {k: plain(v) for k, v in state.items()}
    return [plain(v) for v in state] if isinstance(state, list | tuple) else state


@pytest.mark.parametrize("case", list(optim_cases.CASES))
def test_steps_end_where_pytorch_ends(case):
    *_, dtype, ulps = optim_cases.CASES[case]
    got = optim_cases.trained(torch, case).numpy()
    want = np.frombuffer(base64.b64decode(RECORDED[case]), dtype=dtype)
    assert np.all(np.abs(got - want) <= ulps * np.spacing(np.abs(want)))


@pytest.mark.parametrize(
    "case", [c for c, (_, options, *_) in optim_cases.CASES.items() if "fused" in options]
)
def test_the_default_step_is_the_fused_one(case):
    assert torch.equal(
        optim_cases.trained(torch, case), optim_cases.trained(torch, case, fused=None)
    )


@pytest.mark.parametrize(("name", "options"), WHOLE + OTHERS)
def test_state_dicts_continue_a_run(name, options):
    shapes = ((4, 3), (3, 2))
    ps = make(*shapes)
    o = getattr(optim, name)(ps, lr=0.05, **options)
    steps(o, ps, 2)
    buffer = io.BytesIO()
    torch.save(o.state_dict(), buffer)
    buffer.seek(0)
    qs = [nn.Parameter(p.detach().clone()) for p in ps]
    q = getattr(optim, name)(qs, lr=9.0)
    q.load_state_dict(torch.load(buffer))
    steps(o, ps, 2, start=3)
    steps(q, qs, 2, start=3)
    assert plain([ps, o.state_dict()]) == plain([qs, q.state_dict()])
    third = pickle.loads(pickle.dumps(copy.deepcopy(o)))
    assert plain(third.state_dict()) == plain(o.state_dict()) and repr(third) == repr(o)


def test_a_run_of_pytorchs_goes_on():
    """`data/optim_state.pt` is what PyTorch saved after two steps, with its parameters after four."""
    saved = torch.load(DATA / "optim_state.pt")
    for name, run in saved.items():
        ps = [nn.Parameter(p) for p in run["params"]]
        o = getattr(optim, name)(ps, lr=9.0)
        o.load_state_dict(run["state"])
        steps(o, ps, 2, start=3)
        for p, want in zip(ps, run["after"], strict=True):
            torch.testing.assert_close(p.detach(), want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("name", "options"), [w for w in WHOLE if w[0] != "ASGD"])
def test_states_appear_on_meta(name, options):
    ps = [nn.Parameter(torch.empty(3, 2, device="meta"))]
    o = getattr(optim, name)(ps, **options)
    ps[0].grad = torch.empty(3, 2, device="meta")
    before = ps[0]._version
    o.step()
    assert ps[0]._version > before
    for entries in o.state.values():
        counts = {"step", "mu_product"}
        assert all(t.is_meta and t.shape == (3, 2) for k, t in entries.items() if k not in counts)
        assert all(not entries[k].is_meta for k in counts & set(entries))
        assert "step" not in entries or entries["step"] == 1.0


def model_and_steps(name, options, defer):
    """Three steps of a small model; deferred, everything is a recipe."""
    torch.manual_seed(0)
    with torch.meta_init() if defer else torch.enable_grad():
        layer = nn.Linear(3, 2)
        o = getattr(optim, name)(layer.parameters(), lr=0.1, **options)
        for _ in range(3):
            o.zero_grad()
            layer(torch.ones(4, 3)).square().sum().backward()
            o.step()
    return layer, o


@pytest.mark.parametrize(("name", "options"), WHOLE)
def test_deferred_steps_become_the_eager_ones(name, options):
    layer, o = model_and_steps(name, options, True)
    eager, eager_o = model_and_steps(name, options, False)
    tensors = [t for entries in o.state.values() for t in entries.values() if t.is_meta]
    assert layer.weight.is_meta and (tensors or name == "SGD")
    for t in (*tensors, *layer.parameters()):
        torch.materialize(t)
    assert plain(o.state_dict()) == plain(eager_o.state_dict())
    assert plain(layer.state_dict()) == plain(eager.state_dict())


def test_recorded_parameters_with_real_counts():
    """Steps outside of `meta_init` on a deferred model: the counts are real, and go on before the replay."""
    ends = []
    for defer in (True, False):
        torch.manual_seed(0)
        with torch.meta_init() if defer else torch.enable_grad():
            p = nn.Parameter(torch.randn(5))
        o = optim.AdamW([p], lr=0.1)
        for _ in range(3):
            p.grad = p.detach() * 2
            o.step()
        if defer:
            assert o.state[p]["step"] == 3.0 and p.is_meta
            torch.materialize(p)
        ends.append(p.tolist())
    assert ends[0] == ends[1]


def test_gradients_through_a_step():
    lr = torch.tensor(0.5, requires_grad=True)
    p = torch.tensor([1.0, 2.0], requires_grad=True).clone()
    p.retain_grad()
    o = optim.SGD([p], lr=lr, differentiable=True)
    p.grad = torch.tensor([3.0, 4.0])
    o.step()
    p.sum().backward()
    assert lr.grad == -7.0
    for name, options in [w for w in WHOLE if w[0] not in ("SGD",)]:
        p = torch.tensor([1.0, 2.0], requires_grad=True)
        q = p.clone()
        q.retain_grad()
        q.grad = p * 3
        getattr(optim, name)([q], differentiable=True, **options).step()
        (g,) = torch.autograd.grad(q.sum(), p)
        assert g.shape == (2,), name
    leaf = make((2,))
    push(leaf, 1)
    o = optim.Adam(leaf, differentiable=True)
    with pytest.raises(RuntimeError, match="leaf Variable"):
        o.step()


def test_hooks_see_steps_and_states():
    (p,) = make((3,))
    o = optim.SGD([p], lr=0.1)
    log = []
    o.register_step_pre_hook(lambda *a: log.append("pre"))
    o.register_step_post_hook(lambda *a: log.append("post"))
    both = [
        base.register_optimizer_step_pre_hook(lambda *a: log.append("all pre")),
        base.register_optimizer_step_post_hook(lambda *a: log.append("all post")),
    ]
    push([p], 1)
    o.step()
    assert log == ["all pre", "pre", "post", "all post"]
    for handle in both:
        handle.remove()
    o.register_state_dict_pre_hook(lambda o: log.append("make"))
    o.register_state_dict_post_hook(lambda o, d: {**d, "more": 1})
    o.register_load_state_dict_pre_hook(lambda o, d: log.append(sorted(d)), prepend=True)
    o.register_load_state_dict_post_hook(lambda o: log.append("loaded"))
    o.load_state_dict(o.state_dict())
    assert log[4:] == ["make", ["more", "param_groups", "state"], "loaded"]
    o.register_step_pre_hook(lambda o, args, kwargs: 5)
    with pytest.raises(RuntimeError, match="must return None or a tuple"):
        o.step()


def test_groups_names_and_closures():
    a, b = make((2,), (3,))
    o = optim.Adam([{"params": a, "lr": 0.5}], lr=0.1)
    o.add_param_group({"params": [b]})
    assert [g["lr"] for g in o.param_groups] == [0.5, 0.1]
    assert [g["params"] for g in o.state_dict()["param_groups"]] == [[0], [1]]
    for wrong, text in [
        ({"params": [a]}, "more than one parameter group"),
        ({"params": {a}}, "ordered collections"),
        ({"params": [1]}, "can only optimize Tensors"),
        ({"params": [("n", b)]}, "with/without names"),
        ({"params": [a * 2]}, "non-leaf"),
    ]:
        with pytest.raises((ValueError, TypeError), match=text):
            o.add_param_group(wrong)
    with pytest.warns(UserWarning, match="duplicate parameters"):
        optim.SGD([a, a])
    named = optim.SGD([("w", a), ("v", b)], lr=0.1)
    assert named.state_dict()["param_groups"][0]["param_names"] == ["w", "v"]
    push([a, b], 1)
    assert named.step(lambda: 2.5) == 2.5
    named.zero_grad(set_to_none=False)
    assert a.grad.tolist() == [0.0, 0.0]
    named.zero_grad()
    assert a.grad is None
    with pytest.raises(ValueError, match="empty parameter list"):
        optim.SGD([])
    with pytest.raises(ValueError, match="required optimization parameter lr"):
        optim.Optimizer([a], {"lr": base.required})


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_finds_the_bottom(search):
    x = nn.Parameter(torch.tensor([-1.2, 1.0], dtype=torch.float64))
    o = optim.LBFGS([x], lr=1.0 if search else 0.1, max_iter=60, line_search_fn=search)

    def closure():
        o.zero_grad()
        loss = (1 - x[0]) ** 2 + 5 * (x[1] - x[0] ** 2) ** 2
        loss.backward()
        return loss

    for _ in range(10):
        o.step(closure)
    torch.testing.assert_close(x.detach(), torch.ones(2, dtype=torch.float64), atol=1e-4, rtol=0)
    with pytest.raises(ValueError, match="per-parameter options"):
        optim.LBFGS([{"params": [x]}, {"params": make((2,))}])


def test_muon_and_adafactor_go_down():
    for cls, lr in ((optim.Muon, 0.02), (optim.Adafactor, 0.1)):
        (p,) = make((4, 3))
        o = cls([p], lr=lr)
        norms = []
        for _ in range(40):
            p.grad = p.detach().clone()
            norms.append(p.norm().item())
            o.step()
        assert norms[-1] < 0.7 * norms[0]
    with pytest.raises(ValueError, match="2D parameters"):
        optim.Muon(make((3,)))


def sparse(k):
    at = torch.tensor([[0, k % 5, 0]])
    return torch.sparse_coo_tensor(at, optim_cases.numbers(torch, (3, 2), k, "float32"), (5, 2))


@pytest.mark.parametrize("maximize", [False, True])
def test_sparse_gradients_move_their_rows(maximize):
    """Adagrad does to rows with a gradient what it does for a dense one; SparseAdam begins as Adam does."""
    for cls, dense, options in [
        (optim.Adagrad, optim.Adagrad, {"lr_decay": 0.1}),
        (optim.SparseAdam, optim.Adam, {}),
    ]:
        (p,), (q,) = make((5, 2)), make((5, 2))
        a, b = cls([p], maximize=maximize, **options), dense([q], maximize=maximize, **options)
        p.grad, q.grad = sparse(3), sparse(3).to_dense()
        a.step()
        b.step()
        torch.testing.assert_close(p, q)
        assert torch.equal(p[1], make((5, 2))[0][1])


def test_sparse_gradients_are_refused():
    (p,) = make((5, 2))
    push([p], 1)
    with pytest.raises(RuntimeError, match="does not support dense gradients"):
        optim.SparseAdam([p]).step()
    p.grad = sparse(1)
    for name in ("Adam", "Adamax", "NAdam", "Adadelta", "Muon"):
        with pytest.raises(RuntimeError, match="does not support sparse gradients"):
            getattr(optim, name)([p]).step()
    with pytest.raises(RuntimeError, match="not compatible with sparse gradients"):
        optim.Adagrad([p], weight_decay=0.1).step()
    for args, text in [
        ((torch.tensor([0]), torch.ones(1)), "must be sparse_dim x nnz"),
        ((torch.tensor([[0]]), torch.ones(2)), "same nnz"),
        ((torch.tensor([[3]]), torch.ones(1), (3,)), "found index 3"),
        ((torch.tensor([[-1]]), torch.ones(1), (3,)), "negative index"),
        ((torch.tensor([[1]]), torch.ones(1), (3, 3)), "sparse_dim"),
    ]:
        with pytest.raises(RuntimeError, match=text):
            torch.sparse_coo_tensor(*args)


def test_other_tensors_for_a_while():
    (p,) = make((3,))
    o = optim.SGD([p], lr=0.1, momentum=0.9)
    with pytest.raises(RuntimeError, match="initialized optimizer state"):
        optim.swap_in_optimizer_params_and_state(o, {}, {}).__enter__()
    steps(o, [p], 1)
    (q,) = make((3,))
    kept = o.state_dict()
    with optim.swap_in_optimizer_params_and_state(o, {"w": q}, kept):
        assert o.param_groups[0]["params"] == [q] and q in o.state
    assert o.param_groups[0]["params"][0] is p and p in o.state


def test_refused_options():
    (p,) = make((2,))
    for name, options, text in [
        ("SGD", {"lr": -1}, "Invalid learning rate: -1"),
        ("SGD", {"nesterov": True}, "Nesterov momentum requires"),
        ("Adam", {"betas": (1.0, 0.9)}, "Invalid beta parameter at index 0: 1.0"),
        ("Adam", {"eps": -1}, "Invalid epsilon value: -1"),
        ("Adam", {"betas": (0.9, torch.tensor(0.9))}, "both floats or both Tensors"),
        ("AdamW", {"lr": torch.ones(2)}, "Tensor lr must be 1-element"),
        ("Adam", {"lr": torch.tensor(0.1), "foreach": True}, "lr as a Tensor is not supported"),
        ("Rprop", {"etas": (2, 3)}, "Invalid eta values: 2, 3"),
        ("Adadelta", {"rho": 2}, "Invalid rho value: 2"),
        ("Adafactor", {"d": 0.5}, "Clipping threshold d should be >= 1"),
    ]:
        with pytest.raises(ValueError, match=text):
            getattr(optim, name)([p], **options)
    for name in ("SGD", "Adam", "Adagrad"):
        with pytest.raises(RuntimeError, match="cannot be `True` together"):
            getattr(optim, name)([p], fused=True, foreach=True)
    push([p], 1)
    for name, _ in WHOLE[2:]:
        if name not in ("Adagrad",):
            with pytest.raises(AssertionError, match="If capturable=True"):
                getattr(optim, name)([p], capturable=True).step()
    meta = nn.Parameter(torch.ones(2, device="meta"))
    meta.grad = torch.ones(2, device="meta")
    with pytest.raises(RuntimeError, match="`fused=True` requires all the params"):
        optim.Adam([meta], fused=True).step()


def test_old_state_dicts_get_what_they_lack():
    (p,) = make((3,))
    o = optim.Adam([p])
    steps(o, [p], 1)
    kept = o.state_dict()
    kept["state"][0]["step"] = 3
    for name in ("fused", "foreach", "capturable", "differentiable"):
        del kept["param_groups"][0][name]
    o.load_state_dict(kept)
    assert o.state[p]["step"].item() == 3.0 and o.param_groups[0]["fused"] is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        steps(o, [p], 1)


def test_other_optimizers_count_as_they_do_after_loading():
    class Counting(optim.Optimizer):
        def step(self):
            for p in self.param_groups[0]["params"]:
                state = self.state[p]
                state["step"] = state.get("step", 0) + 1

    (p,) = make((3,))
    o, again = Counting([p], {}), Counting([p], {})
    o.step()
    again.load_state_dict(o.state_dict())
    again.step()
    assert type(again.state[p]["step"]) is int and again.state[p]["step"] == 2


def test_a_state_without_its_counts_is_not_loaded():
    param = torch.nn.Parameter(torch.ones(3))
    param.grad = torch.ones(3)
    first = torch.optim.RMSprop([param])
    first.step()
    with pytest.raises(KeyError, match="mu_product"):
        torch.optim.NAdam([param]).load_state_dict(first.state_dict())


def test_averages_on_meta_are_moved():
    model = torch.nn.Linear(3, 2, device="meta")
    average = torch.optim.swa_utils.AveragedModel(model)
    for _ in range(3):
        average.update_parameters(model)
    assert average.module.weight.is_meta


def test_averages_of_counts_are_whole_numbers():
    model = torch.nn.BatchNorm1d(2)
    average = torch.optim.swa_utils.AveragedModel(model, use_buffers=True)
    counts = []
    for _ in range(3):
        for _ in range(2):
            model(torch.randn(3, 2))
        average.update_parameters(model)
        counts.append(average.module.num_batches_tracked.item())
    assert counts == [2, 3, 4]


@pytest.mark.parametrize("scaled", [False, True])
def test_recorded_parameters_take_fused_steps(scaled):
    def trained():
        torch.manual_seed(0)
        w = nn.Parameter(torch.randn(3))
        w.grad = torch.ones(3)
        made = optim.AdamW([w], fused=True)
        if scaled:
            made.grad_scale, made.found_inf = torch.tensor(2.0), torch.tensor(0.0)
        made.step()
        return w

    with torch.meta_init():
        w = trained()
    assert torch.materialize(w).tolist() == trained().tolist()


def test_lbfgs_has_one_group():
    made = optim.LBFGS([nn.Parameter(torch.ones(1))])
    made.add_param_group({"params": nn.Parameter(torch.ones(1))})
    with pytest.raises(AssertionError, match="Expected exactly one param_group, but got 2"):
        made.step(lambda: torch.ones(()))


def test_gradients_that_are_no_numbers_have_no_sign():
    w = nn.Parameter(torch.ones(2))
    w.grad = torch.tensor([float("nan"), 1.0])
    optim.Rprop([w], lr=0.5).step()
    assert w.tolist() == [1.0, 0.5]


@pytest.mark.filterwarnings("ignore:optimizer contains a parameter group with duplicate")
def test_the_last_place_of_a_parameter_counts():
    a, b = (nn.Parameter(torch.ones(1)) for _ in range(2))
    groups = optim.SGD([a, a, b], lr=0.1).state_dict()["param_groups"]
    assert groups[0]["params"] == [1, 1, 2]
