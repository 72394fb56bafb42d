"""Tiny random-weight models on disk, for real engines on small machines. No network.

Equal arguments write equal bytes: two folders written alike are the same weights to an identity
that hashes them, and another seed is another model of the same shape.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from sgkv.testing.architectures import ARCHITECTURES, Shapes

FIRST_BYTE = 2
"""Token id of the first byte symbol; 0 begins and 1 ends a sequence."""


def write_model(
    path: Path,
    kind: str,
    *,
    seed: int = 1,
    dtype: str = "float32",
    layers: int | None = None,
    hidden: int | None = None,
    **overrides: Any,
) -> Path:
    """Write config, weights and a byte-level tokenizer into `path`, and return it.

    `kind` names one of `ARCHITECTURES`; `layers`, `hidden` and `overrides` replace entries of its
    config.json. `dtype` is a torch name: the values are those of float32, rounded.
    """
    sizes = {"num_hidden_layers": layers, "hidden_size": hidden}
    given = {key: value for key, value in sizes.items() if value is not None}
    config, shapes = ARCHITECTURES[kind]({**given, **overrides})
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps({**config, "dtype": dtype}, indent=1))
    weights = _random_weights(shapes, seed, getattr(torch, dtype))
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    _write_tokenizer(path, config["max_position_embeddings"])
    return path


def _random_weights(shapes: Shapes, seed: int, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Norms are ones; matrices keep the scale of what passes through, embeddings have scale 1."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in shapes.items():
        if len(shape) == 1:
            weights[name] = torch.ones(shape, dtype=dtype)
            continue
        scale = 1.0 if "embed_tokens" in name else shape[1] ** -0.5
        weights[name] = (torch.randn(shape, generator=generator) * scale).to(dtype)
    return weights


def _write_tokenizer(path: Path, length: int) -> None:
    """One token a byte, no merges: any text tokenizes, and length in tokens is length in bytes."""
    symbols = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<s>": 0, "</s>": 1, **{symbol: i for i, symbol in enumerate(symbols, FIRST_BYTE)}}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(path / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "model_max_length": length,
        "chat_template": "{% for m in messages %}{{ m['content'] }}{% endfor %}",
    }
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
