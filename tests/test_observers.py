"""Observers and rounding modules of `ao.quantization`. Numbers are PyTorch 2.13's."""

import pytest

import torchlike as torch
import torchlike.ao.quantization as q
from torchlike.ao.quantization import fake_quantize, observer, qconfig

X = torch.tensor([[-1.0, 0.5, 2.0], [0.25, -3.0, 5.0]])


def parameters(module):
    scale, zero = module.calculate_qparams()
    return pytest.approx(scale.tolist(), rel=1e-5), zero.tolist()


SEEN = [
    (lambda: q.MinMaxObserver(), [8 / 255], [96]),
    (lambda: q.MinMaxObserver(quant_min=0, quant_max=100), [0.08], [38]),
    (
        lambda: q.MinMaxObserver(dtype=torch.qint8, qscheme=torch.per_tensor_symmetric),
        [10 / 255],
        [0],
    ),
    (lambda: q.MinMaxObserver(qscheme=torch.per_tensor_symmetric), [10 / 255], [128]),
    (lambda: q.PerChannelMinMaxObserver(), [3 / 255, 8 / 255], [85, 96]),
    (lambda: q.PerChannelMinMaxObserver(1), [1.25 / 255, 3.5 / 255, 5 / 255], [204, 219, 0]),
    (
        lambda: q.PerChannelMinMaxObserver(dtype=torch.qint8, qscheme=torch.per_channel_symmetric),
        [4 / 255, 10 / 255],
        [0, 0],
    ),
    (lambda: q.MovingAverageMinMaxObserver(0.5), [8 / 255], [96]),
    (lambda: q.MovingAveragePerChannelMinMaxObserver(0.5), [3 / 255, 8 / 255], [85, 96]),
]


@pytest.mark.parametrize("number", range(len(SEEN)))
def test_scales_and_zeros(number):
    make, scale, zero = SEEN[number]
    module = make()
    assert module(X) is X
    assert parameters(module) == (scale, zero)
    state = make()
    state.load_state_dict(module.state_dict())
    assert parameters(state) == (scale, zero)


def test_what_several_tensors_show():
    module = q.MinMaxObserver()
    with pytest.warns(UserWarning, match="must run observer before calling calculate_qparams"):
        assert [t.tolist() for t in module.calculate_qparams()] == [[1.0], [0]]
    for t in (X, X * 2, torch.empty(0)):
        module(t)
    assert (float(module.min_val), float(module.max_val)) == (-6, 10)
    moving = q.MovingAverageMinMaxObserver(0.25)
    for t in (X, X * 2):
        moving(t)
    assert (float(moving.min_val), float(moving.max_val)) == (-3.75, 6.25)
    module.reset_min_max_vals()
    assert str(module) == "MinMaxObserver(min_val=inf, max_val=-inf)"
    recording = q.RecordingObserver()
    recording(X)
    assert torch.equal(recording.get_tensor_value()[0], X)


def test_histograms_leave_outliers_out():
    torch.manual_seed(0)
    x = torch.randn(10_000)
    x[0] = 100.0
    module, whole = q.HistogramObserver(), q.MinMaxObserver()
    for m in (module, whole):
        m(x)
    assert float(module.calculate_qparams()[0]) < float(whole.calculate_qparams()[0])
    assert float(module.histogram.sum()) == 10_000
    module(x * 2)
    assert float(module.histogram.sum()) == pytest.approx(20_000, rel=1e-4)
    assert float(module.max_val) == 200
    module(x * 0.5)
    assert float(module.histogram.sum()) == pytest.approx(30_000, rel=1e-4)
    with pytest.warns(UserWarning, match=r"torch.inf detected"):
        module(torch.tensor([float("inf")]))


