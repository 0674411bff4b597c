"""What the tests of TorchScript share: an input, and comparing what runs give."""

import io

import torchlike as torch

X = [[0.5, -1.0], [3.0, 0.25], [3.0, 0.25]]


def alike(got, want):
    if isinstance(want, torch.Tensor):
        torch.testing.assert_close(got, want)
    elif isinstance(want, list | tuple):
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            alike(a, b)
    elif isinstance(want, dict):
        assert list(got) == list(want)
    else:
        assert (got, type(got)) == (want, type(want))


def through_a_file(scripted):
    buffer = io.BytesIO()
    torch.jit.save(scripted, buffer)
    buffer.seek(0)
    return torch.jit.load(buffer)
