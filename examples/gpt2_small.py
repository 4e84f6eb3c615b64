"""GPT-2 small at its true sizes, on the meta device: to be planned, without a byte of weights.

rhino plan examples/gpt2_small.py --cluster 8xH100
"""

from __future__ import annotations

import torch
from gpt2 import GPT2, Config, loss

import rhino

CONFIG = Config(vocabulary=50257, layers=12, heads=12, width=768, context=1024, batch=8)


def program() -> rhino.Program:
    with torch.device("meta"):
        model = GPT2(CONFIG)
        tokens = torch.zeros(CONFIG.batch, CONFIG.context, dtype=torch.long)
    return rhino.Program(
        model=model,
        loss=loss,
        batch={"tokens": tokens, "targets": tokens},
        optimizer=rhino.AdamW(lr=6e-4),
    )
