"""What distributions share: shapes of parameters, probabilities and logits."""

from __future__ import annotations

from typing import Any

import torchlike

__all__ = [
    "broadcast_all",
    "clamp_probs",
    "lazy_property",
    "logits_to_probs",
    "probs_to_logits",
    "tril_matrix_to_vec",
    "vec_to_tril_matrix",
]

euler_constant = 0.57721566490153286060


def broadcast_all(*values: Any) -> Any:
    """The values as tensors of one shape; numbers take dtype and device of the first tensor.

    Raises:
        ValueError: if one is neither a tensor nor a number.
    """
    kinds = (torchlike.Tensor, int, float, bool, complex)
    if not all(isinstance(v, kinds) for v in values):
        raise ValueError(
            "Input arguments must all be instances of Number, torch.Tensor or objects implementing __torch_function__."
        )
    tensors = [v for v in values if isinstance(v, torchlike.Tensor)]
    options: dict[str, Any] = {"dtype": torchlike.get_default_dtype()}
    if tensors:
        options = {"dtype": tensors[0].dtype, "device": tensors[0].device}
    if len(tensors) == len(values):
        return torchlike.broadcast_tensors(*values)
    return torchlike.broadcast_tensors(
        *(v if isinstance(v, torchlike.Tensor) else torchlike.tensor(v, **options) for v in values)
    )


def _standard_normal(shape: Any, dtype: Any, device: Any) -> Any:
    return torchlike.normal(
        torchlike.zeros(shape, dtype=dtype, device=device),
        torchlike.ones(shape, dtype=dtype, device=device),
    )


def _sum_rightmost(value: Any, dim: int) -> Any:
    """The sum over the last dimensions."""
    return value if dim == 0 else value.reshape((*value.shape[:-dim], -1)).sum(-1)


def logits_to_probs(logits: Any, is_binary: bool = False) -> Any:
    """Probabilities of log odds, or of unnormalised logarithms along the last dimension."""
    if is_binary:
        return torchlike.sigmoid(logits)
    return torchlike.nn.functional.softmax(logits, dim=-1)


def clamp_probs(probs: Any) -> Any:
    """Probabilities that are neither 0 nor 1."""
    eps = torchlike.finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def probs_to_logits(probs: Any, is_binary: bool = False) -> Any:
    """Log odds of probabilities, or their logarithms."""
    clamped = clamp_probs(probs)
    if is_binary:
        return torchlike.log(clamped) - torchlike.log1p(-clamped)
    return torchlike.log(clamped)


class lazy_property:
    """A property that is computed once, with gradients enabled."""

    def __init__(self, wrapped: Any) -> None:
        self.wrapped = wrapped
        self.__doc__ = wrapped.__doc__
        self.__name__ = wrapped.__name__

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return _lazy_property_and_property(self.wrapped)
        with torchlike.enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.wrapped.__name__, value)
        return value


class _lazy_property_and_property(lazy_property, property):
    """What a class shows of such a property."""

    def __init__(self, wrapped: Any) -> None:
        property.__init__(self, wrapped)


def tril_matrix_to_vec(mat: Any, diag: int = 0) -> Any:
    """The elements of a lower triangle, row by row."""
    n = mat.shape[-1]
    if not -n <= diag < n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    places = torchlike.arange(n, device=mat.device)
    mask = places < places.view(-1, 1) + (diag + 1)
    return mat[..., mask]


def vec_to_tril_matrix(vec: Any, diag: int = 0) -> Any:
    """The matrix with these elements in its lower triangle."""
    n = (
        -(1 + 2 * diag)
        + ((1 + 2 * diag) ** 2 + 8 * vec.shape[-1] + 4 * abs(diag) * (diag + 1)) ** 0.5
    ) / 2
    if round(n) - n > torchlike.finfo(vec.dtype).eps:
        raise ValueError(
            f"The size of last dimension is {vec.shape[-1]} which cannot be expressed as the lower triangular part "
            "of a square D x D matrix."
        )
    size = round(n)
    mat = vec.new_zeros((*vec.shape[:-1], size, size))
    places = torchlike.arange(size, device=vec.device)
    mask = places < places.view(-1, 1) + (diag + 1)
    mat[..., mask] = vec
    return mat
