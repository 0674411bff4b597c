"""Ready-made parametrizations."""

from __future__ import annotations

from typing import Any

import torchlike as torch
from torchlike.nn import functional as F
from torchlike.nn.modules.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from torchlike.nn.modules.module import Module
from torchlike.nn.utils import parametrize
from torchlike.nn.utils._orthogonal import orthogonal

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


class _WeightNorm(Module):
    """A direction and a magnitude."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Any, weight_v: Any) -> Any:
        return torch._weight_norm(weight_v, weight_g, self.dim)

    def right_inverse(self, weight: Any) -> Any:
        """Magnitude and direction of ``weight``."""
        return torch.norm_except_dim(weight, 2, self.dim), weight


def weight_norm(module: Any, name: str = "weight", dim: int | None = 0) -> Any:
    """Compute a weight from a direction and a magnitude."""
    norm = _WeightNorm(dim)
    parametrize.register_parametrization(module, name, norm, unsafe=True)

    def old_names(state_dict: Any, prefix: str, *unused: Any) -> None:
        pair = [f"{prefix}{name}_g", f"{prefix}{name}_v"]
        if all(key in state_dict for key in pair):
            for i, key in enumerate(pair):
                state_dict[f"{prefix}parametrizations.{name}.original{i}"] = state_dict.pop(key)

    module._register_load_state_dict_pre_hook(old_names)
    return module


class _SpectralNorm(Module):
    """Division by the largest singular value."""

    _u: Any
    _v: Any

    def __init__(
        self, weight: Any, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12
    ) -> None:
        super().__init__()
        ndim = weight.ndim
        if dim >= ndim or dim < -ndim:
            raise IndexError(
                "Dimension out of range (expected to be in range of "
                f"[-{ndim}, {ndim - 1}] but got {dim})"
            )
        if n_power_iterations <= 0:
            raise ValueError(
                "Expected n_power_iterations to be positive, "
                f"but got n_power_iterations={n_power_iterations}"
            )
        self.dim = dim if dim >= 0 else dim + ndim
        self.eps = eps
        if ndim > 1:
            self.n_power_iterations = n_power_iterations
            matrix = self._matrix(weight)
            rows, cols = matrix.size()
            u = matrix.new_empty(rows).normal_(0, 1)
            v = matrix.new_empty(cols).normal_(0, 1)
            self.register_buffer("_u", F.normalize(u, dim=0, eps=self.eps))
            self.register_buffer("_v", F.normalize(v, dim=0, eps=self.eps))
            self._power_method(matrix, 15)

    def _matrix(self, weight: Any) -> Any:
        if self.dim != 0:
            others = (d for d in range(weight.dim()) if d != self.dim)
            weight = weight.permute(self.dim, *others)
        return weight.flatten(1)

    def _power_method(self, matrix: Any, steps: int) -> None:
        with torch.no_grad():
            for _ in range(steps):
                u = F.normalize(torch.mv(matrix, self._v), dim=0, eps=self.eps)
                self._u.copy_(u)
                v = F.normalize(torch.mv(matrix.H, self._u), dim=0, eps=self.eps)
                self._v.copy_(v)

    def forward(self, weight: Any) -> Any:
        if weight.ndim == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = self._matrix(weight)
        if self.training:
            self._power_method(matrix, self.n_power_iterations)
        u, v = self._u.clone(), self._v.clone()
        return weight / torch.vdot(u, torch.mv(matrix, v))

    def right_inverse(self, value: Any) -> Any:
        """The weight itself: it is normalised when it is read."""
        return value


def spectral_norm(
    module: Any,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Any:
    """Compute a weight with largest singular value one."""
    weight = getattr(module, name, None)
    if not isinstance(weight, torch.Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if dim is None:
        dim = int(isinstance(module, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)))
    norm = _SpectralNorm(weight, n_power_iterations, dim, eps)
    return parametrize.register_parametrization(module, name, norm)
