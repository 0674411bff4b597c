"""Fake tensors: devices that are not there, no elements, PyTorch's exceptions; twins on meta."""

import copy
import gc
import io
import pickle
import weakref

import pytest

import torchlike as torch
from torchlike import nn
from torchlike._guards import detect_fake_mode
from torchlike._subclasses import fake_tensor as ft
from torchlike._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torchlike._subclasses.meta_utils import MetaConverter
from torchlike.fx.experimental.symbolic_shapes import ShapeEnv


def look(t):
    return type(t).__name__, tuple(t.shape), str(t.dtype).rpartition(".")[2], str(t.device)


def test_results_claim_devices_that_are_not_there():
    with FakeTensorMode():
        x = torch.ones(2, 3, device="cuda:3", requires_grad=True)
        m = nn.Linear(3, 4, device="cuda:3")
        y = m(x).relu()
        y.sum().backward()
        assert look(y) == ("FakeTensor", (2, 4), "float32", "cuda:3")
        assert look(x.grad) == ("FakeTensor", (2, 3), "float32", "cuda:3")
        assert look(m.weight.grad) == ("FakeTensor", (4, 3), "float32", "cuda:3")
        assert look(x.to("cpu")) == ("FakeTensor", (2, 3), "float32", "cpu")
        assert look(torch.empty(2, device="meta") + 1) == ("FakeTensor", (2,), "float32", "meta")
        assert isinstance(m.weight, nn.Parameter) and x.is_cuda and x.data_ptr() == 0
    assert look(y * 2)[3] == "cuda:3"  # it goes on being one outside of the mode
    assert type(torch.ones(1)) is torch.Tensor


def test_the_generator_stays_where_it_was():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    with FakeTensorMode():
        torch.rand(5), nn.Linear(3, 4), torch.nn.functional.dropout(torch.ones(9))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    ("call", "first", "other"),
    [
        (lambda: torch.ones(3, device="cuda:0") + torch.ones(3, device="cuda:1"), "cuda:0", "cuda:1"),
        (lambda: torch.ones(3) * torch.ones((), device="cuda"), "cpu", "cuda:0"),
        (lambda: torch.addmm(torch.ones(2), *torch.ones(2, 2, 2, device="cuda")), "cuda:0", "cpu"),
        (lambda: torch.ones(3, device="meta") + torch.ones(3), "meta", "cpu"),
        (lambda: torch.gather(torch.ones(3, device="cuda"), 0, torch.zeros(2, dtype=torch.int64)), "cuda:0", "cpu"),
        (lambda: nn.functional.embedding(torch.tensor([0]), torch.ones(3, 4, device="cuda")), None, None),
    ],
)  # fmt: skip
def test_devices_that_differ(call, first, other):
    with FakeTensorMode(), pytest.raises(ft.FakeTensorDeviceMismatchError) as e:
        call()
    if first is not None:
        assert str(e.value) == (
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{first} and {other}!"
        )


def test_numbers_and_indices_may_be_on_the_host():
    with FakeTensorMode():
        x = torch.ones(3, device="cuda")
        assert look(x + torch.tensor(2.0))[3] == "cuda:0"
        assert look(x[torch.tensor([0, 1])]) == ("FakeTensor", (2,), "float32", "cuda:0")
        x[x > 0] = 2.0
        x[0] = torch.tensor(1.0)
        assert look(x[True]) == ("FakeTensor", (1, 3), "float32", "cuda:0")


