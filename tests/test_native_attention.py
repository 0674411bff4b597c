"""Attention and encoder layers in one call: what the layers give step by step."""

import pytest

import torchlike as torch
from torchlike import nn

MASKS = {
    "none": (None, None),
    "of pairs": (torch.triu(torch.ones(5, 5, dtype=torch.bool), 1), 0),
    "of keys": (torch.tensor([[False] * 3 + [True] * 2, [False] * 5]), 1),
}


def arguments(layer):
    return {
        "attn_mask" if kind == 0 else "key_padding_mask": mask
        for mask, kind in [layer]
        if kind is not None
    }


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("average", [False, True])
def test_attention(mask, average):
    mha, x = nn.MultiheadAttention(8, 2, batch_first=True), torch.rand(2, 5, 8)
    mask, kind = MASKS[mask]
    want = mha(x, x, x, average_attn_weights=average, **arguments((mask, kind)))
    parts = (mha.in_proj_weight, mha.in_proj_bias, mha.out_proj.weight, mha.out_proj.bias)
    got = torch._native_multi_head_attention(x, x, x, 8, 2, *parts, mask, True, average, kind)
    torch.testing.assert_close(got, want)
    assert torch._native_multi_head_attention(x, x, x, 8, 2, *parts)[1].shape == (2, 5, 5)
    with pytest.raises(RuntimeError, match="3-D `query` of 8 features"):
        torch._native_multi_head_attention(x[0], x, x, 8, 2, *parts)


@torch.no_grad()
def test_attention_of_nested_tensors():
    mha = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    parts = (mha.in_proj_weight, mha.in_proj_bias, mha.out_proj.weight, mha.out_proj.bias)
    rows, keys = [torch.rand(3, 8), torch.rand(2, 8)], [torch.rand(4, 8), torch.rand(2, 8)]
    q, k = torch.nested.nested_tensor(rows), torch.nested.nested_tensor(keys)
    got, weights = torch._native_multi_head_attention(q, k, k, 8, 2, *parts)
    want = [mha(a[None], b[None], b[None]) for a, b in zip(rows, keys, strict=True)]
    for part, (out, _) in zip(got.unbind(), want, strict=True):
        torch.testing.assert_close(part, out[0])
    assert weights.shape == (2, 3, 4)
    torch.testing.assert_close(weights[1, :2, :2], want[1][1][0])
    with pytest.raises(RuntimeError, match="NestedTensor with mask is not supported yet"):
        torch._native_multi_head_attention(q, k, k, 8, 2, *parts, torch.zeros(2, 4))


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("norm_first", "gelu"), [(False, True), (True, False)])
def test_encoder_layer(mask, norm_first, gelu):
    layer = nn.TransformerEncoderLayer(
        *(8, 2, 16, 0.0, "gelu" if gelu else "relu"), batch_first=True, norm_first=norm_first
    )
    x, (mask, kind) = torch.rand(2, 5, 8), MASKS[mask]
    names = {0: "src_mask", 1: "src_key_padding_mask"}
    want = layer(x, **({} if kind is None else {names[kind]: mask}))
    a = layer.self_attn
    parts = (
        *(
            8,
            2,
            a.in_proj_weight,
            a.in_proj_bias,
            a.out_proj.weight,
            a.out_proj.bias,
            gelu,
            norm_first,
            1e-5,
        ),
        *(layer.norm1.weight, layer.norm1.bias, layer.norm2.weight, layer.norm2.bias),
        *(layer.linear1.weight, layer.linear1.bias, layer.linear2.weight, layer.linear2.bias),
    )
    torch.testing.assert_close(torch._transformer_encoder_layer_fwd(x, *parts, mask, kind), want)
    if kind == 1:
        assert torch._nested_tensor_from_mask_left_aligned(x, ~mask)
        nested = torch._nested_tensor_from_mask(x, ~mask)
        assert [tuple(part.shape) for part in nested.unbind()] == [(3, 8), (5, 8)]
        got = torch._transformer_encoder_layer_fwd(nested, *parts)
        padded = torch.nested.to_padded_tensor(got, 0.0)
        torch.testing.assert_close(padded, want.masked_fill(mask[..., None], 0))
        with pytest.raises(RuntimeError, match="left-aligned without gaps"):
            torch._nested_tensor_from_mask(x, mask)
