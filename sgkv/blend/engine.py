"""A reference engine in plain torch: decoders of the Llama and Qwen families, with their KV in the open.

It computes any tokens of a prompt, at any layer, over the KV of all of them: each is a query with a length
of its own, as in decoding. For measuring what reuse does to answers; it is not fast and not meant to serve.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import linear, scaled_dot_product_attention, silu

from sgkv.blend.rope import Rope
from sgkv.triton_kernels.rotation import Rotation
from sgkv.triton_kernels.rotation_reference import turned

_FAMILIES = frozenset({"llama", "mistral", "qwen2", "qwen3"})


@dataclass(slots=True)
class KV:
    """Keys, turned to their positions, and values of a prompt: ``[layers, tokens, heads, dim]`` each."""

    keys: Tensor
    values: Tensor

    @property
    def tokens(self) -> int:
        return int(self.keys.shape[1])

    def part(self, start: int, stop: int) -> KV:
        return KV(self.keys[:, start:stop], self.values[:, start:stop])


class Decoder:
    """A model in memory."""

    def __init__(self, config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> None:
        """`weights` by their names in Hugging Face checkpoints. Raises ValueError for other families."""
        if config["model_type"] not in _FAMILIES or config.get("use_sliding_window"):
            raise ValueError(f"no decoder for {config['model_type']!r} models here")
        self.config = config
        self.rope = Rope.of(config)
        self.layers: int = config["num_hidden_layers"]
        self.heads: int = config["num_attention_heads"]
        self.kv_heads: int = config["num_key_value_heads"]
        self.dim: int = config.get("head_dim") or config["hidden_size"] // self.heads
        self._epsilon = float(config["rms_norm_eps"])
        self._weights = dict(weights)

    @classmethod
    def load(cls, folder: Path) -> Decoder:
        """A checkpoint in safetensors, in float32. Raises OSError and ValueError."""
        weights: dict[str, Tensor] = {}
        for file in sorted(folder.glob("*.safetensors")):
            weights |= {name: tensor.float() for name, tensor in load_file(file).items()}
        return cls(json.loads((folder / "config.json").read_text()), weights)

    def room(self, tokens: int) -> KV:
        """Nothing yet, for a prompt of so many tokens."""
        shape = self.layers, tokens, self.kv_heads, self.dim
        return KV(torch.zeros(shape), torch.zeros(shape))

    def embedded(self, tokens: Tensor) -> Tensor:
        """``[tokens, hidden]``."""
        return self._weights["model.embed_tokens.weight"][tokens]

    def keys_and_values(self, hidden: Tensor, layer: int, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Of tokens at `positions`, ``[tokens, heads, dim]`` each."""
        x = self._norm(hidden, f"model.layers.{layer}.input_layernorm.weight")
        keys = self._headed(x, layer, "k", self.kv_heads)
        return self._turned(keys, positions), self._headed(x, layer, "v", self.kv_heads)

    def step(self, hidden: Tensor, layer: int, positions: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """What a layer makes of tokens at `positions`, each of which sees the keys up to its own position."""
        name = f"model.layers.{layer}"
        x = self._norm(hidden, f"{name}.input_layernorm.weight")
        queries = self._turned(self._headed(x, layer, "q", self.heads), positions)
        seen = torch.arange(len(keys)) <= positions[:, None]
        attended = scaled_dot_product_attention(
            queries.transpose(0, 1)[None],
            keys.transpose(0, 1)[None],
            values.transpose(0, 1)[None],
            attn_mask=seen,
            enable_gqa=True,
        )
        merged = attended[0].transpose(0, 1).reshape(len(hidden), -1)
        hidden = hidden + linear(merged, self._weights[f"{name}.self_attn.o_proj.weight"])
        y = self._norm(hidden, f"{name}.post_attention_layernorm.weight")
        gate, up = (linear(y, self._weights[f"{name}.mlp.{part}_proj.weight"]) for part in ("gate", "up"))
        return hidden + linear(silu(gate) * up, self._weights[f"{name}.mlp.down_proj.weight"])

    def logits(self, hidden: Tensor) -> Tensor:
        """``[tokens, vocabulary]``."""
        head = "model.embed_tokens.weight" if self.config.get("tie_word_embeddings") else "lm_head.weight"
        return linear(self._norm(hidden, "model.norm.weight"), self._weights[head])

    def prefill(self, tokens: Tensor, before: KV | None = None) -> tuple[Tensor, KV]:
        """(logits of `tokens`, KV of all), after the KV of what comes before them: as any engine does."""
        past = before.tokens if before is not None else 0
        kv = self.room(past + len(tokens))
        if before is not None:
            kv.keys[:, :past], kv.values[:, :past] = before.keys, before.values
        positions, hidden = torch.arange(past, kv.tokens), self.embedded(tokens)
        for layer in range(self.layers):
            kv.keys[layer, past:], kv.values[layer, past:] = self.keys_and_values(hidden, layer, positions)
            hidden = self.step(hidden, layer, positions, kv.keys[layer], kv.values[layer])
        return self.logits(hidden), kv

    def moved(self, keys: Tensor, offset: int) -> Tensor:
        """Keys ``[..., dim]`` of tokens that stand `offset` further on."""
        return turned(keys, Rotation.by(offset, self.rope.inverse_frequencies))

    def _headed(self, x: Tensor, layer: int, kind: str, heads: int) -> Tensor:
        name = f"model.layers.{layer}.self_attn.{kind}"
        made = linear(x, self._weights[f"{name}_proj.weight"], self._weights.get(f"{name}_proj.bias"))
        made = made.view(len(x), heads, self.dim)
        norm = f"{name}_norm.weight"
        return self._norm(made, norm) if norm in self._weights else made

    def _turned(self, numbers: Tensor, positions: Tensor) -> Tensor:
        angles = positions.double()[:, None, None] * self.rope.inverse_frequencies
        cosines, sines = (
            angles.cos().float() * self.rope.magnitude,
            angles.sin().float() * self.rope.magnitude,
        )
        first, second = numbers.chunk(2, -1)
        return torch.cat([first * cosines - second * sines, second * cosines + first * sines], -1)

    def _norm(self, numbers: Tensor, name: str) -> Tensor:
        scale = torch.rsqrt(numbers.square().mean(-1, keepdim=True) + self._epsilon)
        return numbers * scale * self._weights[name]