def test_single_numbers_are_remembered():
    with FakeTensorMode():
        three = torch.tensor(3)
        assert (three.item(), (three + 1).item(), three.clone().view(1).item()) == (3, 4, 3)
        assert (torch.tensor(3.0) * torch.tensor(2.0)).item() == 6.0
        assert list(range(three)) == [0, 1, 2]
        three.fill_(5)
        assert three.item() == 5
        known = torch.tensor(7)
        torch.add(three, torch.ones((), dtype=torch.int64), out=known)
        with pytest.raises(ft.DataDependentOutputException):
            known.item()
        grown = torch.tensor(7)
        grown.resize_(2)
        with pytest.raises(ft.DataDependentOutputException):
            grown.tolist()
        three.copy_(torch.ones((), dtype=torch.int64))
        with pytest.raises(
            ft.DataDependentOutputException, match=r"aten\._local_scalar_dense\.default"
        ):
            three.item()


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda x: x.sum().item(), ft.DataDependentOutputException, "aten._local_scalar_dense.default"),
        (lambda x: x.tolist(), ft.DataDependentOutputException, "aten._local_scalar_dense.default"),
        (lambda x: bool(x.sum() > 2), ft.DataDependentOutputException, "aten._local_scalar_dense.default"),
        (lambda x: torch.equal(x, x), ft.DataDependentOutputException, "aten.equal.default"),
        (lambda x: torch.allclose(x, x), ft.DataDependentOutputException, "aten.allclose.default"),
        (lambda x: torch.nonzero(x), ft.DynamicOutputShapeException, "aten.nonzero.default"),
        (lambda x: x[x > 0], ft.DynamicOutputShapeException, "aten.nonzero.default"),
        (lambda x: torch.masked_select(x, x > 0), ft.DynamicOutputShapeException, "aten.masked_select.default"),
        (lambda x: torch.repeat_interleave(x, x.long()), ft.DynamicOutputShapeException, "aten.repeat_interleave.Tensor"),  # noqa: E501
    ],
)  # fmt: skip
def test_values_are_not_there(call, kind, text):
    with FakeTensorMode():
        x = torch.ones(3)
        with pytest.raises(kind) as e:
            call(x)
    assert str(e.value) == text and str(e.value.func) == text


def test_real_tensors_are_refused_or_converted():
    real = torch.ones(3)
    with FakeTensorMode(), pytest.raises(AssertionError) as e:
        real + 1
    assert str(e.value) == (
        "Please convert all Tensors to FakeTensors first or instantiate FakeTensorMode with 'allow_non_fake_inputs'. "
        "Found in aten.add.Tensor(tensor([...], size=(3,)), 1)"
    )
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        assert look(real.to("cuda")) == ("FakeTensor", (3,), "float32", "cuda:0")
        assert mode.from_tensor(real) is mode.from_tensor(real)
        with pytest.raises(ft.DataDependentOutputException):
            torch.tensor(1).add(real.sum()).item()
    assert real.sum().item() == 3.0
    one, other = (FakeTensorMode().from_tensor(real) for _ in range(2))
    with pytest.raises(AssertionError, match="Mixing fake modes NYI"):
        one + other


def test_twins_of_a_mode_lie_as_the_originals():
    real = torch.arange(24.0).view(2, 3, 4)
    mode = FakeTensorMode()
    part, whole = mode.from_tensor(real[1].t()[1:]), mode.from_tensor(real)
    assert (part.shape, part.stride(), part.storage_offset()) == ((3, 3), (1, 4), 13)
    assert part.untyped_storage()._cdata == whole.untyped_storage()._cdata
    p = nn.Parameter(torch.ones(2))
    fake = mode.from_tensor(p)
    assert isinstance(fake, nn.Parameter) and isinstance(fake, FakeTensor) and fake.requires_grad
    gone = weakref.ref(mode.from_tensor(torch.ones(2)))
    gc.collect()
    assert gone() is None


def test_the_mode_of_a_tensor():
    mode = FakeTensorMode()
    fake = mode.from_tensor(torch.ones(2))
    assert fake.fake_mode is mode and detect_fake_mode({"a": [fake]}) is mode
    assert detect_fake_mode([torch.ones(2)]) is None
    with mode, mode:
        pass
    with mode:
        assert detect_fake_mode() is mode
    with pytest.raises(AssertionError):
        detect_fake_mode([fake, FakeTensorMode().from_tensor(torch.ones(2))])
    del mode
    gc.collect()
    with fake.fake_mode:
        assert look(fake + torch.ones(2))[0] == "FakeTensor"
    mode, x = FakeTensorMode(), torch.ones(2)
    assert mode.fake_tensor_converter.from_real_tensor(mode, x) is mode.from_tensor(x)
    with pytest.raises(NotImplementedError, match="shape_env"):
        FakeTensorMode(shape_env=object())
    with pytest.raises(NotImplementedError, match="shape_env"):
        FakeTensorMode(shape_env=ShapeEnv())
    static = ShapeEnv(assume_static_by_default=True)
    with FakeTensorMode(shape_env=static) as mode:
        assert mode.shape_env is static
        assert torch.ones(2, 3).shape == (2, 3) and not static.guards


