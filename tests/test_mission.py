"""The examples of the mission, as a user types them."""

import io

import numpy as np
import pytest

import torchlike as torch
from torchlike import nn


def test_saved_tensor_loads_on_meta(tmp_path):
    path = tmp_path / "foo.pt"
    torch.save(torch.randn(2), path)
    assert repr(torch.load(path, map_location="meta")) == "tensor(..., device='meta', size=(2,))"


def test_device_context():
    with torch.device("meta"):
        assert repr(torch.randn(30, 30)) == "tensor(..., device='meta', size=(30, 30))"
        assert repr(nn.Linear(20, 30)) == "Linear(in_features=20, out_features=30, bias=True)"


def test_copy_out_of_meta_is_refused():
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor; no data!"):
        torch.ones(5, device="meta").to("cpu")
    with torch.device("meta"):
        m = nn.Linear(20, 30)
    with pytest.raises(NotImplementedError, match=r"Please use torch\.nn\.Module\.to_empty\(\)"):
        m.to("cpu")


def test_to_empty_and_empty_like():
    with torch.device("meta"):
        m = nn.Linear(20, 30)
    assert m.to_empty(device="cpu") is m
    assert m.weight.device.type == "cpu"
    t = torch.ones(3, device="meta")
    assert torch.empty_like(t, device="cpu").device.type == "cpu"


def test_a_device_that_is_asked_for_is_where_a_tensor_beside_a_waiting_one_is():
    with torch.meta_init():
        m = nn.Linear(2, 3)
        t = torch.zeros_like(m.weight, device="cpu")
    assert t.is_meta and torch.zeros_like(m.weight).is_meta
    for made in (
        torch.zeros_like(t, device="cpu"),
        torch.randn_like(t, device="cpu"),
        t.new_full((2,), 1.0, device="cpu"),
        t.new_empty((2,), device="cpu"),
    ):
        assert not made.is_meta
    assert m.to_empty(device="cpu") is m and not m.weight.is_meta
    assert m(torch.zeros(1, 2)).shape == (1, 3)


def test_who_asks_where_tensors_are_made_is_told_where_they_will_be():
    with torch.meta_init():
        assert torch.tensor([]).device == torch.get_default_device()
        joined = torch.cat([torch.tensor([]), torch.ones(2)])
        added = torch.from_numpy(np.arange(2.0)) + torch.ones(2)
        waits = torch.ones(2)
    for made, want in ((joined, [1.0, 1.0]), (added, [1.0, 2.0])):
        assert made.is_meta and torch.materialize(made).tolist() == want
    with pytest.raises(RuntimeError, match="is not on the expected device"):
        torch.ones(2) + waits


def test_shapes_are_validated_on_meta():
    model = nn.Linear(1000, 500).to("meta")
    x = torch.randn(8, 1000, device="meta")
    assert x.storage().size() == 8000
    assert x.is_meta and x.device.type == "meta"
    assert model(x).shape == (8, 500)
    with pytest.raises(
        RuntimeError, match=r"mat1 and mat2 shapes cannot be multiplied \(8x999 and 1000x500\)"
    ):
        model(torch.randn(8, 999, device="meta"))


def test_meta_init_of_a_layer():
    torch.manual_seed(3)
    eager = nn.Linear(5, 1)
    torch.manual_seed(3)
    with nn.utils.meta_init():
        m = nn.Linear(5, 1)
    assert repr(m.weight) == (
        "Parameter containing:\ntensor(..., device='meta', size=(1, 5), requires_grad=True)"
    )
    weight = m.weight
    assert nn.utils.materialize(m) is m
    assert m.weight is weight
    assert torch.equal(m.weight, eager.weight)
    assert torch.equal(m.bias, eager.bias)


def test_explicit_device_is_deferred_too():
    class Sub(nn.Module):
        def __init__(self):
            super().__init__()
            self.p = nn.Parameter(torch.ones([3], device="cpu"))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.sublayer1, self.sublayer2 = Sub(), Sub()

    with nn.utils.meta_init():
        m = Model()
    assert m.sublayer1.p.is_meta
    torch.materialize(m.sublayer1)
    assert repr(m.sublayer1.p) == "Parameter containing:\ntensor([1., 1., 1.], requires_grad=True)"
    assert m.sublayer2.p.is_meta


@pytest.mark.parametrize("keep", [True, False])
def test_chains_replay_in_any_order(keep):
    with nn.utils.meta_init():
        t1 = torch.ones([3])
        t2 = t1 + 2
    torch.materialize(t1, keep_cache=keep)
    t1.add_(10)
    torch.materialize(t2)
    assert repr(t2) == "tensor([3., 3., 3.])"
    torch.clear_meta_init_cache()


def test_constructors_can_ask_and_external_data_stays_real():
    assert not nn.utils.is_meta_init()
    with nn.utils.meta_init():
        assert nn.utils.is_meta_init()
        data = torch.from_numpy(np.arange(3.0))
    assert data.tolist() == [0.0, 1.0, 2.0]


