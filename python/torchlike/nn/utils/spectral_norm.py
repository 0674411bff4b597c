"""Division of a weight by its largest singular value by a hook before forward, the older way."""

from __future__ import annotations

from typing import Any

import torchlike as torch
from torchlike.nn import functional as F
from torchlike.nn.modules.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from torchlike.nn.parameter import Parameter, UninitializedParameter

__all__ = ["SpectralNorm", "remove_spectral_norm", "spectral_norm"]


class SpectralNorm:
    """The hook: a step of the power iteration in training, then the division."""

    def __init__(
        self, name: str = "weight", n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12
    ) -> None:
        if n_power_iterations <= 0:
            raise ValueError(
                "Expected n_power_iterations to be positive, "
                f"but got n_power_iterations={n_power_iterations}"
            )
        self.name = name
        self.n_power_iterations = n_power_iterations
        self.dim = dim
        self.eps = eps

    def reshape_weight_to_matrix(self, weight: Any) -> Any:
        """The weight with its outputs as rows."""
        if self.dim != 0:
            others = (d for d in range(weight.dim()) if d != self.dim)
            weight = weight.permute(self.dim, *others)
        return weight.reshape(weight.size(0), -1)

    def compute_weight(self, module: Any, do_power_iteration: bool) -> Any:
        """The weight divided by the present estimate of its largest singular value."""
        weight = getattr(module, self.name + "_orig")
        u, v = getattr(module, self.name + "_u"), getattr(module, self.name + "_v")
        matrix = self.reshape_weight_to_matrix(weight)
        if do_power_iteration:
            with torch.no_grad():
                for _ in range(self.n_power_iterations):
                    v.copy_(F.normalize(matrix.t().mv(u), dim=0, eps=self.eps))
                    u.copy_(F.normalize(matrix.mv(v), dim=0, eps=self.eps))
                u, v = u.clone(), v.clone()
        return weight / torch.dot(u, torch.mv(matrix, v))

    def _solve(self, matrix: Any, u: Any, sigma: Any) -> Any:
        """A vector whose image points along ``u``, such that ``u`` and it give ``sigma``."""
        inverse = matrix.t().mm(matrix).pinverse()
        v = torch.linalg.multi_dot([inverse, matrix.t(), u.unsqueeze(1)]).squeeze(1)
        return v.mul_(sigma / torch.dot(u, torch.mv(matrix, v)))

    def __call__(self, module: Any, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module, module.training))


class SpectralNormLoadStateDictPreHook:
    """Makes a state of the older form, of the weight and one vector, one of both vectors."""

    def __init__(self, fn: SpectralNorm) -> None:
        self.fn = fn

    def __call__(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        norm, key = self.fn, prefix + self.fn.name
        version = local_metadata.get("spectral_norm", {}).get(norm.name + ".version")
        if version is not None and version >= 1:
            return
        present = all(f"{key}_{part}" in state_dict for part in ("orig", "u", "v"))
        if version is None and present and key not in state_dict:
            return  # of the newer form, without its mark
        missing = [name for name in (f"{key}_orig", key, f"{key}_u") if name not in state_dict]
        if missing:
            missing_keys.extend(missing if strict else ())
            return
        with torch.no_grad():
            original, weight = state_dict[f"{key}_orig"], state_dict.pop(key)
            sigma = (original / weight).mean()
            matrix = norm.reshape_weight_to_matrix(original)
            state_dict[f"{key}_v"] = norm._solve(matrix, state_dict[f"{key}_u"], sigma)


class SpectralNormStateDictHook:
    """Says in the state which form of it this is: one that has both vectors."""

    def __init__(self, fn: SpectralNorm) -> None:
        self.fn = fn

    def __call__(self, module: Any, state_dict: Any, prefix: str, local_metadata: Any) -> None:
        local_metadata.setdefault("spectral_norm", {})[self.fn.name + ".version"] = 1


def _hook(module: Any, name: str) -> tuple[int, SpectralNorm] | None:
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, SpectralNorm) and hook.name == name:
            return key, hook
    return None


def spectral_norm(
    module: Any,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Any:
    """Keep a weight's largest singular value at one: ``name_orig`` is what is trained."""
    if dim is None:
        dim = int(isinstance(module, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)))
    if _hook(module, name) is not None:
        raise RuntimeError(f"Cannot register two spectral_norm hooks on the same parameter {name}")
    norm = SpectralNorm(name, n_power_iterations, dim, eps)
    weight = module._parameters[name]
    if weight is None:
        raise ValueError(f"`SpectralNorm` cannot be applied as parameter `{name}` is None")
    if isinstance(weight, UninitializedParameter):
        raise ValueError(
            "The module passed to `SpectralNorm` can't have uninitialized parameters. "
            "Make sure to run the dummy forward before applying spectral normalization"
        )
    with torch.no_grad():
        rows, columns = norm.reshape_weight_to_matrix(weight).shape
        u = F.normalize(weight.new_empty(rows).normal_(0, 1), dim=0, eps=eps)
        v = F.normalize(weight.new_empty(columns).normal_(0, 1), dim=0, eps=eps)
    del module._parameters[name]
    module.register_parameter(name + "_orig", weight)
    setattr(module, name, weight.data)  # an ordinary attribute: the hook replaces it at each call
    module.register_buffer(name + "_u", u)
    module.register_buffer(name + "_v", v)
    module.register_forward_pre_hook(norm)
    module._register_state_dict_hook(SpectralNormStateDictHook(norm))
    module._register_load_state_dict_pre_hook(SpectralNormLoadStateDictPreHook(norm))
    return module


def remove_spectral_norm(module: Any, name: str = "weight") -> Any:
    """Make the weight an ordinary parameter again."""
    found = _hook(module, name)
    if found is None:
        raise ValueError(f"spectral_norm of '{name}' not found in {module}")
    key, hook = found
    with torch.no_grad():
        weight = hook.compute_weight(module, do_power_iteration=False)
    for old in (name, name + "_u", name + "_v", name + "_orig"):
        delattr(module, old)
    module.register_parameter(name, Parameter(weight.detach()))
    del module._forward_pre_hooks[key]
    for other, saved in module._state_dict_hooks.items():
        if isinstance(saved, SpectralNormStateDictHook) and saved.fn.name == name:
            del module._state_dict_hooks[other]
            break
    for other, loads in module._load_state_dict_pre_hooks.items():
        if isinstance(loads, SpectralNormLoadStateDictPreHook) and loads.fn.name == name:
            del module._load_state_dict_pre_hooks[other]
            break
    return module
