"""How long a step would take, by the roofline of a device that need not be there."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from torchlike import _C
from torchlike.distributed._tools.mod_tracker import ModTracker
from torchlike.plan._profile import Profile
from torchlike.plan._profile import profile as find
from torchlike.utils import _pytree as pytree
from torchlike.utils._python_dispatch import TorchDispatchMode
from torchlike.utils.flop_counter import flop_registry

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["RuntimeEstimator"]

_ROOFLINE = "operator-level-cost-model"
_KINDS = (_ROOFLINE, "operator-level-benchmark", "operator-level-learned-model")


class RuntimeEstimator(TorchDispatchMode):
    """Adds up the times of operators, of a step on fake or meta tensors or for real.

    >>> with RuntimeEstimator(profile="h100")("operator-level-cost-model") as estimator:
    ...     model(inputs).sum().backward()
    >>> estimator.total_runtime, estimator.mod_runtimes

    Times are milliseconds. An operator takes as long as its floating point operations at the profile's peak for
    their type, or
    as its bytes at the profile's bandwidth, whichever is more, and the cost of starting it; views take none.
    PyTorch's estimator
    reads the peak from a GPU; here it is a file (`torchlike.plan.profile`).

    Attributes:
        total_runtime: of everything.
        mod_runtimes: by the path of a module, `{"fw": ..., "bw": ...}`, with the modules in it.
        mod_fw_pre_order, mod_fw_post_order, mod_bw_pre_order, mod_bw_post_order: paths in the order of their coming
        and going.
    """

    def __init__(self, profile: str | Profile = "h100") -> None:
        super().__init__()
        self._profile = find(profile) if isinstance(profile, str) else profile
        self._kind = _ROOFLINE
        self._mod_tracker = ModTracker()
        self.total_runtime = 0.0
        self.mod_runtimes: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self.mod_fw_pre_order: list[str] = []
        self.mod_fw_post_order: list[str] = []
        self.mod_bw_pre_order: list[str] = []
        self.mod_bw_post_order: list[str] = []

    def __call__(self, estimate_mode_type: str = _ROOFLINE) -> RuntimeEstimator:
        """Says how times are found.

        Raises:
            NotImplementedError: for "operator-level-benchmark" and "operator-level-learned-model", which need the
            device itself.
            ValueError: for anything else but "operator-level-cost-model".
        """
        if estimate_mode_type not in _KINDS:
            raise ValueError(
                f"estimate_mode_type {estimate_mode_type!r} not supported: one of {', '.join(_KINDS)}"
            )
        if estimate_mode_type != _ROOFLINE:
            raise NotImplementedError(
                f"RuntimeEstimator: {estimate_mode_type!r} needs the device; {_ROOFLINE!r} does not"
            )
        self._kind = estimate_mode_type
        return self

    def __enter__(self) -> Any:
        self.total_runtime = 0.0
        self.mod_runtimes.clear()
        for order in (
            self.mod_fw_pre_order,
            self.mod_fw_post_order,
            self.mod_bw_pre_order,
            self.mod_bw_post_order,
        ):
            order.clear()
        tracker = self._mod_tracker
        tracker.register_user_hooks(
            pre_fw_hook=lambda module, _: self.mod_fw_pre_order.append(self._name(module)),
            post_fw_hook=lambda module, *_: self.mod_fw_post_order.append(self._name(module)),
            pre_bw_hook=lambda module, _: self.mod_bw_pre_order.append(self._name(module)),
            post_bw_hook=lambda module, _: self.mod_bw_post_order.append(self._name(module)),
        )
        tracker.__enter__()
        return super().__enter__()

    def __exit__(self, *exc: Any) -> Any:
        result = super().__exit__(*exc)
        self._mod_tracker.__exit__(*exc)
        self._mod_tracker.clear_user_hooks()
        return result

    def _name(self, module: Any) -> str:
        return self._mod_tracker.get_known_fqn(module) or type(module).__name__

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        packet = func._overloadpacket
        if packet not in flop_registry and not func.has_kernel_for_dispatch_key("Meta"):
            with self:
                apart = func.decompose(*args, **kwargs)
            if apart is not NotImplemented:
                return apart
        out = func(*args, **kwargs)
        took = 0.0 if func.is_view else self._milliseconds(packet, args, kwargs, out)
        self.total_runtime += took
        part = "bw" if self._mod_tracker.is_bw else "fw"
        for name in self._mod_tracker.parents:
            self.mod_runtimes[name][part] += took
        return out

    def _milliseconds(self, packet: Any, args: Any, kwargs: Any, out: Any) -> float:
        tensors = [t for t in pytree.tree_leaves((args, kwargs, out)) if isinstance(t, _C.Tensor)]
        moved = sum(t.numel() * t.element_size() for t in tensors)
        formula = flop_registry.get(packet)
        flops = formula(*args, **kwargs, out_val=out) if formula is not None else 0
        floating = [t.dtype for t in tensors if t.is_floating_point()]
        dtype = str(floating[0]).rpartition(".")[2] if floating else "float32"
        return self._profile.seconds(flops, moved, dtype) * 1e3

    def display_modulewise_stats(self, depth: int = 2) -> None:
        """Prints the times of modules down to a depth, and the orders in which they ran."""
        print("Pre-Forward Execution Order:", *_until(self.mod_fw_pre_order, depth), sep="\n  ")
        print("Pre-Backward Execution Order:", *_until(self.mod_bw_pre_order, depth), sep="\n  ")
        for name, times in self.mod_runtimes.items():
            if name.count(".") + 1 <= depth:
                forward, backward = times.get("fw", 0.0), times.get("bw", 0.0)
                print(f"{name} fw: {forward:.3f}ms bw: {backward:.3f}ms")


def _until(names: list[str], depth: int) -> list[str]:
    return [n for n in names if n.count(".") + 1 <= depth]