def test_printing_copies_and_files():
    with FakeTensorMode():
        x = torch.empty(2, 3, device="cuda:1", requires_grad=True)
        assert repr(x) == "FakeTensor(..., device='cuda:1', size=(2, 3), requires_grad=True)"
        assert look(copy.deepcopy(x)) == look(x)
        assert look(pickle.loads(pickle.dumps(x))) == look(x)
    f = io.BytesIO()
    torch.save({"w": torch.ones(4)}, f)
    f.seek(0)
    with FakeTensorMode():
        assert look(torch.load(f, map_location="cuda")["w"]) == (
            "FakeTensor",
            (4,),
            "float32",
            "cuda:0",
        )


def test_a_fake_copy_of_a_real_model():
    mode, model = FakeTensorMode(), nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    with ft.FakeCopyMode(mode):
        fake = copy.deepcopy(model)
    with mode:
        out = fake.to("cuda")(torch.ones(4, 2, device="cuda"))
    assert look(out) == ("FakeTensor", (4, 3), "float32", "cuda:0")
    assert model[1].num_batches_tracked.item() == 0 and model[0].weight.device.type == "cpu"


def test_an_optimizer_steps():
    with FakeTensorMode():
        p = nn.Parameter(torch.ones(3))
        for kind in (torch.optim.AdamW, torch.optim.SGD):
            made = kind([p], lr=0.1)
            p.grad = torch.ones(3)
            made.step()
        assert look(p.detach()) == ("FakeTensor", (3,), "float32", "cpu")


def test_meta_twins_become_real():
    x = torch.arange(6.0)
    convert = MetaConverter()
    twin, part = convert(x), convert(x[2:])
    assert twin.is_meta and part._is_view() and part.storage_offset() == 2
    assert convert(x) is twin
    torch.materialize(part)
    assert part.tolist() == [2, 3, 4, 5] and not twin.is_meta
    x.zero_()
    assert part.tolist() == [2, 3, 4, 5]
    leaf = torch.ones(4, requires_grad=True)
    node = convert((leaf * 2).view(2, 2))
    assert not node.is_leaf and not node._base.is_leaf
    assert convert(3) == 3 and convert.successful()
    assert (convert.hit, convert.miss) == (4, 0)
    assert convert(x, source=None, trace=False) is twin
    with pytest.raises(TypeError, match="unexpected keyword argument 'other'"):
        convert(x, other=1)
    with pytest.raises(NotImplementedError, match="sizes are numbers"):
        convert(x, shape_env=object())
    assert convert(x, shape_env=ShapeEnv(assume_static_by_default=True)).shape == x.shape


@pytest.mark.parametrize(
    "layout", ["sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc"]
)
def test_twins_of_sparse_tensors(layout):
    blocks = {"blocksize": (2, 2)} if "bs" in layout else {}
    t = torch.eye(4).to_sparse(layout=getattr(torch, layout), **blocks)
    with torch.device("cpu"):  # twins are on meta wherever else tensors are made
        assert MetaConverter()(t).is_meta
    twin = MetaConverter()(t)
    assert (twin.layout, twin.shape, twin.dtype, twin.is_meta) == (t.layout, t.shape, t.dtype, True)
    if layout == "sparse_coo":
        assert twin.is_coalesced() and twin.sparse_dim() == 2
    else:
        assert twin.values().shape == t.values().shape


def test_real_calls_beside_fake_ones_are_compared():
    with ft.CrossRefFakeMode():
        assert torch.ones(2, 3).sum(0).tolist() == [2, 2, 2]


def test_parameters_can_be_exchanged():
    from torchlike import __future__ as future

    future.set_swap_module_params_on_conversion(True)
    try:
        m = nn.Linear(2, 3)
        w = m.weight
        m.to("meta")
        assert m.weight is w and w.is_meta
        view = m.weight.view(6)
        with pytest.raises(RuntimeError, match="Couldn't swap"):
            m.half()
        assert view.shape == (6,)
    finally:
        future.set_swap_module_params_on_conversion(False)


def test_the_class_of_fake_tensors_has_the_name_that_pytorchs_has():
    with FakeTensorMode():
        t = torch.ones(2)
    cls = type(t)
    assert (cls.__name__, cls.__qualname__) == ("FakeTensor", "FakeTensor")
    assert cls.__module__ == "torchlike._subclasses.fake_tensor"
    with pytest.raises(TypeError, match=r"passed to FakeTensor[.]__format__"):
        format(t, ".3f")

    class Own(FakeTensor):
        """A class of the user's."""

    assert issubclass(Own, torch.Tensor) and Own.__mro__[1] is FakeTensor


