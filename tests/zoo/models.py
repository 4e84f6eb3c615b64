"""Six small models from `transformers`, random weights, as Rhino programs.

Dimensions are multiples of 4 or 8 so that meshes of up to eight devices divide them; dropout is zero. Everything is
float64: equality to 1e-10 says that two programs compute the same thing. `transformers` computes parts in float32
whatever the model's dtype (RMS norms, rotary angles); the checker widens those on both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import transformers
from torch import nn

from rhino.frontend.program import Program
from rhino.ir.optimizers import AdamW, Optimizer

BATCH, SEQUENCE, VOCABULARY, LABELS, HEADS = 8, 16, 64, 8, 8


def _loss(model: nn.Module, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    return model(**batch).loss


def _next_token_loss(model: nn.Module, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    inputs = {name: tensor for name, tensor in batch.items() if name != "labels"}
    logits = model(**inputs).logits[:, :-1]
    return nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"][:, 1:].flatten())


def _program(
    make: Callable[[], nn.Module],
    batch: dict[str, torch.Tensor],
    optimizer: Optimizer | None,
    loss: Callable[[nn.Module, Mapping[str, torch.Tensor]], torch.Tensor] = _loss,
) -> Program:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = make()
        for parameter in model.parameters():  # biases and scales of fresh models are all alike
            parameter.data.add_(torch.randn_like(parameter) * 0.05)
    return Program(model.double().train(), loss, batch, optimizer or AdamW(lr=1e-3))


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(1)


def _tokens(*shape: int) -> torch.Tensor:
    return torch.randint(3, VOCABULARY, shape, generator=_generator())


def _labels(tokens: torch.Tensor) -> torch.Tensor:
    """Next-token labels in which some positions are ignored."""
    labels = tokens.clone()
    labels[:, :2] = -100
    return labels


def _padding() -> torch.Tensor:
    """An attention mask under which sequences have different lengths."""
    lengths = torch.arange(BATCH) % 4 * 2 + SEQUENCE - 6
    return (torch.arange(SEQUENCE)[None, :] < lengths[:, None]).long()


def _images(size: int) -> dict[str, torch.Tensor]:
    g = _generator()
    return {
        "pixel_values": torch.randn(BATCH, 3, size, size, generator=g, dtype=torch.float64),
        "labels": torch.randint(0, LABELS, (BATCH,), generator=g),
    }


def gpt2(optimizer: Optimizer | None = None) -> Program:
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=SEQUENCE,
        n_embd=32,
        n_layer=2,
        n_head=HEADS,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    tokens = _tokens(BATCH, SEQUENCE)
    batch = {"input_ids": tokens, "labels": _labels(tokens)}
    return _program(lambda: transformers.GPT2LMHeadModel(config), batch, optimizer, _next_token_loss)


def llama(optimizer: Optimizer | None = None) -> Program:
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS // 2,
        max_position_embeddings=SEQUENCE,
        use_cache=False,
    )
    tokens = _tokens(BATCH, SEQUENCE)
    batch = {"input_ids": tokens, "attention_mask": _padding(), "labels": _labels(tokens)}
    return _program(lambda: transformers.LlamaForCausalLM(config), batch, optimizer, _next_token_loss)


def t5(optimizer: Optimizer | None = None) -> Program:
    config = transformers.T5Config(
        vocab_size=VOCABULARY,
        d_model=32,
        d_kv=4,
        d_ff=64,
        num_layers=2,
        num_heads=HEADS,
        dropout_rate=0.0,
        use_cache=False,
        decoder_start_token_id=0,
    )
    tokens = _tokens(BATCH, SEQUENCE)
    batch = {
        "input_ids": tokens,
        "attention_mask": _padding(),
        "labels": _labels(_tokens(BATCH, SEQUENCE)[:, :8]),
    }
    return _program(lambda: transformers.T5ForConditionalGeneration(config), batch, optimizer)


def bert(optimizer: Optimizer | None = None) -> Program:
    config = transformers.BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        intermediate_size=64,
        max_position_embeddings=SEQUENCE,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    tokens = _tokens(BATCH, SEQUENCE)
    batch = {"input_ids": tokens, "attention_mask": _padding(), "labels": _labels(tokens)}
    return _program(lambda: transformers.BertForMaskedLM(config), batch, optimizer)


def vit(optimizer: Optimizer | None = None) -> Program:
    config = transformers.ViTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        intermediate_size=64,
        image_size=16,
        patch_size=4,
        num_labels=LABELS,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return _program(lambda: transformers.ViTForImageClassification(config), _images(16), optimizer)


def resnet(optimizer: Optimizer | None = None) -> Program:
    """In training mode: batch statistics over the whole batch, running statistics updated."""
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 2], num_labels=LABELS, layer_type="basic"
    )
    return _program(lambda: transformers.ResNetForImageClassification(config), _images(16), optimizer)


MODELS: dict[str, Callable[..., Program]] = {
    "gpt2": gpt2,
    "llama": llama,
    "t5": t5,
    "bert": bert,
    "vit": vit,
    "resnet": resnet,
}


def named_tensors(program: Program) -> dict[str, Any]:
    """Parameters, buffers and the sample batch by their names in the captured module, as numpy arrays (copies)."""
    from rhino.frontend.program import named_inputs

    model = program.model
    tensors = {
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
        **dict(named_inputs(program.batch)),
    }
    return {name: tensor.detach().numpy().copy() for name, tensor in tensors.items()}
