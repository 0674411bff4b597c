"""Layers whose `forward` is no TorchScript as it stands: what they compute, in the words of operators."""

from __future__ import annotations

from typing import Any

import torchlike
import torchlike.nn
from torchlike import Tensor
from torchlike.jit import _library_attention, _library_images
from torchlike.jit._scope import property_of
from torchlike.nn.modules.batchnorm import _BatchNorm
from torchlike.nn.modules.instancenorm import _InstanceNorm

aten = torchlike.ops.aten


def _conv1d(self: Any, input: Tensor) -> Tensor:
    if self.padding_mode != "zeros":
        padded = aten.pad(input, list(self._reversed_padding_repeated_twice), self.padding_mode)
        return aten.conv1d(
            padded, self.weight, self.bias, self.stride, [0], self.dilation, self.groups
        )
    return aten.conv1d(
        input, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups
    )


def _conv2d(self: Any, input: Tensor) -> Tensor:
    if self.padding_mode != "zeros":
        padded = aten.pad(input, list(self._reversed_padding_repeated_twice), self.padding_mode)
        return aten.conv2d(
            padded, self.weight, self.bias, self.stride, [0, 0], self.dilation, self.groups
        )
    return aten.conv2d(
        input, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups
    )


def _conv3d(self: Any, input: Tensor) -> Tensor:
    if self.padding_mode != "zeros":
        padded = aten.pad(input, list(self._reversed_padding_repeated_twice), self.padding_mode)
        return aten.conv3d(
            padded, self.weight, self.bias, self.stride, [0, 0, 0], self.dilation, self.groups
        )
    return aten.conv3d(
        input, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups
    )


def _transposed1d(self: Any, input: Tensor) -> Tensor:
    return aten.conv_transpose1d(
        input,
        self.weight,
        self.bias,
        self.stride,
        self.padding,
        self.output_padding,
        self.groups,
        self.dilation,
    )


def _transposed2d(self: Any, input: Tensor) -> Tensor:
    return aten.conv_transpose2d(
        input,
        self.weight,
        self.bias,
        self.stride,
        self.padding,
        self.output_padding,
        self.groups,
        self.dilation,
    )


def _transposed3d(self: Any, input: Tensor) -> Tensor:
    return aten.conv_transpose3d(
        input,
        self.weight,
        self.bias,
        self.stride,
        self.padding,
        self.output_padding,
        self.groups,
        self.dilation,
    )


def _batch_norm(self: Any, input: Tensor) -> Tensor:
    if self.num_batches_tracked is not None and self.training:
        self.num_batches_tracked.add_(1)
    average = 0.0
    if self.momentum is not None:
        average = self.momentum
    elif self.num_batches_tracked is not None and self.training:
        average = 1.0 / float(self.num_batches_tracked)
    by_batch = self.training or self.running_mean is None
    return aten.batch_norm(
        input,
        self.weight,
        self.bias,
        self.running_mean,
        self.running_var,
        by_batch,
        average,
        self.eps,
        True,
    )


def _instance_norm(self: Any, input: Tensor) -> Tensor:
    lone = input.dim() == self._get_no_batch_dim()
    batch = aten.unsqueeze(input, 0) if lone else input
    by_batch = self.training or self.running_mean is None
    out = aten.instance_norm(
        batch,
        self.weight,
        self.bias,
        self.running_mean,
        self.running_var,
        by_batch,
        self.momentum,
        self.eps,
        True,
    )
    return aten.squeeze(out, 0) if lone else out


def _layer_norm(self: Any, input: Tensor) -> Tensor:
    return aten.layer_norm(
        input, list(self.normalized_shape), self.weight, self.bias, self.eps, True
    )


def _rms_norm(self: Any, x: Tensor) -> Tensor:
    return aten.rms_norm(x, list(self.normalized_shape), self.weight, self.eps)


