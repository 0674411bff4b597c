"""FLOPs by module and operator, and memory by class, under PyTorch's names."""

import pytest

import torchlike as torch
from torchlike import nn
from torchlike.distributed._tools import MemTracker, ModTracker
from torchlike.utils.flop_counter import FlopCounterMode, register_flop_formula
from torchlike.utils.module_tracker import ModuleTracker

aten = torch.ops.aten


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.out = nn.Conv2d(3, 8, 3), nn.Linear(8 * 36, 5)

    def forward(self, x):
        return self.out(self.conv(x).relu().flatten(1))


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_flops_by_module_and_operator(device):
    with torch.device(device):
        model, x = Net(), torch.ones(2, 3, 8, 8)
    conv, linear = 2 * 36 * 9 * 3 * 8 * 2, 2 * 2 * 288 * 5
    with FlopCounterMode(display=False) as counter:
        model(x).sum().backward()
    assert counter.get_flop_counts() == {
        "Global": {aten.convolution: conv, aten.addmm: linear, aten.mm: 2 * linear, aten.convolution_backward: conv},
        "Net": {aten.convolution: conv, aten.addmm: linear, aten.mm: 2 * linear, aten.convolution_backward: conv},
        "Net.conv": {aten.convolution: conv, aten.convolution_backward: conv},
        "Net.out": {aten.addmm: linear, aten.mm: 2 * linear},
    }  # fmt: skip
    assert counter.get_total_flops() == 2 * conv + 3 * linear
    table = counter.get_table(depth=1)
    assert "Net" in table and "Net.conv" not in table and "100.00%" in table


def test_tables_are_those_of_pytorch():
    model = nn.Sequential(nn.Linear(8, 2), nn.ReLU(), nn.Linear(2, 4))
    with FlopCounterMode(display=False) as counter:
        y = model(torch.ones(3, 8))
    assert counter.get_table(depth=1).split("\n") == [
        "Module           FLOP    % Total",
        "-------------  ------  ---------",
        "Sequential        144    100.00%",
        " - aten.addmm     144    100.00%",
    ]
    with FlopCounterMode(display=False) as counter:
        y = model(torch.ones(300, 8)) @ y.new_ones(4, 4)
    assert y.shape == (300, 4)
    assert counter.get_table().split("\n")[:6] == [
        "Module              FLOP    % Total",
        "---------------  -------  ---------",
        "Global           24.000K    100.00%",
        " - aten.addmm    14.400K     60.00%",
        " - aten.mm        9.600K     40.00%",
        " Sequential      14.400K     60.00%",
    ]


def test_recurrent_cells_and_attention_are_counted():
    with torch.device("meta"):
        lstm, x = nn.LSTM(4, 4), torch.ones(3, 2, 4)
        q = torch.ones(1, 2, 5, 8)
    with FlopCounterMode(display=False) as counter:
        lstm(x)[0].sum().backward()
    assert set(counter.get_flop_counts()["Global"]) == {aten.addmm, aten.mm}
    with FlopCounterMode(display=False) as counter:
        nn.functional.scaled_dot_product_attention(q, q, q)
    assert counter.get_total_flops() == 2 * (2 * 2 * 5 * 5 * 8)


def test_formulas_of_the_user(capsys):
    double = {aten.relu: lambda shape, out_shape=None: 2 * shape.numel()}
    with FlopCounterMode(custom_mapping=double):
        torch.ones(3, 4).relu()
    assert "aten.relu" in capsys.readouterr().out
    with pytest.raises(RuntimeError, match="duplicate registrations"):
        register_flop_formula(aten.mm)(lambda *a: 0)
    with pytest.raises(ValueError, match="expected each target"):
        register_flop_formula("mm")(lambda *a: 0)


