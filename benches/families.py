"""Small random models of many families, in torchlike and in PyTorch.

    python benches/families.py --torch PYTHON [--only REGEX] [--folder DIR]

Both Pythons need transformers; the one that runs this needs no PyTorch. PyTorch builds each model, gives it weights,
saves it as `save_pretrained` does, and notes its logits and what it generates. torchlike reads that folder with
`from_pretrained` and does the same. A line a family: the largest difference (relative to the largest logit, if that is
above 1), and whether the same tokens came, greedily and by sampling. The exit status is 1 if any differs by more than
1e-4 or generates other tokens.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

BOUND = 1e-4
WORDS = 99
"""Tokens of every model: no family needs more."""

DECODER = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
}
HEADS = {**DECODER, "num_key_value_heads": 4}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
ENCODER = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
}
VISION = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 32,
    "patch_size": 8,
}
LATENT = {
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "moe_intermediate_size": 16,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
}
SEQUENCES = {
    "vocab_size": WORDS,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": None,
}
T5 = {
    "vocab_size": WORDS,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 48,
    "num_layers": 2,
    "num_heads": 4,
    "pad_token_id": 0,
    "eos_token_id": None,
    "decoder_start_token_id": 0,
}
GPT = {"vocab_size": WORDS, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
ENDLESS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None}

FAMILIES: dict[str, tuple[str, dict[str, Any], str]] = {
    "llama": ("LlamaForCausalLM", DECODER, "tokens"),
    "mistral": ("MistralForCausalLM", {**DECODER, "sliding_window": 8}, "tokens"),
    "mixtral": ("MixtralForCausalLM", {**DECODER, **EXPERTS}, "tokens"),
    "qwen2": ("Qwen2ForCausalLM", DECODER, "tokens"),
    "qwen3": ("Qwen3ForCausalLM", {**DECODER, "head_dim": 8}, "tokens"),
    "qwen2_moe": (
        "Qwen2MoeForCausalLM",
        {
            **DECODER,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 16,
            "shared_expert_intermediate_size": 24,
        },
        "tokens",
    ),
    "qwen3_moe": (
        "Qwen3MoeForCausalLM",
        {
            **DECODER,
            "head_dim": 8,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 16,
        },
        "tokens",
    ),
    "gemma": ("GemmaForCausalLM", {**DECODER, "head_dim": 8}, "tokens"),
    "gemma2": ("Gemma2ForCausalLM", {**DECODER, "head_dim": 8, "sliding_window": 8}, "tokens"),
    "gemma3": ("Gemma3ForCausalLM", {**DECODER, "head_dim": 8, "sliding_window": 8}, "tokens"),
    "phi": ("PhiForCausalLM", HEADS, "tokens"),
    "phi3": ("Phi3ForCausalLM", DECODER, "tokens"),
    "falcon": (
        "FalconForCausalLM",
        {
            **ENDLESS,
            "vocab_size": WORDS,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
        },
        "tokens",
    ),
    "gpt2": ("GPT2LMHeadModel", {**GPT, **ENDLESS}, "tokens"),
    "gptj": ("GPTJForCausalLM", {**GPT, **ENDLESS, "rotary_dim": 4}, "tokens"),
    "gpt_neo": (
        "GPTNeoForCausalLM",
        {
            **ENDLESS,
            "vocab_size": WORDS,
            "hidden_size": 32,
            "num_layers": 2,
            "num_heads": 4,
            "attention_types": [[["global", "local"], 1]],
            "window_size": 8,
            "max_position_embeddings": 64,
        },
        "tokens",
    ),
    "gpt_neox": ("GPTNeoXForCausalLM", HEADS, "tokens"),
    "gpt_bigcode": ("GPTBigCodeForCausalLM", {**GPT, **ENDLESS}, "tokens"),
    "gpt_oss": (
        "GptOssForCausalLM",
        {**DECODER, **EXPERTS, "head_dim": 8, "sliding_window": 8},
        "tokens",
    ),
    "opt": (
        "OPTForCausalLM",
        {
            **ENDLESS,
            "vocab_size": WORDS,
            "hidden_size": 32,
            "ffn_dim": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "word_embed_proj_dim": 32,
            "max_position_embeddings": 64,
        },
        "tokens",
    ),
    "bloom": (
        "BloomForCausalLM",
        {**ENDLESS, "vocab_size": WORDS, "hidden_size": 32, "n_layer": 2, "n_head": 4},
        "tokens",
    ),
    "mpt": (
        "MptForCausalLM",
        {
            **ENDLESS,
            "vocab_size": WORDS,
            "d_model": 32,
            "n_layers": 2,
            "n_heads": 4,
            "max_seq_len": 64,
        },
        "tokens",
    ),
    "stablelm": ("StableLmForCausalLM", DECODER, "tokens"),
    "olmo": ("OlmoForCausalLM", DECODER, "tokens"),
    "olmo2": ("Olmo2ForCausalLM", DECODER, "tokens"),
    "starcoder2": ("Starcoder2ForCausalLM", DECODER, "tokens"),
    "cohere": ("CohereForCausalLM", DECODER, "tokens"),
    "granite": ("GraniteForCausalLM", DECODER, "tokens"),
    "glm4": ("Glm4ForCausalLM", {**DECODER, "head_dim": 8}, "tokens"),
    "deepseek_v2": (
        "DeepseekV2ForCausalLM",
        {**HEADS, **LATENT, "topk_method": "group_limited_greedy"},
        "tokens",
    ),
    "deepseek_v3": ("DeepseekV3ForCausalLM", {**HEADS, **LATENT}, "tokens"),
    "mamba": (
        "MambaForCausalLM",
        {
            **ENDLESS,
            "vocab_size": WORDS,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "state_size": 8,
        },
        "tokens",
    ),
    "mamba2": (
        "Mamba2ForCausalLM",
        {
            **ENDLESS,
            "vocab_size": WORDS,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "state_size": 8,
            "num_heads": 8,
            "head_dim": 8,
            "n_groups": 2,
            "chunk_size": 8,
        },
        "tokens",
    ),
    "rwkv": (
        "RwkvForCausalLM",
        {
            **ENDLESS,
            "vocab_size": WORDS,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "attention_hidden_size": 32,
        },
        "tokens",
    ),
    "recurrent_gemma": (
        "RecurrentGemmaForCausalLM",
        {
            **DECODER,
            "num_hidden_layers": 3,
            "lru_width": 32,
            "head_dim": 8,
            "attention_window_size": 8,
        },
        "tokens",
    ),
    "jamba": (
        "JambaForCausalLM",
        {
            **DECODER,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "expert_layer_period": 2,
            "expert_layer_offset": 1,
            "mamba_d_state": 8,
            "mamba_dt_rank": 4,
            "use_mamba_kernels": False,
        },
        "tokens",
    ),
    "t5": ("T5ForConditionalGeneration", T5, "pairs"),
    "mt5": ("MT5ForConditionalGeneration", T5, "pairs"),
    "bart": ("BartForConditionalGeneration", SEQUENCES, "pairs"),
    "marian": ("MarianMTModel", SEQUENCES, "pairs"),
    "pegasus": ("PegasusForConditionalGeneration", SEQUENCES, "pairs"),
    "whisper": (
        "WhisperForConditionalGeneration",
        {
            **{k: v for k, v in SEQUENCES.items() if k != "max_position_embeddings"},
            "num_mel_bins": 8,
            "max_source_positions": 20,
            "max_target_positions": 64,
            "suppress_tokens": None,
            "begin_suppress_tokens": None,
        },
        "sound",
    ),
    "bert": ("BertForMaskedLM", ENCODER, "encoder"),
    "roberta": ("RobertaForMaskedLM", ENCODER, "encoder"),
    "xlm_roberta": ("XLMRobertaForMaskedLM", ENCODER, "encoder"),
    "electra": ("ElectraForMaskedLM", {**ENCODER, "embedding_size": 16}, "encoder"),
    "albert": ("AlbertForMaskedLM", {**ENCODER, "embedding_size": 16}, "encoder"),
    "deberta": (
        "DebertaForMaskedLM",
        {
            **ENCODER,
            "relative_attention": True,
            "pos_att_type": ["c2p", "p2c"],
            "max_relative_positions": 16,
        },
        "encoder",
    ),
    "deberta_v2": (
        "DebertaV2ForMaskedLM",
        {
            **ENCODER,
            "relative_attention": True,
            "pos_att_type": ["c2p", "p2c"],
            "position_buckets": 8,
        },
        "encoder",
    ),
    "distilbert": (
        "DistilBertForMaskedLM",
        {"vocab_size": WORDS, "dim": 32, "hidden_dim": 48, "n_layers": 2, "n_heads": 4},
        "encoder",
    ),
    "modernbert": (
        "ModernBertForMaskedLM",
        {
            **ENCODER,
            "local_attention": 8,
            "cls_token_id": 1,
            "sep_token_id": 2,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
        "encoder",
    ),
    "vit": ("ViTForImageClassification", VISION, "image"),
    "deit": ("DeiTForImageClassification", VISION, "image"),
    "dinov2": ("Dinov2ForImageClassification", VISION, "image"),
    "swin": (
        "SwinForImageClassification",
        {
            "image_size": 32,
            "patch_size": 2,
            "embed_dim": 16,
            "depths": [1, 1],
            "num_heads": [2, 4],
            "window_size": 4,
        },
        "image",
    ),
    "convnext": (
        "ConvNextForImageClassification",
        {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]},
        "image",
    ),
    "clip": (
        "CLIPModel",
        {
            "text_config": {**ENCODER, "eos_token_id": 2, "bos_token_id": 1},
            "vision_config": VISION,
            "projection_dim": 16,
        },
        "both",
    ),
    "siglip": (
        "SiglipModel",
        {"text_config": {**ENCODER, "projection_size": 32}, "vision_config": VISION},
        "both",
    ),
    "wav2vec2": (
        "Wav2Vec2ForCTC",
        {
            **{k: v for k, v in ENCODER.items() if k != "max_position_embeddings"},
            "conv_dim": [16, 16],
            "conv_kernel": [8, 4],
            "conv_stride": [4, 2],
            "num_feat_extract_layers": 2,
            "num_conv_pos_embeddings": 8,
            "num_conv_pos_embedding_groups": 4,
        },
        "wave",
    ),
}
"""Of each family: the class, its configuration, what it is given."""


def given(torch: Any, kind: str) -> dict[str, Any]:
    """The arguments of a forward pass; the same in both libraries, as they draw the same numbers."""
    made = torch.Generator().manual_seed(7)

    def tokens(*shape: int) -> Any:
        return torch.randint(3, WORDS, shape, generator=made)

    def numbers(*shape: int) -> Any:
        return torch.randn(*shape, generator=made)

    mask = torch.ones(2, 12, dtype=torch.long)
    mask[1, 9:] = 0
    return {
        "tokens": lambda: {"input_ids": tokens(2, 12)},
        "encoder": lambda: {"input_ids": tokens(2, 12), "attention_mask": mask},
        "pairs": lambda: {
            "input_ids": tokens(2, 12),
            "attention_mask": mask,
            "decoder_input_ids": tokens(2, 5),
        },
        "sound": lambda: {"input_features": numbers(2, 8, 40), "decoder_input_ids": tokens(2, 5)},
        "image": lambda: {"pixel_values": numbers(2, 3, 32, 32)},
        "both": lambda: {"input_ids": tokens(2, 12), "pixel_values": numbers(2, 3, 32, 32)},
        "wave": lambda: {"input_values": numbers(2, 400)},
    }[kind]()


def answers(torch: Any, model: Any, kind: str) -> dict[str, Any]:
    """Logits as nested lists, and the tokens of 20 greedy and 20 sampled steps."""
    model.eval()
    inputs = given(torch, kind)
    with torch.no_grad():
        result = model(**inputs)
        logits = result.logits_per_text if kind == "both" else result.logits
        found: dict[str, Any] = {
            "logits": logits.float().flatten().tolist(),
            "shape": list(logits.shape),
        }
        if kind in ("tokens", "pairs", "sound"):
            inputs.pop("decoder_input_ids", None)
            steps = {"max_new_tokens": 20, "min_new_tokens": 20}
            found["greedy"] = model.generate(**inputs, **steps, do_sample=False).tolist()
            torch.manual_seed(3)
            found["sampled"] = model.generate(
                **inputs, **steps, do_sample=True, top_k=20, top_p=0.95
            ).tolist()
    return found


def make(torch: Any, name: str, folder: Path) -> None:
    """Saves a model with weights large enough to tell models apart."""
    import transformers

    kind, config, _ = FAMILIES[name]
    model_class = getattr(transformers, kind)
    torch.manual_seed(0)
    model = model_class(model_class.config_class(**config))
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * (0.2 if p.dim() > 1 else 0.05))
    model.save_pretrained(folder)


def side(torch: Any, names: list[str], folder: Path) -> None:
    """The answers of one library, a file a family; PyTorch's makes the models."""
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    for name in names:
        kind, _, inputs = FAMILIES[name]
        reference = not hasattr(torch, "materialize")
        try:
            if reference:
                make(torch, name, folder / name)
            model = getattr(transformers, kind).from_pretrained(folder / name)
            answer = answers(torch, model, inputs)
        except Exception:
            answer = {"error": traceback.format_exc()}
        (folder / f"{name}.{'torch' if reference else 'torchlike'}.json").write_text(
            json.dumps(answer)
        )


