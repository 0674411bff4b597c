"""Libraries that people publish, used through torchlike where they are installed."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path

import pytest

from test_compat import installed


def needs(*packages: str) -> pytest.MarkDecorator:
    """Skips a test where a package is not installed."""
    absent = [p for p in packages if importlib.util.find_spec(p) is None]
    return pytest.mark.skipif(bool(absent), reason=f"{', '.join(absent)} not installed")


@needs("transformers", "accelerate")
@pytest.mark.parametrize("kind", ["one", "shards", "bin"])
def test_checkpoints_open_on_meta_with_their_files_as_sources(tmp_path: Path, kind: str) -> None:
    installed(
        """
        import sys, torch, torchlike
        from transformers import AutoModelForCausalLM, LlamaConfig
        folder, kind = sys.argv[1:]
        config = LlamaConfig(vocab_size=60, hidden_size=32, intermediate_size=48, num_hidden_layers=3,
                             num_attention_heads=4)
        torch.manual_seed(0)
        real = AutoModelForCausalLM.from_config(config).eval()
        if kind == "bin":
            config.save_pretrained(folder)
            torch.save(real.state_dict(), folder + "/pytorch_model.bin")
        else:
            real.save_pretrained(folder, max_shard_size="20KB" if kind == "shards" else "1GB")
        for more in ({}, {"dtype": torch.bfloat16}, {"torch_dtype": "auto", "low_cpu_mem_usage": True}):
            model = AutoModelForCausalLM.from_pretrained(folder, device_map="meta", **more).eval()
            assert all(p.is_meta for p in model.parameters())
            assert folder in str(torchlike.plan.explain(model.lm_head.weight)), kind
            layer, wanted = model.model.layers[1], real.model.layers[1]
            torchlike.materialize(layer)
            assert model.model.layers[0].mlp.up_proj.weight.is_meta
            for made, was in zip(layer.parameters(), wanted.parameters(), strict=True):
                assert torch.equal(made, was.to(made.dtype)), (kind, more)
            x = torch.ones(1, 32, dtype=layer.mlp.up_proj.weight.dtype)
            assert torch.allclose(layer.mlp(x).float(), wanted.mlp(x.float()), atol=1e-2)
        """,
        str(tmp_path),
        kind,
    )


@needs("diffusers")
def test_diffusion_models_from_their_configurations() -> None:
    installed("""
        import torch
        from diffusers import AutoencoderKL, DDPMScheduler, DiTTransformer2DModel, UNet2DConditionModel
        def unet():
            return UNet2DConditionModel(
                sample_size=8, in_channels=4, out_channels=4, block_out_channels=(8, 16), layers_per_block=1,
                cross_attention_dim=8, norm_num_groups=4, attention_head_dim=4,
                down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
                up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"))
        vae = AutoencoderKL(block_out_channels=(8, 16), down_block_types=("DownEncoderBlock2D",) * 2,
                            up_block_types=("UpDecoderBlock2D",) * 2, norm_num_groups=4, latent_channels=2)
        dit = DiTTransformer2DModel(num_attention_heads=2, attention_head_dim=8, in_channels=2, num_layers=2,
                                    sample_size=8, patch_size=2, norm_num_groups=2, num_embeds_ada_norm=10)
        model = unet().eval()
        x, text = torch.randn(1, 4, 8, 8), torch.randn(1, 5, 8)
        out = model(x, 3, text).sample
        assert out.shape == x.shape and out.isfinite().all() and torch.equal(out, model(x, 3, text).sample)
        out.sum().backward()
        assert all(p.grad is not None for p in model.parameters())
        with torch.device("meta"):
            there = unet()(x.to("meta"), torch.tensor(3), text.to("meta")).sample
        assert there.is_meta and there.shape == x.shape
        latent = vae.encode(torch.randn(1, 3, 16, 16)).latent_dist
        assert vae.decode(latent.mode()).sample.shape == (1, 3, 16, 16) and latent.sample().isfinite().all()
        made = dit(torch.randn(1, 2, 8, 8), timestep=torch.tensor([3]), class_labels=torch.tensor([2])).sample
        assert made.shape == (1, 4, 8, 8) or made.shape == (1, 2, 8, 8)
        scheduler = DDPMScheduler(10)
        scheduler.set_timesteps(5)
        for t in scheduler.timesteps:
            x = scheduler.step(x * 0.1, t, x).prev_sample
        assert x.isfinite().all()
    """)


@needs("peft", "transformers")
def test_adapters_are_wrapped_and_merged() -> None:
    installed("""
        import torch
        from peft import LoraConfig, get_peft_model
        from transformers import LlamaConfig, LlamaForCausalLM
        torch.manual_seed(0)
        model = LlamaForCausalLM(LlamaConfig(vocab_size=50, hidden_size=16, intermediate_size=24,
                                             num_hidden_layers=2, num_attention_heads=4))
        ids = torch.arange(7)[None]
        plain = model.eval()(ids).logits
        config = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], modules_to_save=["lm_head"],
                            init_lora_weights=False)
        wrapped = get_peft_model(model, config).eval()
        assert wrapped.base_model.model.lm_head.weight.shape == (50, 16)
        trained = [n for n, p in wrapped.named_parameters() if p.requires_grad]
        assert len(trained) == 9 and all("lora" in n or "modules_to_save" in n for n in trained)
        with_adapter = wrapped(ids).logits
        with wrapped.disable_adapter():
            assert torch.allclose(wrapped(ids).logits, plain, atol=1e-6)
        merged = wrapped.merge_and_unload()
        assert torch.allclose(merged(ids).logits, with_adapter, atol=1e-5)
        assert not torch.allclose(with_adapter, plain, atol=1e-3)
    """)


@needs("torchvision")
def test_operators_and_transforms_of_torchvision() -> None:
    installed("""
        import torch, torchvision
        from torchvision import tv_tensors
        from torchvision.models.feature_extraction import create_feature_extractor
        from torchvision.transforms import v2
        corners = torch.rand(60, 2) * 20
        boxes, scores = torch.cat([corners, corners + 5 + torch.rand(60, 2) * 5], 1), torch.rand(60)
        kept, left = [], scores.argsort(descending=True).tolist()
        while left:
            kept.append(left.pop(0))
            overlap = torchvision.ops.box_iou(boxes[kept[-1]][None], boxes)[0]
            left = [i for i in left if overlap[i] <= 0.4]
        assert torchvision.ops.nms(boxes, scores, 0.4).tolist() == kept
        ramp = torch.arange(16.0).expand(1, 1, 16, 16).clone().requires_grad_()
        made = torchvision.ops.roi_align(ramp, torch.tensor([[0, 2.0, 2.0, 10.0, 10.0]]), 4, 1.0, 2, True)
        assert torch.allclose(made[0, 0, 0], torch.tensor([2.5, 4.5, 6.5, 8.5]))
        made.sum().backward()
        assert abs(ramp.grad.sum().item() - 16) < 1e-4
        assert torchvision.ops.roi_align(ramp.detach().to("meta"), torch.empty(3, 5, device="meta"), (2, 3)).shape == (
            3, 1, 2, 3)
        none = torch.zeros(1, 4, 8, 8, requires_grad=True)
        for pool in ("roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool"):
            getattr(torchvision.ops, pool)(none, torch.zeros(0, 5), 2).sum().backward()
        assert none.grad.count_nonzero() == 0
        image = tv_tensors.Image(torch.randint(0, 256, (3, 24, 24), dtype=torch.uint8))
        box = tv_tensors.BoundingBoxes([[1, 2, 10, 12]], format="XYXY", canvas_size=(24, 24))
        small, moved = v2.Compose([v2.Resize((12, 12)), v2.RandomHorizontalFlip(1.0)])(image, box)
        assert type(small) is tv_tensors.Image and moved.tolist() == [[7, 1, 12, 6]] and moved.canvas_size == (12, 12)
        chain = v2.Compose([v2.RandomCrop(16), v2.ColorJitter(0.2, 0.2, 0.2, 0.1), v2.RandomRotation(10),
                            v2.GaussianBlur(3), v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5], [0.5])])
        assert chain(image).shape == (3, 16, 16) and chain(image).dtype == torch.float32
        model = torchvision.models.resnet18().eval()
        taken = create_feature_extractor(model, {"layer1": "a", "avgpool": "b"})(torch.randn(1, 3, 32, 32))
        assert taken["a"].shape == (1, 64, 8, 8) and taken["b"].shape == (1, 512, 1, 1)
    """)


@needs("timm", "torchvision")
def test_features_of_timm_models_by_tracing() -> None:
    installed("""
        import timm, torch
        from timm.models._features_fx import create_feature_extractor
        model = timm.create_model("resnet18").eval()
        x = torch.randn(1, 3, 64, 64)
        by_name = create_feature_extractor(model, ["layer1", "layer3"])(x)
        wanted = model.forward_intermediates(x, indices=[1, 3], intermediates_only=True)
        assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(by_name.values(), wanted, strict=True))
    """)


@needs("timm")
def test_optimizers_of_timm_step_lists_as_they_step_tensors() -> None:
    installed("""
        import torch
        from timm.optim import create_optimizer_v2
        for name in ("adopt", "lamb", "cadamw", "lion", "laprop", "nadamw"):
            ends = []
            for lists in (False, True):
                torch.manual_seed(0)
                model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2).double())
                optimizer = create_optimizer_v2(model, opt=name, lr=1e-2, foreach=lists)
                for _ in range(3):
                    model[1](model[0](torch.ones(2, 3)).double()).square().mean().backward()
                    optimizer.step()
                    optimizer.zero_grad()
                ends.append(torch.cat([p.detach().double().flatten() for p in model.parameters()]))
            assert torch.allclose(*ends, atol=1e-6), name
    """)


@needs("transformers")
def test_all_that_transformers_has_can_be_asked_for() -> None:
    installed("""
        import transformers
        from transformers.exporters import exporter_executorch
        assert all(hasattr(transformers, name) for name in dir(transformers))
        try:
            exporter_executorch.ValueRanges()
            raise SystemExit("it was there")
        except NotImplementedError as e:
            assert str(e).startswith("torch.utils._sympy.value_ranges.ValueRanges is not supported")
    """)


@needs("transformers")
@pytest.mark.parametrize("attention", ["eager", "sdpa", "flex_attention"])
def test_kinds_of_attention_and_of_caches_agree(attention: str) -> None:
    installed(
        """
        import sys, torch
        from transformers import AutoModelForCausalLM, LlamaConfig
        torch.manual_seed(0)
        config = LlamaConfig(vocab_size=60, hidden_size=64, intermediate_size=48, num_hidden_layers=2,
                             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64)
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
        ids = torch.arange(9)[None]
        wanted = model(ids).logits
        model.set_attn_implementation(sys.argv[1])
        assert torch.allclose(model(ids).logits, wanted, atol=1e-5)
        options = {"max_new_tokens": 8, "pad_token_id": 0, "do_sample": False}
        kinds = ({"use_cache": False}, {"cache_implementation": "static"}, {"prompt_lookup_num_tokens": 3})
        first = model.generate(ids, **options)
        assert all(torch.equal(model.generate(ids, **options, **kind), first) for kind in kinds)
        """,
        attention,
    )


@needs("transformers", "accelerate")
def test_a_trainer_trains_saves_and_goes_on(tmp_path: Path) -> None:
    installed(
        """
        import sys, torch
        from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
        folder = sys.argv[1]
        torch.manual_seed(0)
        model = LlamaForCausalLM(LlamaConfig(vocab_size=30, hidden_size=16, intermediate_size=24,
                                             num_hidden_layers=1, num_attention_heads=4))
        rows = [torch.randint(0, 30, (8,)) for _ in range(8)]
        data = [{"input_ids": row, "labels": row} for row in rows]
        arguments = TrainingArguments(folder, max_steps=6, per_device_train_batch_size=4, report_to=[], use_cpu=True,
                                      logging_steps=1, save_steps=3, learning_rate=1e-2, disable_tqdm=True)
        trainer = Trainer(model, arguments, train_dataset=data, eval_dataset=data)
        trainer.train()
        losses = [h["loss"] for h in trainer.state.log_history if "loss" in h]
        assert len(losses) == 6 and float(losses[-1]) < float(losses[0])
        first = trainer.evaluate()["eval_loss"]
        again = Trainer(model, arguments, train_dataset=data, eval_dataset=data)
        again.train(resume_from_checkpoint=folder + "/checkpoint-3")
        assert abs(again.evaluate()["eval_loss"] - first) < 1e-5
        """,
        str(tmp_path),
    )
