"""Tensors that are more than strided numbers: sparse, nested and quantised ones, as checkpoints hold them."""

import copy
import json
import pathlib
import pickle

import pytest

import torchlike as torch

DATA = pathlib.Path(__file__).parent / "data"
MORE = DATA / "ckpt" / "more"
TEXTS = json.loads((DATA / "parts.json").read_text())
QUANTIZED = [name for name in TEXTS if name.startswith("quantized")]
SPARSE = [name for name in TEXTS if name not in QUANTIZED]


def text(t):
    return repr(t).replace("torchlike.", "torch.")


@pytest.mark.parametrize("name", TEXTS)
def test_they_are_printed_as_pytorch_prints_them(name):
    assert text(torch.load(MORE / name)) == TEXTS[name]


@pytest.mark.parametrize("name", SPARSE)
def test_they_know_on_meta_how_to_become_real(name, tmp_path):
    t = torch.load(MORE / name, map_location="meta")
    assert t.is_meta
    assert "..." in text(t)
    assert torch.load(MORE / name).numel() == t.numel()
    torch.save(t, tmp_path / "x.pt", materialize=True)
    assert text(torch.load(tmp_path / "x.pt")) == TEXTS[name]
    assert text(torch.materialize(t)) == TEXTS[name]


@pytest.mark.parametrize("name", TEXTS)
def test_they_are_saved_and_copied_whole(name, tmp_path):
    t = torch.load(MORE / name)
    torch.save(t, tmp_path / "x.pt")
    copies = [
        torch.load(tmp_path / "x.pt"),
        t.clone(),
        t.detach(),
        t.cpu(),
        t.to("cpu", copy=True),
        copy.deepcopy(t),
        pickle.loads(pickle.dumps(t)),
    ]
    for other in copies:
        assert text(other) == TEXTS[name]
    assert text(t.to("meta")).startswith(TEXTS[name].partition("(")[0])


@pytest.mark.parametrize("name", [name for name in TEXTS if "nested" not in name])
def test_what_they_cannot_do_says_what_can_be_done(name):
    t = torch.load(MORE / name)
    way = "dequantize|to_dense"
    acts = [lambda: t.exp(), lambda: t.tolist()]
    if "sparse" not in name:
        acts += [
            lambda: torch.add(torch.ones(()), t, out=torch.empty(0)),
            lambda: t + 1,
            lambda: torch.zeros_like(t),
            lambda: t.sum(),
        ]
    for act in acts:
        with pytest.raises(NotImplementedError, match=way):
            act()
    assert text(t) == TEXTS[name]


def test_the_integers_and_the_numbers_they_stand_for():
    t = torch.load(MORE / "quantized_per_tensor.pt")
    real = (t.int_repr().float() - t.q_zero_point()) * t.q_scale()
    assert torch.equal(t.dequantize(), real)
    assert t.int_repr().dtype == torch.int8
    # Zero points may be real numbers.
    t = torch.load(MORE / "quantized_real_zeros.pt")
    assert t.qscheme() == torch.per_channel_affine_float_qparams
    scales, zeros = t.q_per_channel_scales(), t.q_per_channel_zero_points()
    assert torch.equal(t.dequantize(), (t.int_repr() - zeros[:, None]) * scales[:, None])


def test_numbers_of_less_than_a_byte():
    t = torch.load(MORE / "quantized_4_bits_per_tensor.pt")
    assert (t.shape, t.stride(), t.dtype) == ((3, 3), (3, 1), torch.quint4x2)
    packed = t.int_repr()  # two a byte, the first in the lower half
    assert packed.shape == (5,)
    numbers = [n for byte in packed.tolist() for n in (byte & 15, byte >> 4)][: t.numel()]
    want = (torch.tensor(numbers).reshape(3, 3) - t.q_zero_point()) * t.q_scale()
    assert torch.equal(t.dequantize(), want)


def test_views_keep_a_quantizer_unless_they_could_move_its_channels():
    t = torch.load(MORE / "quantized_per_tensor.pt")
    assert torch.equal(t[..., :1].dequantize(), t.dequantize()[..., :1])
    assert torch.equal(t.t().dequantize(), t.dequantize().t())
    t = torch.load(MORE / "quantized_per_channel.pt")
    for act in (lambda: t[0], lambda: t.t(), lambda: t.T, lambda: t.view(-1)):
        with pytest.raises(RuntimeError, match="uniformly quantized"):
            act()


@pytest.mark.parametrize("name", SPARSE)
def test_casts_change_the_values_alone(name):
    t = torch.load(MORE / name)
    for other in (t.double(), t.to(torch.float64), t.type_as(torch.zeros((), dtype=torch.float64))):
        assert other.dtype == torch.float64
        assert other.layout == t.layout
        assert text(other.float()) == TEXTS[name]
    meta = t.to("meta", torch.float64)
    assert (meta.is_meta, meta.dtype, meta.layout) == (True, torch.float64, t.layout)
    if t.is_nested:
        assert [x.dtype for x in t.half().unbind()] == [torch.float16] * 2
    else:
        assert t.half().to_dense().dtype == torch.float16


@pytest.mark.parametrize("name", QUANTIZED)
def test_quantized_numbers_are_no_casts_of_others(name):
    t = torch.load(MORE / name)
    for act in (t.float, lambda: t.to(torch.int8), lambda: torch.ones(2).to(t.dtype)):
        with pytest.raises(NotImplementedError):
            act()


@pytest.mark.parametrize("name", QUANTIZED)
def test_quantized_numbers_on_meta_are_not_known(name):
    t = torch.load(MORE / name).to("meta")
    with pytest.raises(NotImplementedError, match="on meta are not known"):
        t.int_repr()


@pytest.mark.parametrize("name", QUANTIZED)
def test_a_quantizer_without_its_numbers_is_not_saved(name, tmp_path):
    t = torch.load(MORE / name).to("meta")
    with pytest.raises(NotImplementedError, match="on meta cannot be saved"):
        torch.save(t, tmp_path / "x.pt")
    assert not list(tmp_path.iterdir())
