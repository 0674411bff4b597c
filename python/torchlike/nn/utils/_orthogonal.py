"""A parametrization by which a matrix has orthonormal columns, or rows if it is wide."""

from __future__ import annotations

import enum
from typing import Any

import torchlike as torch
from torchlike.context import no_grad
from torchlike.nn.modules.module import Module
from torchlike.nn.utils import parametrize


class _OrthMaps(enum.Enum):
    matrix_exp = enum.auto()
    cayley = enum.auto()
    householder = enum.auto()


def _is_orthogonal(q: Any) -> bool:
    rows, columns = q.size(-2), q.size(-1)
    identity = torch.eye(columns, dtype=q.dtype, device=q.device)
    return torch.allclose(q.mH @ q, identity, atol=10 * rows * torch.finfo(q.dtype).eps)


def _made_orthogonal(a: Any) -> Any:
    """The factor Q of a matrix, with columns on the side of the matrix's own."""
    reflections, tau = torch.geqrf(a)
    q = torch.linalg.householder_product(reflections, tau)
    return q * reflections.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)


class _Orthogonal(Module):
    """An orthogonal matrix from any matrix of the same size, by one of three maps."""

    base: Any

    def __init__(self, weight: Any, orthogonal_map: _OrthMaps, *, use_trivialization: bool = True):
        super().__init__()
        if weight.is_complex() and orthogonal_map == _OrthMaps.householder:
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.shape = weight.shape
        self.orthogonal_map = orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Any) -> Any:
        wide = X.size(-2) < X.size(-1)
        tall = X.mT if wide else X
        q = self._mapped(tall)
        if hasattr(self, "base"):
            q = self.base @ q
        return q.mT if wide else q

    def _mapped(self, x: Any) -> Any:
        if self.orthogonal_map is _OrthMaps.householder:
            below = x.tril(diagonal=-1)
            tau = 2.0 / (1.0 + (below * below.conj()).sum(dim=-2))
            q = torch.linalg.householder_product(below, tau)
            return q * x.diagonal(dim1=-2, dim2=-1).int().unsqueeze(-2)
        rows, columns = x.size(-2), x.size(-1)
        x = x.tril()
        if rows != columns:
            zeros = x.new_zeros(rows, rows - columns).expand(*x.shape[:-2], -1, -1)
            x = torch.cat([x, zeros], dim=-1)
        skew = x - x.mH
        if self.orthogonal_map is _OrthMaps.matrix_exp:
            q = torch.matrix_exp(skew)
        else:
            identity = torch.eye(rows, dtype=skew.dtype, device=skew.device)
            q = torch.linalg.solve(
                torch.add(identity, skew, alpha=-0.5), torch.add(identity, skew, alpha=0.5)
            )
        return q if rows == columns else q[..., :columns]

    def right_inverse(self, Q: Any) -> Any:
        """A matrix of which ``forward`` makes ``Q``, or what is closest to it."""
        with no_grad():
            return self._start(Q)

    def _start(self, Q: Any) -> Any:
        if self.shape != Q.shape:
            raise ValueError(
                f"Expected a matrix or batch of matrices of shape {self.shape}. "
                f"Got a tensor of shape {Q.shape}."
            )
        wide = Q.size(-2) < Q.size(-1)
        tall = Q.mT if wide else Q
        if hasattr(self, "base"):
            self.base = self._basis(tall)
            start = torch.zeros_like(Q)
            start.diagonal(dim1=-2, dim2=-1).fill_(-1.0)
            return start
        if self.orthogonal_map is not _OrthMaps.householder:
            raise NotImplementedError(
                "It is not possible to assign to the matrix exponential or the Cayley parametrizations "
                "when use_trivialization=False."
            )
        reflections, tau = torch.geqrf(tall)
        diagonal = reflections.diagonal(dim1=-2, dim2=-1)
        diagonal.sign_()
        diagonal[torch.eq(tau, 0.0)] *= -1
        return reflections.mT if wide else reflections

    def _basis(self, tall: Any) -> Any:
        """A square orthogonal matrix that begins with the columns of this one."""
        rows, columns = tall.size(-2), tall.size(-1)
        if rows == columns:
            return tall.clone() if _is_orthogonal(tall) else _made_orthogonal(tall)
        more = torch.randn(
            *(*tall.size()[:-2], rows, rows - columns), dtype=tall.dtype, device=tall.device
        )
        return _made_orthogonal(torch.cat([tall, more], dim=-1))


def orthogonal(
    module: Any,
    name: str = "weight",
    orthogonal_map: str | None = None,
    *,
    use_trivialization: bool = True,
) -> Any:
    """Compute a weight with orthonormal columns, or rows if it is wide.

    Args:
        orthogonal_map: "matrix_exp", "cayley" or "householder"; by default the first for square and complex weights,
            else the last.
        use_trivialization: steps are taken from a basis of their own, so that any weight can be assigned.
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, torch.Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if weight.ndim < 2:
        raise ValueError(
            f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions."
        )
    if orthogonal_map is None:
        square = weight.size(-2) == weight.size(-1)
        orthogonal_map = "matrix_exp" if square or weight.is_complex() else "householder"
    found = getattr(_OrthMaps, orthogonal_map, None)
    if found is None:
        raise ValueError(
            'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". '
            f"Got: {orthogonal_map}"
        )
    made = _Orthogonal(weight, found, use_trivialization=use_trivialization)
    return parametrize.register_parametrization(module, name, made, unsafe=True)