def test_fake_tensors_on_the_host_are_not_read():
    with FakeTensorMode():
        places, values = torch.zeros(1, 3, dtype=torch.int64), torch.ones(3, 2)
        made = torch._sparse_coo_tensor_unsafe(places, values, [4, 2])
        assert made.shape == (4, 2)
        for read in (
            lambda: values.untyped_storage()[0],
            lambda: values.untyped_storage().tolist(),
            lambda: bytes(values.untyped_storage()),
            values.numpy,
            values.__dlpack__,
            values.tolist,
        ):
            with pytest.raises((RuntimeError, BufferError)):
                read()


def test_arrays_and_old_constructors_are_fake():
    np = pytest.importorskip("numpy")
    array = np.arange(4.0).reshape(2, 2)
    with FakeTensorMode() as mode:
        for made in (
            torch.tensor(array),
            torch.as_tensor(array),
            torch.asarray(array),
            torch.from_numpy(array),
        ):
            assert look(made) == ("FakeTensor", (2, 2), "float64", "cpu")
        assert look(torch.ones(1).new_tensor(array))[:3] == ("FakeTensor", (2, 2), "float32")
        assert look(torch.as_tensor(array, dtype=torch.float32))[2] == "float32"
        assert look(torch.tensor(array, device="cuda"))[3] == "cuda:0"
        assert look(torch.Tensor([1, 2])) == ("FakeTensor", (2,), "float32", "cpu")
        assert look(torch.Tensor(2, 3))[:2] == ("FakeTensor", (2, 3))
        assert look(torch.ones(3)[np.array([0, 2])])[:2] == ("FakeTensor", (2,))
        # Numbers alone say the result's value.
        known = [torch.div(7, 2, rounding_mode="trunc"), torch.from_numpy(np.array(3.0))]
        assert str(mode.from_tensor(torch.zeros(3)).untyped_storage()).startswith("...\n")
    assert [t.constant.item() for t in known] == [3, 3]
    assert type(torch.from_numpy(array)) is torch.Tensor


def test_the_converter_gives_one_fake_for_one_meta_tensor():
    mode, x = FakeTensorMode(), torch.empty(2, device="meta")
    one, other = (
        mode.fake_tensor_converter.from_meta_and_device(mode, x, "cuda:1") for _ in range(2)
    )
    assert one is other and look(one)[3] == "cuda:1"


def test_modes_inside_a_fake_one_see_tensors_of_numbers():
    from torchlike.utils._python_dispatch import TorchDispatchMode
    from torchlike.utils.flop_counter import FlopCounterMode

    seen = []

    class Seeing(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with FakeTensorMode(), Seeing():
        made = torch.tensor([2.0, 3.0])
        number = torch.tensor(2.0)
        assert isinstance(made, FakeTensor) and number.item() == 2.0
        copied = torch.ops.aten.lift_fresh_copy.default(number)
        assert isinstance(copied, FakeTensor) and copied.add_(1).item() == 3.0
    assert seen[0] == seen[1] == "aten.lift_fresh.default"
    with FakeTensorMode(), FlopCounterMode(display=False) as counter:
        torch.tensor([[2.0, 3.0]]) @ torch.ones(2, 4)
    assert counter.get_total_flops() == 16


def test_copies_of_parameters_in_a_mode_are_parameters():
    with FakeTensorMode():
        layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)
        layers(torch.ones(1, 3, 8)).sum().backward()
    weight = layers.layers[1].linear1.weight
    assert isinstance(weight, nn.Parameter) and weight.is_leaf and weight.grad.shape == (16, 8)
    assert len(list(layers.parameters())) == 24


def test_copies_of_views_lie_in_as_much_memory():
    with FakeTensorMode():
        whole = torch.ones(2, 3, 4, device="cuda")
        for part in (whole.chunk(2, 2)[1], whole[1:].transpose(0, 2), whole[0, 0, 0]):
            made = copy.deepcopy(part)
            lies = [(t.shape, t.stride(), t.storage_offset(), t.device) for t in (part, made)]
            assert lies[0] == lies[1] and not made._is_view()
            assert made.untyped_storage().nbytes() == whole.untyped_storage().nbytes()


def test_vectors_lie_as_the_library_for_gpus_leaves_them():
    with FakeTensorMode():
        for device, turned in (("cpu", (1, 2)), ("cuda", (3, 1))):
            x = torch.ones(2, 3, device=device)
            assert torch.linalg.svd(x, full_matrices=False)[2].stride() == turned
            assert torch.linalg.eig(x[:, :2])[1].stride() == ((1, 2) if device == "cpu" else (2, 1))