REFUSED = [
    (
        lambda: q.MinMaxObserver(qscheme=torch.per_channel_affine),
        NotImplementedError,
        "qscheme only",
    ),
    (lambda: q.MinMaxObserver(dtype=torch.float32), AssertionError, "only works for"),
    (lambda: q.MinMaxObserver(quant_min=5, quant_max=9), AssertionError, "must include 0"),
    (lambda: q.MinMaxObserver(quant_min=0, quant_max=0), AssertionError, "strictly less"),
    (lambda: q.MovingAverageMinMaxObserver(is_dynamic=True), NotImplementedError, "dynamic"),
    (lambda: q.PerChannelMinMaxObserver(is_dynamic=True), NotImplementedError, "dynamic"),
    (lambda: q.FakeQuantize(quant_min=3, quant_max=1), AssertionError, "less than or equal"),
    (lambda: q.FakeQuantize(quant_min=-5, quant_max=9), AssertionError, "quant_min out of bound"),
    (lambda: q.FakeQuantize(quant_min=0, quant_max=999), AssertionError, "quant_max out of bound"),
    (lambda: q.FixedQParamsFakeQuantize(q.MinMaxObserver), AssertionError, "FixedQParamsObserver"),
    (lambda: q.FusedMovingAvgObsFakeQuantize(q.MinMaxObserver), AssertionError, "MovingAverage"),
    (lambda: q.get_default_qconfig("nobody"), AssertionError, "not supported"),
    (lambda: q.PlaceholderObserver().calculate_qparams(), RuntimeError, "should not be called"),
    (lambda: q.ObserverBase(torch.quint8), TypeError, "abstract"),
]


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_is_refused(number):
    make, kind, text = REFUSED[number]
    with pytest.raises(kind, match=text):
        make()


@pytest.mark.parametrize(
    "name", [n for n in fake_quantize.__all__ if n.startswith(("default_", "fused_"))]
)
@pytest.mark.filterwarnings("ignore:Please use quant_min")
def test_rounding_and_its_gradient(name):
    module = getattr(fake_quantize, name)()
    x = X.clone().requires_grad_()
    made = module(x)
    step = module.scale.max()
    if "fixed" not in name:
        assert float((made - x).detach().abs().max()) <= float(step) * 1.01
    made.sum().backward()
    assert set(x.grad.flatten().tolist()) <= {0.0, 1.0}
    before = module.scale.clone()
    module.apply(q.disable_observer)
    module(x * 9)
    assert torch.equal(module.scale, before)
    module.apply(q.disable_fake_quant)
    assert module(x) is x
    module.apply(q.enable_fake_quant)
    module.apply(q.enable_observer)
    assert "fake_quant_enabled=tensor([1]" in str(module)
    assert module.enable_fake_quant(False) is None
    assert int(module.fake_quant_enabled) == 0
    module.enable_observer(False)
    assert int(module.observer_enabled) == 0
    module.disable_fake_quant()
    module.disable_observer()


def test_symmetric_ranges_of_fused_modules_have_one_integer_more_below():
    module = q.FusedMovingAvgObsFakeQuantize(
        quant_min=-128, quant_max=127, dtype=torch.qint8, qscheme=torch.per_tensor_symmetric
    )
    module(torch.tensor([-1.28, 1.0]))
    assert (float(module.scale), int(module.zero_point)) == (pytest.approx(0.01), 0)


def test_zeros_that_are_no_integers():
    x = torch.tensor([[-1.3, 0.2], [0.5, -2.0]])
    scale, zero = torch.tensor([0.0081, 0.0147]), torch.tensor([171.4535, 124.5503])
    made = torch.fake_quantize_per_channel_affine(x, scale, zero, 0, 0, 255)
    expected = [[-1.2996734, 0.1988266], [0.5064106, -1.8308895]]
    torch.testing.assert_close(made, torch.tensor(expected))