def test_modules_at_work():
    seen = {}
    model = Net()
    model.conv.register_forward_pre_hook(lambda *_: seen.update(forward=set(tracker.parents)))

    def watched(module, args, out):
        out.register_hook(lambda _: seen.update(backward=set(tracker.parents)))

    model.conv.register_forward_hook(watched)
    with ModuleTracker() as tracker:
        y = model(torch.ones(1, 3, 8, 8, requires_grad=True))
        # It gets its gradient after the input, with which the module is left.
        model.conv.weight.register_hook(lambda _: seen.update(after=set(tracker.parents)))
        y.sum().backward()
    assert seen["forward"] == seen["backward"] == {"Global", "Net", "Net.conv"}
    assert seen["after"] == {"Global"}
    assert tracker.parents == {"Global"} and not tracker.is_bw


def test_hooks_of_the_tracker():
    events = []

    def note(what):
        return lambda module, *_: events.append((what, tracker.get_known_fqn(module)))

    with ModTracker() as tracker:
        tracker.register_user_hooks(*map(note, ("enter", "leave", "back", "done")))
        with pytest.raises(AssertionError, match="pre_fw_hook already set"):
            tracker.register_user_hooks(pre_fw_hook=print)
        model = nn.Sequential(nn.Linear(2, 2))
        model(torch.ones(1, 2, requires_grad=True)).sum().backward()
    assert events == [
        ("enter", "Sequential"), ("enter", "Sequential.0"), ("leave", "Sequential.0"), ("leave", "Sequential"),
        ("back", "Sequential.0"), ("back", "Sequential"), ("done", "Sequential"), ("done", "Sequential.0"),
    ]  # fmt: skip


def test_memory_by_class():
    model = nn.Linear(64, 32, device="meta")
    x = torch.empty(2, 64, device="meta")
    tracker = MemTracker()
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    tracker.track_external(model, x, optimizer)
    with tracker:
        y = model(x)
        forward = tracker.get_tracker_snapshot()[x.device]
        loss = y.sum()
        del y
        loss.backward()
        optimizer.step()
    after = {k: v for k, v in tracker.get_tracker_snapshot()[x.device].items() if v}
    weights = (64 * 32 + 32) * 4
    assert (forward["Parameter"], forward["Other"], forward["Activation"]) == (weights, 512, 256)
    assert after == {
        "Parameter": weights, "Gradient": weights, "Optstate": 2 * weights, "Other": 512, "Activation": 4,
        "Total": 4 * weights + 516,
    }  # fmt: skip
    assert tracker.get_tracker_snapshot("peak")[x.device]["Total"] > after["Total"]
    with pytest.raises(TypeError, match="is not supported for tracking"):
        tracker.track_external(3)


def test_attention_holds_no_more_than_pytorchs():
    """The peak that PyTorch 2.13 has: what is copied for the projection is given up before it."""
    with torch.device("meta"):
        model = nn.MultiheadAttention(16, 4, batch_first=True)
        inputs = [torch.empty(2, 9, 16) for _ in range(3)]
    tracker = MemTracker()
    tracker.track_external(model, *inputs)
    with tracker:
        result = model(*inputs)
    peak = tracker.get_tracker_snapshot("peak")[inputs[0].device]
    assert (peak["Parameter"], peak["Other"], peak["Activation"]) == (4352, 3456, 13608)
    assert result[1].shape == (2, 9, 9)


def test_callbacks_wait_for_the_end_of_a_pass():
    done = []
    x = torch.ones(2, requires_grad=True)
    x.register_hook(lambda g: torch._C._queue_callback(lambda: done.append(x.grad is not None)))
    (x * 2).sum().backward()
    assert done == [True]
    with pytest.raises(RuntimeError, match="Final callbacks can only be installed"):
        torch._C._queue_callback(print)


def test_the_allocator_counts():
    torch.cpu.reset_peak_memory_stats()
    before = torch.cpu.memory_allocated()
    x = torch.empty(1000)
    assert torch.cpu.memory_allocated() - before == 4000
    del x
    assert torch.cpu.memory_allocated() == before
    assert torch.cpu.max_memory_allocated() - before >= 4000
    torch.cpu.empty_cache()
    assert torch.cpu.memory_stats()["allocated_bytes.all.current"] == torch.cpu.memory_allocated()
    assert torch.cpu.memory_reserved() == torch.cpu.memory_allocated()


