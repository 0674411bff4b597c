"""Fourier transforms: against NumPy's, PyTorch's layouts, and what is refused."""

import numpy as np
import pytest

import torchlike as tl
from torchlike import fft

ONE = ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"]
MANY = ["fftn", "ifftn", "rfftn", "irfftn"]
RNG = np.random.default_rng(7)


def values(name: str, shape: tuple[int, ...]) -> np.ndarray:
    x = RNG.standard_normal(shape)
    if name in ("rfft", "ihfft", "rfftn"):
        return x
    return x + 1j * RNG.standard_normal(shape)


def close(ours: tl.Tensor, theirs: np.ndarray, tolerance: float = 1e-12) -> None:
    assert tuple(ours.shape) == theirs.shape
    np.testing.assert_allclose(ours.resolve_conj().numpy(), theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ONE)
@pytest.mark.parametrize("norm", [None, "backward", "ortho", "forward"])
@pytest.mark.parametrize("n", [None, 1, 2, 5, 8, 13, 97, 128])
def test_lines(name: str, norm: str | None, n: int | None) -> None:
    x = values(name, (3, 8))
    for dim in (0, 1, -1):
        theirs = getattr(np.fft, name)(x, n, dim, norm or "backward")
        close(getattr(fft, name)(tl.from_numpy(x.copy()), n, dim, norm), theirs)


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft"])
@pytest.mark.parametrize("n", [6, 10, 14, 18, 32, 42, 128, 420, 512, 1008])
def test_many_lines_of_lengths_with_several_factors(name: str, n: int) -> None:
    for count in (5, 8, 13):
        x = values(name, (count, n // 2 + 1 if name == "irfft" else n))
        for dim, a in ((1, x), (0, x.T)):
            theirs = getattr(np.fft, name)(a, n, dim)
            t = tl.from_numpy(a.copy())
            close(getattr(fft, name)(t, n, dim), theirs, 1e-11)
            single = t.to(tl.complex64 if t.is_complex() else tl.float32)
            close(getattr(fft, name)(single, n, dim), theirs, 3e-4)


@pytest.mark.parametrize("name", MANY)
@pytest.mark.parametrize("dims", [(0, 1, 2), (2, 0), (1,), (-1, -2)])
def test_several_dimensions(name: str, dims: tuple[int, ...]) -> None:
    x = values(name, (3, 4, 6))
    theirs = getattr(np.fft, name)(x, axes=dims)
    close(getattr(fft, name)(tl.from_numpy(x.copy()), dim=dims), theirs)
    sizes = (5, 4, 2)[: len(dims)]
    theirs = getattr(np.fft, name)(x, sizes, dims, "ortho")
    close(getattr(fft, name)(tl.from_numpy(x.copy()), sizes, dims, "ortho"), theirs)


def test_single_precision_and_other_layouts() -> None:
    x = RNG.standard_normal((5, 16, 7)).astype(np.float32)
    for t, a in ((tl.from_numpy(x), x), (tl.from_numpy(x).permute(2, 0, 1), x.transpose(2, 0, 1))):
        for dim in range(3):
            made = fft.fft(t, dim=dim)
            assert made.dtype == tl.complex64
            close(made, np.fft.fft(a.astype(np.float64), axis=dim), 1e-4)
    assert fft.fft(tl.arange(4)).dtype == tl.complex64
    assert fft.irfft(tl.ones(3)).dtype == tl.float32


def test_hermitian_transforms_undo_each_other() -> None:
    x = tl.from_numpy(RNG.standard_normal((4, 6)))
    close(fft.hfftn(fft.ihfftn(x), s=(4, 6)), x.numpy())
    close(fft.hfftn(fft.ihfftn(x, dim=1), s=(6,), dim=1), x.numpy())
    close(fft.hfft2(fft.ihfft2(x), s=(4, 6)), x.numpy())


# Shape, strides (of a permuted tensor), dimensions, and PyTorch's strides of the result.
LAYOUTS = [
    ((2, 3, 4, 5), (60, 20, 5, 1), (1,), (60, 1, 15, 3)),
    ((2, 3, 4, 5), (60, 20, 5, 1), (2, 0), (4, 40, 1, 8)),
    ((2, 3, 4, 5), (60, 20, 5, 1), (0, 1, 2, 3), (60, 20, 5, 1)),
    ((2, 4, 3, 5), (60, 5, 20, 1), (0, 2), (3, 30, 1, 6)),
    ((5, 2, 4, 3), (1, 60, 5, 20), (3, 1), (6, 3, 30, 1)),
    ((2, 3, 4, 5), (60, 0, 5, 1), (3,), (60, 5, 15, 1)),
]


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(("shape", "strides", "dims", "result"), LAYOUTS)
def test_results_lie_as_pytorchs(shape, strides, dims, result, device) -> None:
    t = tl.empty_strided(shape, strides, dtype=tl.complex64, device=device)
    assert tl._fft_c2c(t, dims, 0, True).stride() == result


def test_frequencies_and_shifts() -> None:
    for n in (1, 4, 5):
        close(fft.fftfreq(n, 0.5, dtype=tl.float64), np.fft.fftfreq(n, 0.5))
        close(fft.rfftfreq(n, 0.5, dtype=tl.float64), np.fft.rfftfreq(n, 0.5))
    # PyTorch's bits.
    assert fft.fftfreq(7, 0.3, dtype=tl.float16).view(tl.int16).tolist() == [
        0, 14238, 15262, 15798, -16970, -17506, -18530,
    ]  # fmt: skip
    assert fft.rfftfreq(7, 0.3).view(tl.int32).tolist() == [0, 1056165693, 1064554301, 1068948334]
    x = np.arange(12.0).reshape(3, 4)
    close(fft.fftshift(tl.from_numpy(x)), np.fft.fftshift(x))
    close(fft.ifftshift(tl.from_numpy(x), 1), np.fft.ifftshift(x, 1))


def test_short_time_transforms_and_back() -> None:
    x = tl.from_numpy(RNG.standard_normal((2, 40)))
    window = tl.signal.windows.hann(8, sym=False, dtype=tl.float64)
    made = tl.stft(x, 8, window=window, return_complex=True)
    assert made.shape == (2, 5, 21) and made.stride() == (105, 1, 5)
    frame = np.pad(x.numpy(), ((0, 0), (4, 4)), mode="reflect")[:, 6:14] * window.numpy()
    close(made[:, :, 3], np.fft.rfft(frame))
    close(tl.istft(made, 8, window=window), x.numpy())
    assert (
        tl.stft(x.to("meta"), 8, window=window.to("meta"), return_complex=True).shape == made.shape
    )


REFUSED = [
    (lambda: fft.fft(tl.ones(3), n=0), "Invalid number of data points (0) specified"),
    (lambda: fft.fft(tl.ones(3).half()), "Unsupported dtype Half"),
    (
        lambda: fft.rfft(tl.ones(3, dtype=tl.complex64)),
        "rfft expects a real input tensor, but got ComplexFloat",
    ),
    (lambda: fft.fft(tl.ones(3), norm="x"), 'Invalid normalization mode: "x"'),
    (
        lambda: fft.fft2(tl.ones(3, 4), s=(2,)),
        "When given, dim and shape arguments must have the same length",
    ),
    (lambda: fft.fftn(tl.ones(3, 4), dim=(0, 0)), "FFT dims must be unique"),
    (lambda: fft.rfft2(tl.ones(3, 4), dim=()), "rfftn must transform at least one axis"),
    (lambda: fft.fft(tl.tensor(1.0)), "Dimension specified as -1 but tensor has no dimensions"),
    (lambda: tl._fft_c2r(tl.ones(3, dtype=tl.complex64), [0], 0, 9), "too small"),
    (lambda: tl.stft(tl.ones(9), 4), "stft requires the return_complex parameter"),
    (lambda: tl.istft(tl.ones(5, 6), 8), "istft requires a complex-valued input tensor"),
]


@pytest.mark.parametrize(("call", "text"), REFUSED)
def test_refused(call, text: str) -> None:
    with pytest.raises((RuntimeError, IndexError)) as e:
        call()
    assert text in str(e.value)


@pytest.mark.parametrize("of", [fft.irfft, fft.hfft, fft.irfft2, fft.hfftn])
def test_real_results_are_not_written_as_complex_ones(of):
    name = of.__name__.removeprefix("fft_").replace("2", "n")
    with pytest.raises(RuntimeError, match=f"{name} expects a floating point output tensor, but"):
        of(tl.ones(3, 4), out=tl.empty(0, dtype=tl.complex128))
