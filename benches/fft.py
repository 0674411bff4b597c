"""Fourier transforms beside PyTorch's: `python benches/fft.py [--torch PYTHON] [--before PYTHON] [--filter REGEX]`.

Transforms of one dimension (powers of two, smooth numbers, primes), of two and three, of batches, along strided
dimensions, from and to real numbers, with one thread and with two. Ratios above 1 mean that torchlike is faster.
"""

from __future__ import annotations

import _turns

DTYPES = {"c64": "torch.complex64", "c128": "torch.complex128"}
LENGTHS = (64, 1024, 65536, 1 << 20, 1000, 10007, 44100)


def cases() -> _turns.Cases:
    """Setup and statement of each case."""
    out = {}
    for dtype, word in DTYPES.items():
        real = "torch.float32" if dtype == "c64" else "torch.float64"
        for n in LENGTHS:
            setup = f"x = torch.randn({n}, dtype={word}); r = torch.randn({n}, dtype={real}); h = torch.fft.rfft(r)"
            out[f"fft/{dtype}/{n}"] = (setup, "torch.fft.fft(x)")
            out[f"ifft/{dtype}/{n}"] = (setup, "torch.fft.ifft(x)")
            out[f"rfft/{dtype}/{n}"] = (setup, "torch.fft.rfft(r)")
            out[f"irfft/{dtype}/{n}"] = (setup, f"torch.fft.irfft(h, {n})")
        for rows, n in ((1000, 64), (256, 1024), (64, 4096), (100, 1009)):
            size = f"{rows}, {n}"
            setup = (
                f"x = torch.randn({size}, dtype={word}); r = torch.randn({size}, dtype={real}); "
            )
            setup += "h = torch.fft.rfft(r)"
            out[f"fft_rows/{dtype}/{rows}x{n}"] = (setup, "torch.fft.fft(x)")
            out[f"fft_columns/{dtype}/{rows}x{n}"] = (setup, "torch.fft.fft(x, dim=0)")
            out[f"rfft_rows/{dtype}/{rows}x{n}"] = (setup, "torch.fft.rfft(r)")
            out[f"irfft_rows/{dtype}/{rows}x{n}"] = (setup, f"torch.fft.irfft(h, {n})")
        for shape in ("64, 64", "256, 256", "1024, 1024", "8, 3, 224, 224", "500, 300"):
            setup = (
                f"x = torch.randn({shape}, dtype={word}); r = torch.randn({shape}, dtype={real}); "
            )
            setup += "h = torch.fft.rfft2(r)"
            name = shape.replace(", ", "x")
            out[f"fft2/{dtype}/{name}"] = (setup, "torch.fft.fft2(x)")
            out[f"rfft2/{dtype}/{name}"] = (setup, "torch.fft.rfft2(r)")
            out[f"irfft2/{dtype}/{name}"] = (setup, "torch.fft.irfft2(h, s=r.shape[-2:])")
        setup = f"x = torch.randn(64, 64, 64, dtype={word})"
        out[f"fftn/{dtype}/64x64x64"] = (setup, "torch.fft.fftn(x)")
    return out


if __name__ == "__main__":
    _turns.main(__doc__, __file__, cases())