def test_modes_that_count_products_are_not_shown_the_rest(monkeypatch):
    from torchlike.utils import flop_counter

    seen = []
    real = flop_counter._Mode.__torch_dispatch__

    def noted(self, func, types, args=(), kwargs=None):
        seen.append(func._overloadpacket)
        return real(self, func, types, args, kwargs)

    monkeypatch.setattr(flop_counter._Mode, "__torch_dispatch__", noted)
    x = torch.ones(4, 4, device="meta")
    with FlopCounterMode(display=False) as counter:
        (x.t() @ x).relu().sum(0)
    assert seen == [aten.mm, aten.sum] and counter.get_total_flops() == 2 * 4**3
    with FlopCounterMode(display=False, custom_mapping={aten.relu: lambda *a, **k: 7}) as counter:
        (x.t() @ x).relu()
    assert counter.get_total_flops() == 2 * 4**3 + 7


def test_composites_are_counted_in_inference_mode():
    model, x = Net(), torch.ones(2, 3, 8, 8)
    batch = torch.ones(2, 4, 4)

    def count():
        with FlopCounterMode(display=False) as counter:
            model(x)
            torch.einsum("bij,bjk->bik", batch, batch)
            nn.functional.scaled_dot_product_attention(batch, batch, batch)
        return counter.get_flop_counts()

    with torch.no_grad():
        expected = count()
    with torch.inference_mode():
        assert count() == expected
    linear = aten.linear.default
    assert linear.has_kernel_for_dispatch_key("CompositeImplicitAutograd")
    assert not linear.has_kernel_for_dispatch_key("Meta")


def test_modules_that_run_again_are_entered_once():
    events = []
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = first, second

        def forward(self, x):
            return torch.utils.checkpoint.checkpoint(
                self.second, self.first(x), use_reentrant=False
            )

    def note(what):
        def told(module, *_):
            name = tracker.get_known_fqn(module)
            events.append((what, name, name in tracker.parents, tracker.is_bw))

        return told

    with ModTracker() as tracker:
        hooks = {f"{p}_{w}_hook": note(f"{p} {w}") for p in ("pre", "post") for w in ("fw", "bw")}
        tracker.register_user_hooks(**hooks)
        model = Two()
        model(torch.ones(1, 2)).sum().backward()
    backward = [(what, name) for what, name, _, late in events if late]
    assert backward == [
        ("pre bw", "Two.second"), ("pre bw", "Two"), ("pre fw", "Two.second"), ("post fw", "Two.second"),
        ("pre bw", "Two.first"), ("post bw", "Two.second"), ("post bw", "Two.first"), ("post bw", "Two"),
    ]  # fmt: skip
    assert all(at_work for _, _, at_work, _ in events)


def test_callbacks_add_callbacks():
    done = []

    def last():
        done.append(torch._C._current_graph_task_id() >= 0)
        torch._C._queue_callback(lambda: done.append("added"))

    x = torch.ones(2, requires_grad=True)
    x.register_hook(lambda g: torch._C._queue_callback(last))
    (x * 2).sum().backward()
    assert done == [True, "added"] and torch._C._current_graph_task_id() == -1


def test_what_one_gradient_took_is_gone_before_the_next():
    x = torch.empty(4, 6, device="meta")
    w = torch.empty(6, 6, device="meta", requires_grad=True)

    def peak(f):
        tracker = MemTracker()
        tracker.track_external(x, w)
        with tracker:
            f(x @ w).sum().backward()
        (parts,) = tracker.get_tracker_snapshot("peak").values()
        return parts["Total"] - 240

    # three products of 96 bytes, their gradients, and one value on the way
    assert peak(lambda t: torch.addcmul(t, x @ w, x @ w)) == 488
    assert peak(lambda t: nn.functional.binary_cross_entropy_with_logits(t, x)) == 296


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_networks_on_meta_keep_views_of_their_input(kind):
    model, x = kind(4, 4, batch_first=True, device="meta"), torch.ones(2, 3, 4, device="meta")
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (kept.append(t), t)[1], lambda t: t):
        model(x)
    own = [t for t in kept if t.untyped_storage()._cdata == x.untyped_storage()._cdata]
    assert [(tuple(t.shape), t.stride()) for t in own] == [((2, 4), (12, 1))] * 3