MAKERS = """
    default_activation_only_qconfig default_affine_fixed_qparams_fake_quant default_affine_fixed_qparams_observer
    default_debug_observer default_debug_qconfig default_dynamic_fake_quant default_dynamic_qat_qconfig
    default_dynamic_qconfig default_dynamic_quant_observer default_embedding_fake_quant
    default_embedding_fake_quant_4bit default_embedding_qat_qconfig default_embedding_qat_qconfig_4bit
    default_fake_quant default_fixed_qparams_range_0to1_fake_quant default_fixed_qparams_range_0to1_observer
    default_fixed_qparams_range_neg1to1_fake_quant default_fixed_qparams_range_neg1to1_observer
    default_float_qparams_observer default_float_qparams_observer_4bit default_fused_act_fake_quant
    default_fused_per_channel_wt_fake_quant default_fused_wt_fake_quant default_histogram_fake_quant
    default_histogram_observer default_observer default_per_channel_qconfig
    default_per_channel_symmetric_qnnpack_qat_qconfig default_per_channel_symmetric_qnnpack_qconfig
    default_per_channel_weight_fake_quant default_per_channel_weight_observer default_placeholder_observer
    default_qat_qconfig default_qat_qconfig_v2 default_qconfig default_quint8_weight_qconfig
    default_reuse_input_observer default_reuse_input_qconfig default_symmetric_fixed_qparams_fake_quant
    default_symmetric_fixed_qparams_observer default_symmetric_qnnpack_qat_qconfig
    default_symmetric_qnnpack_qconfig default_weight_fake_quant default_weight_observer
    default_weight_only_qconfig float16_dynamic_qconfig float16_static_qconfig float_qparams_weight_only_qconfig
    float_qparams_weight_only_qconfig_4bit fused_per_channel_wt_fake_quant_range_neg_127_to_127
    fused_wt_fake_quant_range_neg_127_to_127 per_channel_dynamic_qconfig
    per_channel_weight_observer_range_neg_127_to_127 weight_observer_range_neg_127_to_127
"""


def test_what_has_a_name():
    homes = (observer, fake_quantize, qconfig)
    there = {
        n for home in homes for n in home.__all__ if "default" in n or "127" in n or "qconfig" in n
    }
    assert set(MAKERS.split()) == there - {
        "get_default_qconfig",
        "get_default_qat_qconfig",
        "qconfig_equals",
    }


@pytest.mark.filterwarnings("ignore:Please use quant_min", "ignore:must run")
def test_makers_with_arguments():
    made = q.MinMaxObserver.with_args(quant_min=0, quant_max=15).with_args(reduce_range=True)
    assert made().quant_max == 7
    kinds = [type(q.get_default_qconfig(b).activation()).__name__ for b in ("x86", "qnnpack")]
    assert kinds == ["HistogramObserver"] * 2
    counted = iter(range(3))
    later = q.NoopObserver.with_callable_args(custom_op_name=lambda: next(counted))
    assert [later().custom_op, later().custom_op] == [0, 1]
    trained = q.get_default_qat_qconfig("qnnpack")
    assert isinstance(trained.activation(), q.FusedMovingAvgObsFakeQuantize)
    for name in qconfig.__all__:
        if name.endswith("qconfig") and not name.startswith("get"):
            assert all(callable(make) and make() is not None for make in getattr(qconfig, name))
    with pytest.raises(NotImplementedError, match="PerGroup is not supported"):
        observer.PerGroup(4)
    assert qconfig.default_qconfig.weight().dtype == torch.qint8
    assert qconfig.default_per_channel_qconfig.weight().ch_axis == 0
    assert qconfig.default_qat_qconfig.activation().quant_max == 127
    assert qconfig.default_dynamic_qconfig.activation().is_dynamic
    for name in observer.__all__:
        if name.startswith("default_") or "127" in name:
            assert isinstance(getattr(observer, name)(), q.ObserverBase)
    assert issubclass(q.MinMaxObserver, q.UniformQuantizationObserverBase)
    assert q.ReuseInputObserver()(X) is X
