"""What models are made of, beside PyTorch's: `python benches/parts.py [--torch PYTHON] [--filter REGEX]`.

Attention with each kind of mask, with heads that share keys and with one query after many keys; embeddings of places,
norms and gates; what turns scores into words; convolutions, norms and pools of images; recurrent layers. In single
precision and in bf16, as an inference step has them. Ratios above 1 mean that torchlike is faster.
"""

from __future__ import annotations

import _turns

DTYPES = {"f32": "torch.float32", "bf16": "torch.bfloat16"}

ATTENTION = (
    """
q, k, v = torch.randn(3, 2, 12, 512, 64).to(d)
seen = torch.ones(512, 512, dtype=torch.bool).tril()
added = torch.zeros(512, 512).masked_fill(~seen, float('-inf')).to(d)
padded = torch.ones(2, 1, 1, 512, dtype=torch.bool); padded[1, ..., 300:] = False
scores = torch.randn(2, 12, 512, 512).to(d); hidden = scores + added
one = torch.randn(8, 32, 1, 128).to(d)
cache = torch.randn(8, 32, 1024, 128).to(d); few = torch.randn(8, 8, 1024, 128).to(d)
attend = F.scaled_dot_product_attention
h = torch.randn(2, 512, 768).to(d)
cos, sin = torch.randn(2, 512, 64).to(d)
def turn(x):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin
""",
    {
        "softmax_masked": "torch.softmax(hidden, -1)",
        "log_softmax_masked": "torch.log_softmax(hidden, -1)",
        "masked_fill_softmax": "torch.softmax(scores.masked_fill(~seen, float('-inf')), -1)",
        "attention": "attend(q, k, v)",
        "attention_causal": "attend(q, k, v, is_causal=True)",
        "attention_truths": "attend(q, k, v, attn_mask=seen)",
        "attention_added": "attend(q, k, v, attn_mask=added)",
        "attention_padded": "attend(q, k, v, attn_mask=padded)",
        "decode": "attend(one, cache, cache)",
        "decode_shared": "attend(one, few, few, enable_gqa=True)",
        "rotary": "turn(q)",
        "split_heads": "h.view(2, 512, 12, 64).transpose(1, 2).contiguous()",
        "merge_heads": "q.transpose(1, 2).reshape(2, 512, 768)",
        "repeat_keys": "few[:, :, None].expand(8, 8, 4, 1024, 128).reshape(8, 32, 1024, 128)",
        "append_keys": "torch.cat((k, k[:, :, :1]), 2)",
    },
)

LAYERS = (
    """
h = torch.randn(2, 512, 768).to(d); w = torch.randn(768).to(d)
a, b = torch.randn(2, 2, 512, 2048).to(d); table = torch.randn(2048, 768).to(d); one = h[:1, :1]
logits = torch.randn(512, 50257).to(d); last = logits[:1]; odds = torch.softmax(last.float(), -1)
target = torch.randint(0, 50257, (512,)); target[::7] = -100
words = torch.randn(50257, 768).to(d); ids = torch.randint(0, 50257, (2, 512))
""",
    {
        "rms_norm": "F.rms_norm(h, (768,), w)",
        "layer_norm": "F.layer_norm(h, (768,), w, w)",
        "gate": "F.silu(a) * b",
        "gelu_tanh": "F.gelu(a, approximate='tanh')",
        "linear": "F.linear(h, table)",
        "linear_one": "F.linear(one, table)",
        "embedding": "F.embedding(ids, words)",
        "cross_entropy": "F.cross_entropy(logits.float(), target)",
        "argmax": "last.argmax(-1)",
        "topk": "last.topk(50)",
        "sorted_sums": "torch.softmax(torch.sort(last, descending=True)[0], -1).cumsum(-1)",
        "multinomial": "torch.multinomial(odds, 1)",
        "dropout": "F.dropout(h, 0.1)",
        "cumsum": "h.cumsum(-1)",
    },
)

IMAGES = (
    """
x = torch.randn(4, 64, 56, 56).to(d); w = torch.randn(64, 64, 3, 3).to(d)
y, u = (t.contiguous(memory_format=torch.channels_last) for t in (x, w))
m, s, g, o = (t.abs().to(d) + 0.1 for t in torch.randn(4, 64))
""",
    {
        "conv": "F.conv2d(x, w, padding=1)",
        "conv_last": "F.conv2d(y, u, padding=1)",
        "batch_norm": "F.batch_norm(x, m, s, g, o)",
        "batch_norm_last": "F.batch_norm(y, m, s, g, o)",
        "batch_norm_train": "F.batch_norm(x, m.clone(), s.clone(), g, o, True)",
        "batch_norm_train_last": "F.batch_norm(y, m.clone(), s.clone(), g, o, True)",
        "group_norm": "F.group_norm(x, 32, g, o)",
        "max_pool": "F.max_pool2d(x, 3, 2, 1)",
        "mean_pool": "F.adaptive_avg_pool2d(x, 1)",
        "nearest": "F.interpolate(x, scale_factor=2)",
        "bilinear": "F.interpolate(x, size=(112, 112), mode='bilinear')",
        "pixel_shuffle": "F.pixel_shuffle(x, 2)",
        "residual": "F.relu(x + x)",
    },
)

MODULES = (
    """
x = torch.randn(8, 64, 256)
lstm = torch.nn.LSTM(256, 256, 2, batch_first=True); gru = torch.nn.GRU(256, 256, batch_first=True)
mha = torch.nn.MultiheadAttention(256, 8, batch_first=True)
layer = torch.nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True).eval()
""",
    {
        "lstm": "lstm(x)",
        "gru": "gru(x)",
        "multihead_attention": "mha(x, x, x)",
        "encoder_layer": "layer(x)",
    },
)


def cases() -> _turns.Cases:
    """Setup and statement of each case."""
    start = "torch.set_grad_enabled(False); d = {}\n"
    out = {}
    for short, dtype in DTYPES.items():
        for setup, calls in (ATTENTION, LAYERS, IMAGES):
            for name, code in calls.items():
                out[f"{name}/{short}"] = (start.format(dtype) + setup, code)
    setup, calls = MODULES
    for name, code in calls.items():
        out[f"{name}/f32"] = (start.format("torch.float32") + setup, code)
    return out


if __name__ == "__main__":
    _turns.main(__doc__, __file__, cases())