def test_where_a_tensor_waits_is_where_it_will_be():
    makers = (
        lambda w: torch.arange(3, device=w.device),
        lambda w: torch.rand(3, device=w.device),
        lambda w: torch.tensor([1.5, 2.0], device=w.device),
        lambda w: w.new_tensor([1.0]),
        lambda w: nn.Linear(3, 2, device=w.device).weight,
        lambda w: nn.utils.parametrizations.orthogonal(nn.Linear(3, 3)).weight,
    )
    for make in makers:
        torch.manual_seed(3)
        want = make(torch.randn(3))
        torch.manual_seed(3)
        with nn.utils.meta_init():
            made = make(torch.randn(3))
        assert made.is_meta
        assert torch.equal(torch.materialize(made), want)
    with torch.device("meta"), nn.utils.meta_init():
        assert torch.ones(2, device="meta").source is None  # for good
    with nn.utils.meta_init():
        pass
    assert torch.ones(2, device="meta").source is None


def test_a_tensor_that_waits_may_grow():
    torch.manual_seed(2)
    want = torch.rand(2)
    torch.manual_seed(2)
    with nn.utils.meta_init():
        grown = torch.rand(2)
        part = grown[:1]
        grown.resize_(4)
        written = torch.ones(1).resize_(3).fill_(7)
        double = grown * 2
    assert torch.equal(torch.materialize(double)[:2], want * 2)
    assert torch.equal(torch.materialize(part), want[:1])
    assert torch.equal(grown[:2], want) and grown.untyped_storage().nbytes() == 16
    assert torch.materialize(written).tolist() == [7.0] * 3


def test_raw_storage_of_meta_is_an_error():
    with nn.utils.meta_init():
        t = torch.ones(3)
    with pytest.raises(NotImplementedError, match="Not available for 'meta' device type"):
        t.storage()[0]
    assert t.data_ptr() == 0


def test_reading_a_recorded_value_replays_it():
    torch.manual_seed(1)
    want = torch.rand(4)
    torch.manual_seed(1)
    with nn.utils.meta_init():
        t = torch.rand(4)
        assert t.tolist() == want.tolist()
        assert bool(t[0] == want[0].item())
    assert t.is_meta


def test_files_are_sources(tmp_path):
    path = tmp_path / "w.pt"
    a = torch.arange(6.0).reshape(2, 3)
    torch.save({"a": a, "t": a.t()}, path)
    state = torch.load(path, map_location="meta")
    assert str(path) in state["a"].source
    view = state["a"][1]
    torch.materialize(state["t"])
    assert view.tolist() == [3.0, 4.0, 5.0]


def test_file_objects_and_mmap(tmp_path):
    buffer = io.BytesIO()
    torch.save({"x": torch.ones(3, dtype=torch.bfloat16)}, buffer)
    buffer.seek(0)
    assert torch.load(buffer)["x"].float().tolist() == [1.0, 1.0, 1.0]
    path = tmp_path / "m.pt"
    path.write_bytes(buffer.getvalue())
    mapped = torch.load(path, mmap=True)["x"]
    mapped.zero_()
    assert torch.load(path)["x"].float().sum().item() == 3.0


def test_mixing_devices_is_an_error():
    real, meta = torch.ones(2), torch.ones(2, device="meta")
    for call in (
        lambda: real + meta,
        lambda: meta + real,
        lambda: real.add_(meta),
        lambda: meta.add_(real),
    ):
        with pytest.raises(RuntimeError, match="is not on the expected device"):
            call()
    assert (meta + torch.tensor(1.0)).is_meta


def test_recorded_calls_keep_the_default_dtype_that_they_met():
    def halves():
        whole = torch.tensor([1, 2, 3])
        return [whole / 2, whole.mul(0.5), whole.exp(), torch.arange(3) * 0.5]

    torch.set_default_dtype(torch.float64)
    try:
        eager = halves()
        with torch.meta_init():
            waiting = halves()
    finally:
        torch.set_default_dtype(torch.float32)
    for made, expected in zip(waiting, eager, strict=True):
        torch.materialize(made)
        assert made.dtype == torch.float64 and torch.equal(made, expected)
    assert torch.get_default_dtype() == torch.float32


def test_what_is_written_with_unknown_values_is_unknown():
    unknown = torch.empty(2, device="meta")
    with torch.nn.utils.meta_init():
        kept, written, out = torch.ones(2), torch.ones(2), torch.ones(2)
        written.add_(unknown)
        torch.add(kept, unknown, out=out)
        leaf = torch.ones(2, requires_grad=True)
        leaf.grad = unknown
        torch.optim.SGD([leaf], lr=0.1).step()
    for t in (written, out, leaf):
        with pytest.raises(RuntimeError, match="has no source"):
            torch.materialize(t)
    assert torch.materialize(kept).tolist() == [1, 1]


def test_modules_without_values_draw_nothing():
    def made():
        torch.manual_seed(3)
        torch.nn.utils.skip_init(torch.nn.Linear, 2, 3)
        return torch.rand(4)

    with torch.nn.utils.meta_init():
        deferred = made()
        assert torch.nn.utils.is_meta_init()
    assert torch.materialize(deferred).tolist() == made().tolist()


def test_old_state_keeps_the_count_of_batches():
    with torch.nn.utils.meta_init():
        norm = torch.nn.BatchNorm1d(2)
        norm(torch.ones(3, 2))
        norm.load_state_dict({"weight": torch.ones(2)}, strict=False)
    assert torch.materialize(norm.num_batches_tracked).item() == 1
