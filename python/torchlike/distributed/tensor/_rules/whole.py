"""Operators that need all of each tensor on every rank."""

from __future__ import annotations

from torchlike.distributed.tensor._rules import Call, Fixed, R, rule


@rule(
    "_linalg_svd linalg_pinv linalg_qr _linalg_eigh diagonal_copy diag_embed diag diagonal diagonal_backward tril triu",
    "tril_ triu_ histogram _pdist_forward _pdist_backward multi_margin_loss multilabel_margin_loss_forward",
    "multi_margin_loss_backward multilabel_margin_loss_backward block_diag put hash_tensor affine_grid_generator",
    "segment_reduce _segment_reduce_backward masked_scatter embedding_renorm _ctc_loss.default",
    "_ctc_loss_backward.default",
)
def _whole(call: Call) -> Fixed:
    whole = [R] * call.mesh.ndim
    return Fixed([whole] * call.results, [whole] * len(call.specs))