def _lstm(
    self: Any, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    batched = input.dim() == 3
    x = input if batched else aten.unsqueeze(input, 0 if self.batch_first else 1)
    batch = x.size(0) if self.batch_first else x.size(1)
    layers = self.num_layers * (2 if self.bidirectional else 1)
    if hx is None:
        hidden = aten.zeros(
            [layers, batch, self.proj_size if self.proj_size > 0 else self.hidden_size],
            dtype=x.dtype,
            device=x.device,
        )
        cell = aten.zeros([layers, batch, self.hidden_size], dtype=x.dtype, device=x.device)
    else:
        hidden = hx[0] if batched else aten.unsqueeze(hx[0], 1)
        cell = hx[1] if batched else aten.unsqueeze(hx[1], 1)
    out, h, c = aten.lstm(
        x, [hidden, cell], [getattr(self, n) for n in self._flat_weights_names], self.bias, self.num_layers,
        self.dropout, self.training, self.bidirectional, self.batch_first,
    )  # fmt: skip
    if batched:
        return out, (h, c)
    return aten.squeeze(out, 0 if self.batch_first else 1), (aten.squeeze(h, 1), aten.squeeze(c, 1))


def _start(
    x: Tensor, hx: Tensor | None, layers: int, batch: int, size: int, batched: bool
) -> Tensor:
    if hx is None:
        return aten.zeros([layers, batch, size], dtype=x.dtype, device=x.device)
    return hx if batched else aten.unsqueeze(hx, 1)


def _gru(self: Any, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]:
    batched = input.dim() == 3
    x = input if batched else aten.unsqueeze(input, 0 if self.batch_first else 1)
    batch = x.size(0) if self.batch_first else x.size(1)
    hidden = _start(
        x, hx, self.num_layers * (2 if self.bidirectional else 1), batch, self.hidden_size, batched
    )
    out, h = aten.gru(
        x, hidden, [getattr(self, n) for n in self._flat_weights_names], self.bias, self.num_layers, self.dropout,
        self.training, self.bidirectional, self.batch_first,
    )  # fmt: skip
    if batched:
        return out, h
    return aten.squeeze(out, 0 if self.batch_first else 1), aten.squeeze(h, 1)


def _rnn(self: Any, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]:
    batched = input.dim() == 3
    x = input if batched else aten.unsqueeze(input, 0 if self.batch_first else 1)
    batch = x.size(0) if self.batch_first else x.size(1)
    hidden = _start(
        x, hx, self.num_layers * (2 if self.bidirectional else 1), batch, self.hidden_size, batched
    )
    if self.mode == "RNN_TANH":
        out, h = aten.rnn_tanh(
            x, hidden, [getattr(self, n) for n in self._flat_weights_names], self.bias, self.num_layers, self.dropout,
            self.training, self.bidirectional, self.batch_first,
        )  # fmt: skip
    else:
        out, h = aten.rnn_relu(
            x, hidden, [getattr(self, n) for n in self._flat_weights_names], self.bias, self.num_layers, self.dropout,
            self.training, self.bidirectional, self.batch_first,
        )  # fmt: skip
    if batched:
        return out, h
    return aten.squeeze(out, 0 if self.batch_first else 1), aten.squeeze(h, 1)


def _lstm_cell(
    self: Any, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    batched = input.dim() == 2
    x = input if batched else aten.unsqueeze(input, 0)
    if hx is None:
        h = aten.zeros([x.size(0), self.hidden_size], dtype=x.dtype, device=x.device)
        c = h
    else:
        h = hx[0] if batched else aten.unsqueeze(hx[0], 0)
        c = hx[1] if batched else aten.unsqueeze(hx[1], 0)
    h, c = aten.lstm_cell(x, [h, c], self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
    if batched:
        return h, c
    return aten.squeeze(h, 0), aten.squeeze(c, 0)


def _gru_cell(self: Any, input: Tensor, hx: Tensor | None = None) -> Tensor:
    batched = input.dim() == 2
    x = input if batched else aten.unsqueeze(input, 0)
    if hx is None:
        h = aten.zeros([x.size(0), self.hidden_size], dtype=x.dtype, device=x.device)
    else:
        h = hx if batched else aten.unsqueeze(hx, 0)
    out = aten.gru_cell(x, h, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
    return out if batched else aten.squeeze(out, 0)


def _rnn_cell(self: Any, input: Tensor, hx: Tensor | None = None) -> Tensor:
    batched = input.dim() == 2
    x = input if batched else aten.unsqueeze(input, 0)
    if hx is None:
        h = aten.zeros([x.size(0), self.hidden_size], dtype=x.dtype, device=x.device)
    else:
        h = hx if batched else aten.unsqueeze(hx, 0)
    if self.nonlinearity == "tanh":
        out = aten.rnn_tanh_cell(x, h, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
    else:
        out = aten.rnn_relu_cell(x, h, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
    return out if batched else aten.squeeze(out, 0)


def _attention(
    self: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    weights: list[Tensor] = []
    if self._qkv_same_embed_dim:
        weights = aten.chunk(self.in_proj_weight, 3)
    else:
        weights = [self.q_proj_weight, self.k_proj_weight, self.v_proj_weight]
    dropout = self.dropout if self.training else 0.0
    return _library_attention.multi_head_attention(
        query, key, value, self.num_heads, weights, self.in_proj_bias, self.out_proj.weight, self.out_proj.bias,
        dropout, self.batch_first, key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal,
        self.bias_k, self.bias_v, self.add_zero_attn,
    )  # fmt: skip


def _encoder_layer(
    self: Any,
    src: Tensor,
    src_mask: Tensor | None = None,
    src_key_padding_mask: Tensor | None = None,
    is_causal: bool = False,
) -> Tensor:
    x = src
    if self.norm_first:
        n = self.norm1(x)
        attended, _ = self.self_attn(
            n, n, n, src_key_padding_mask, False, src_mask, True, is_causal
        )
        x = x + self.dropout1(attended)
        return x + self.dropout2(
            self.linear2(self.dropout(self.activation(self.linear1(self.norm2(x)))))
        )
    attended, _ = self.self_attn(x, x, x, src_key_padding_mask, False, src_mask, True, is_causal)
    x = self.norm1(x + self.dropout1(attended))
    return self.norm2(
        x + self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))
    )


def _decoder_layer(
    self: Any,
    tgt: Tensor,
    memory: Tensor,
    tgt_mask: Tensor | None = None,
    memory_mask: Tensor | None = None,
    tgt_key_padding_mask: Tensor | None = None,
    memory_key_padding_mask: Tensor | None = None,
    tgt_is_causal: bool = False,
    memory_is_causal: bool = False,
) -> Tensor:
    x = tgt
    if self.norm_first:
        n = self.norm1(x)
        a, _ = self.self_attn(n, n, n, tgt_key_padding_mask, False, tgt_mask, True, tgt_is_causal)
        x = x + self.dropout1(a)
        b, _ = self.multihead_attn(
            self.norm2(x),
            memory,
            memory,
            memory_key_padding_mask,
            False,
            memory_mask,
            True,
            memory_is_causal,
        )
        x = x + self.dropout2(b)
        return x + self.dropout3(
            self.linear2(self.dropout(self.activation(self.linear1(self.norm3(x)))))
        )
    a, _ = self.self_attn(x, x, x, tgt_key_padding_mask, False, tgt_mask, True, tgt_is_causal)
    x = self.norm1(x + self.dropout1(a))
    b, _ = self.multihead_attn(
        x, memory, memory, memory_key_padding_mask, False, memory_mask, True, memory_is_causal
    )
    x = self.norm2(x + self.dropout2(b))
    return self.norm3(
        x + self.dropout3(self.linear2(self.dropout(self.activation(self.linear1(x)))))
    )


def _encoder(
    self: Any,
    src: Tensor,
    mask: Tensor | None = None,
    src_key_padding_mask: Tensor | None = None,
    is_causal: bool | None = None,
) -> Tensor:
    output = src
    for layer in self.layers:
        output = layer(output, mask, src_key_padding_mask, False)
    return output if self.norm is None else self.norm(output)


def _decoder(
    self: Any,
    tgt: Tensor,
    memory: Tensor,
    tgt_mask: Tensor | None = None,
    memory_mask: Tensor | None = None,
    tgt_key_padding_mask: Tensor | None = None,
    memory_key_padding_mask: Tensor | None = None,
    tgt_is_causal: bool | None = None,
    memory_is_causal: bool = False,
) -> Tensor:
    output = tgt
    for layer in self.layers:
        output = layer(
            output,
            memory,
            tgt_mask,
            memory_mask,
            tgt_key_padding_mask,
            memory_key_padding_mask,
            False,
            False,
        )
    return output if self.norm is None else self.norm(output)


def _transformer(
    self: Any,
    src: Tensor,
    tgt: Tensor,
    src_mask: Tensor | None = None,
    tgt_mask: Tensor | None = None,
    memory_mask: Tensor | None = None,
    src_key_padding_mask: Tensor | None = None,
    tgt_key_padding_mask: Tensor | None = None,
    memory_key_padding_mask: Tensor | None = None,
) -> Tensor:
    memory = self.encoder(src, src_mask, src_key_padding_mask)
    return self.decoder(
        tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask
    )


def _sequential(self: Any, input: Tensor):  # type: ignore[no-untyped-def]
    for module in self.children():
        input = module(input)
    return input


def _upsample(self: Any, input: Tensor) -> Tensor:
    return _library_images.interpolate(
        input, self.size, self.scale_factor, self.mode, self.align_corners
    )


nn: Any = torchlike.nn
_FORWARDS: dict[type, Any] = {
    nn.Conv1d: _conv1d, nn.Conv2d: _conv2d, nn.Conv3d: _conv3d, nn.ConvTranspose1d: _transposed1d,
    nn.ConvTranspose2d: _transposed2d, nn.ConvTranspose3d: _transposed3d, _BatchNorm: _batch_norm,
    _InstanceNorm: _instance_norm, nn.LayerNorm: _layer_norm, nn.RMSNorm: _rms_norm, nn.LSTM: _lstm, nn.GRU: _gru,
    nn.RNN: _rnn, nn.LSTMCell: _lstm_cell, nn.GRUCell: _gru_cell, nn.RNNCell: _rnn_cell,
    nn.MultiheadAttention: _attention, nn.TransformerEncoderLayer: _encoder_layer,
    nn.TransformerDecoderLayer: _decoder_layer, nn.TransformerEncoder: _encoder, nn.TransformerDecoder: _decoder,
    nn.Transformer: _transformer, nn.Sequential: _sequential, nn.Upsample: _upsample,
}  # fmt: skip


def stub_of(module: Any, name: str) -> Any:
    """The function that an object of a class of script modules compiles for a name."""
    return getattr(module, "_stubs", {}).get(name)


def method_of(module: Any, name: str) -> Any:
    """The function that is compiled for a method of a module, or (`__name_getter`) for a property."""
    kind = type(module)
    stub = stub_of(module, name)
    if stub is not None:
        return stub
    attribute = property_of(name)
    if attribute is not None:
        return getattr(kind, attribute).fget
    found = getattr(kind, name, None)
    own: Any = getattr(module, name, None)
    if getattr(own, "__self__", None) is module and getattr(own, "__func__", found) is not found:
        return own.__func__  # one method of a module in place of another
    if name == "forward":
        for base in kind.__mro__:
            if base in _FORWARDS:
                return _FORWARDS[base]
            if "forward" in base.__dict__:
                break
    return getattr(found, "__func__", found)


def inherited(base: type, name: str) -> Any:
    """The function that is compiled for a method of a class itself, whatever derives from it."""
    forward = _FORWARDS.get(base) if name == "forward" else None
    return forward or vars(base)[name]