def difference(got: list[float], wanted: list[float]) -> float:
    """The largest difference of two logits, relative to the largest logit where that is above 1."""
    if len(got) != len(wanted):
        return math.inf
    largest = max(1.0, *map(abs, wanted))
    return (
        max(
            abs(a - b) if math.isfinite(b) else 0.0 if a == b else math.inf
            for a, b in zip(got, wanted, strict=True)
        )
        / largest
    )


def compare(name: str, folder: Path) -> tuple[bool, str]:
    """Whether both libraries agree on a family, and a line that says so."""
    theirs, ours = (
        json.loads((folder / f"{name}.{who}.json").read_text()) for who in ("torch", "torchlike")
    )
    for who, answer in (("torch", theirs), ("torchlike", ours)):
        if "error" in answer:
            return False, f"{who}: {answer['error'].strip().splitlines()[-1]}"
    apart = difference(ours["logits"], theirs["logits"])
    same = {k: ours[k] == theirs[k] for k in ("greedy", "sampled") if k in theirs}
    words = "".join(f"  {k} {'same' if v else 'OTHER TOKENS'}" for k, v in same.items())
    right = apart <= BOUND and ours["shape"] == theirs["shape"] and all(same.values())
    return right, f"{apart:8.1e}{words}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch", default="python", help="a Python with PyTorch and transformers")
    parser.add_argument("--only", default="", help="families whose names match")
    parser.add_argument(
        "--folder", type=Path, help="where models and answers are kept (a temporary folder)"
    )
    parser.add_argument("--side", choices=["torch", "torchlike"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    names = [n for n in FAMILIES if re.search(options.only, n)]
    if options.side:
        if options.side == "torchlike":
            import torchlike.compat

            torchlike.compat.install_as_torch()
        import torch

        side(torch, names, options.folder)
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for who, python in (("torch", options.torch), ("torchlike", sys.executable)):
            command = [
                python,
                __file__,
                "--side",
                who,
                "--only",
                options.only,
                "--folder",
                str(folder),
            ]
            subprocess.run(
                command, check=True, env={**os.environ, "TRANSFORMERS_VERBOSITY": "error"}
            )
        lines = {name: compare(name, folder) for name in names}
    for name, (right, line) in lines.items():
        print(f"{name:16} {'ok  ' if right else 'BAD '} {line}")
    print(f"FAMILIES {sum(right for right, _ in lines.values())}/{len(lines)}")
    return 0 if all(right for right, _ in lines.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
