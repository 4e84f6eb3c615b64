"""Further models from `transformers` and `torch.nn` that the front end must take, with no change to either."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import transformers as t
from torch import Tensor, nn

from rhino.frontend.program import Program

Batch = Mapping[str, Tensor]
_DECODER = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "use_cache": False,
}
_ENCODER = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
_SEQ2SEQ = {
    "vocab_size": 64,
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "dropout": 0.0,
    "use_cache": False,
}
_TOWER = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}


def _own_loss(model: nn.Module, batch: Batch) -> Tensor:
    return model(**batch).loss


def _contrastive(model: nn.Module, batch: Batch) -> Tensor:
    return model(**batch, return_loss=True).loss


def _square(model: nn.Module, batch: Batch) -> Tensor:
    out = model(*batch.values())
    return (out[0] if isinstance(out, tuple) else out).square().mean()


def _text(length: int = 16) -> dict[str, Tensor]:
    tokens = torch.randint(5, 64, (2, length), generator=torch.Generator().manual_seed(0))
    return {"input_ids": tokens, "labels": tokens}


def _random(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def _picture() -> dict[str, Tensor]:
    return {"pixel_values": _random(2, 3, 32, 32), "labels": torch.tensor([1, 2])}


def _segments() -> dict[str, Tensor]:
    return _picture() | {"labels": torch.arange(2 * 32 * 32).reshape(2, 32, 32) % 3}


Entry = tuple[Callable[[], nn.Module], Callable[[], dict[str, Tensor]], Callable[[nn.Module, Batch], Tensor]]

MORE: dict[str, Entry] = {
    "mistral": (
        lambda: t.MistralForCausalLM(t.MistralConfig(**_DECODER, sliding_window=8)),
        _text,
        _own_loss,
    ),
    "qwen2": (lambda: t.Qwen2ForCausalLM(t.Qwen2Config(**_DECODER)), _text, _own_loss),
    "qwen3": (lambda: t.Qwen3ForCausalLM(t.Qwen3Config(**_DECODER, head_dim=8)), _text, _own_loss),
    "gemma2": (lambda: t.Gemma2ForCausalLM(t.Gemma2Config(**_DECODER, head_dim=8)), _text, _own_loss),
    "mixtral": (
        lambda: t.MixtralForCausalLM(
            t.MixtralConfig(**_DECODER, num_local_experts=4, experts_implementation="batched_mm")
        ),
        _text,
        _own_loss,
    ),
    "phi": (
        lambda: t.PhiForCausalLM(t.PhiConfig(**_DECODER, resid_pdrop=0.0, embd_pdrop=0.0)),
        _text,
        _own_loss,
    ),
    "opt": (
        lambda: t.OPTForCausalLM(t.OPTConfig(**_DECODER, ffn_dim=64, word_embed_proj_dim=32, dropout=0.0)),
        _text,
        _own_loss,
    ),
    "gpt_neox": (lambda: t.GPTNeoXForCausalLM(t.GPTNeoXConfig(**_DECODER)), _text, _own_loss),
    "bloom": (
        lambda: t.BloomForCausalLM(
            t.BloomConfig(vocab_size=64, hidden_size=32, n_layer=2, n_head=4, use_cache=False)
        ),
        _text,
        _own_loss,
    ),
    "mamba": (
        lambda: t.MambaForCausalLM(
            t.MambaConfig(vocab_size=64, hidden_size=16, num_hidden_layers=1, state_size=4, use_cache=False)
        ),
        lambda: _text(6),
        _own_loss,
    ),
    "roberta": (lambda: t.RobertaForMaskedLM(t.RobertaConfig(**_ENCODER)), _text, _own_loss),
    "electra": (
        lambda: t.ElectraForMaskedLM(t.ElectraConfig(**_ENCODER, embedding_size=32)),
        _text,
        _own_loss,
    ),
    "deberta": (
        lambda: t.DebertaV2ForMaskedLM(
            t.DebertaV2Config(
                **_ENCODER, relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=8
            )
        ),
        _text,
        _own_loss,
    ),
    "bart": (
        lambda: t.BartForConditionalGeneration(t.BartConfig(**_SEQ2SEQ, max_position_embeddings=64)),
        _text,
        _own_loss,
    ),
    "whisper": (
        lambda: t.WhisperForConditionalGeneration(
            t.WhisperConfig(
                **_SEQ2SEQ,
                num_mel_bins=8,
                max_source_positions=16,
                max_target_positions=16,
                pad_token_id=0,
                decoder_start_token_id=1,
                bos_token_id=1,
                eos_token_id=2,
            )
        ),
        lambda: {"input_features": _random(2, 8, 32), "labels": _text(8)["labels"]},
        _own_loss,
    ),
    "clip": (
        lambda: t.CLIPModel(
            t.CLIPConfig(
                text_config=dict(**_TOWER, vocab_size=64, max_position_embeddings=16, eos_token_id=2),
                vision_config=dict(**_TOWER, image_size=32, patch_size=8),
                projection_dim=16,
            )
        ),
        lambda: {"input_ids": _text()["input_ids"], "pixel_values": _picture()["pixel_values"]},
        _contrastive,
    ),
    "swin": (
        lambda: t.SwinForImageClassification(
            t.SwinConfig(
                image_size=32,
                patch_size=2,
                embed_dim=8,
                depths=[2, 2],
                num_heads=[2, 4],
                window_size=4,
                num_labels=8,
                drop_path_rate=0.0,
            )
        ),
        _picture,
        _own_loss,
    ),
    "convnext": (
        lambda: t.ConvNextForImageClassification(
            t.ConvNextConfig(hidden_sizes=[8, 16], depths=[1, 1], num_stages=2, num_labels=8)
        ),
        _picture,
        _own_loss,
    ),
    "mobilenet": (
        lambda: t.MobileNetV2ForImageClassification(
            t.MobileNetV2Config(
                image_size=32, num_labels=8, depth_multiplier=0.25, classifier_dropout_prob=0.0
            )
        ),
        _picture,
        _own_loss,
    ),
    "segformer": (
        lambda: t.SegformerForSemanticSegmentation(
            t.SegformerConfig(
                hidden_sizes=[8] * 4,
                depths=[1] * 4,
                num_attention_heads=[1] * 4,
                decoder_hidden_size=8,
                num_labels=3,
                classifier_dropout_prob=0.0,
                drop_path_rate=0.0,
            )
        ),
        _segments,
        _own_loss,
    ),
    "lstm": (lambda: nn.LSTM(8, 16, 2, batch_first=True), lambda: {"x": _random(2, 5, 8)}, _square),
    "gru": (lambda: nn.GRU(8, 16), lambda: {"x": _random(5, 2, 8)}, _square),
    "multihead_attention": (
        lambda: nn.MultiheadAttention(16, 4, batch_first=True),
        lambda: {n: _random(2, 5, 16) for n in "qkv"},
        _square,
    ),
    "transformer_encoder": (
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True), 2
        ),
        lambda: {"x": _random(2, 5, 16)},
        _square,
    ),
    "weight_norm": (
        lambda: nn.utils.parametrizations.weight_norm(nn.Linear(8, 8)),
        lambda: {"x": _random(2, 8)},
        _square,
    ),
}


def make(name: str) -> Program:
    """A further model in float64 with random weights, in training mode."""
    model, batch, loss = MORE[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = model().double().train()
    tensors = {n: x.double() if x.is_floating_point() else x for n, x in batch().items()}
    return Program(module, loss, tensors)
