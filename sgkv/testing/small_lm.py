"""A small language model in plain torch with its KV in the open, and how to train one in minutes.

Of Llama's kind (RMS norm, rotary positions, grouped queries, SwiGLU), over bytes. For what must be measured
on a model that has learnt something, where no trained weights can be had.
"""

from __future__ import annotations

import math
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

KV: TypeAlias = "list[tuple[Tensor, Tensor]]"
"""Of each layer keys, which are rotated, and values: ``[batch, tokens, heads, dim]``."""


_EPSILON = 1e-5


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a model."""

    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    hidden: int = 128
    vocabulary: int = 256
    base: float = 10_000.0


class _Attention(nn.Module):  # type: ignore[misc] # torch has no types here
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.q = nn.Linear(shape.hidden, shape.heads * shape.head_dim, bias=False)
        self.k = nn.Linear(shape.hidden, shape.kv_heads * shape.head_dim, bias=False)
        self.v = nn.Linear(shape.hidden, shape.kv_heads * shape.head_dim, bias=False)
        self.o = nn.Linear(shape.heads * shape.head_dim, shape.hidden, bias=False)

    def forward(
        self, x: Tensor, positions: Tensor, before: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        batch, tokens, _ = x.shape
        shape = self.shape
        q = rotated(self.q(x).view(batch, tokens, shape.heads, -1), positions, shape.base)
        k = rotated(self.k(x).view(batch, tokens, shape.kv_heads, -1), positions, shape.base)
        v = self.v(x).view(batch, tokens, shape.kv_heads, -1)
        if before is not None:
            k, v = torch.cat([before[0], k], 1), torch.cat([before[1], v], 1)
        seen = torch.ones(tokens, k.shape[1], dtype=torch.bool).tril(k.shape[1] - tokens)
        out = functional.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=seen, enable_gqa=True
        )
        return self.o(out.transpose(1, 2).reshape(batch, tokens, -1)), (k, v)


class _Layer(nn.Module):  # type: ignore[misc] # torch has no types here
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        wide = 8 * shape.hidden // 3 // 8 * 8
        self.before, self.after = nn.RMSNorm(shape.hidden, _EPSILON), nn.RMSNorm(shape.hidden, _EPSILON)
        self.attention = _Attention(shape)
        self.gate = nn.Linear(shape.hidden, wide, bias=False)
        self.up = nn.Linear(shape.hidden, wide, bias=False)
        self.down = nn.Linear(wide, shape.hidden, bias=False)

    def forward(
        self, x: Tensor, positions: Tensor, before: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        attended, kv = self.attention(self.before(x), positions, before)
        x = x + attended
        y = self.after(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y)), kv


class SmallLM(nn.Module):  # type: ignore[misc] # torch has no types here
    """Call it with token ids ``[batch, tokens]``, and the KV of what comes before them."""

    def __init__(self, shape: Shape | None = None, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.shape = shape or Shape()
        self.embedding = nn.Embedding(self.shape.vocabulary, self.shape.hidden)
        self.layers = nn.ModuleList(_Layer(self.shape) for _ in range(self.shape.layers))
        self.norm = nn.RMSNorm(self.shape.hidden, _EPSILON)
        self.head = nn.Linear(self.shape.hidden, self.shape.vocabulary, bias=False)

    def forward(self, tokens: Tensor, before: KV | None = None) -> tuple[Tensor, KV]:
        """(logits ``[batch, tokens, vocabulary]``, KV of all that there is now)."""
        past = before[0][0].shape[1] if before else 0
        positions = torch.arange(past, past + tokens.shape[1])
        x, kv = self.embedding(tokens), []
        for at, layer in enumerate(self.layers):
            x, own = layer(x, positions, before[at] if before else None)
            kv.append(own)
        return self.head(self.norm(x)), kv

    def config(self) -> dict[str, Any]:
        """As the config.json of a Llama."""
        shape = self.shape
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.kv_heads,
            "head_dim": shape.head_dim,
            "hidden_size": shape.hidden,
            "vocab_size": shape.vocabulary,
            "rms_norm_eps": _EPSILON,
            "rope_theta": shape.base,
            "tie_word_embeddings": False,
        }

    def checkpoint(self) -> dict[str, Tensor]:
        """Weights by their names in a Llama's checkpoint."""
        names = {
            "attention.": "self_attn.",
            "before.": "input_layernorm.",
            "after.": "post_attention_layernorm.",
        }
        names |= {"gate.": "mlp.gate_proj.", "up.": "mlp.up_proj.", "down.": "mlp.down_proj."}
        names |= {f".{kind}.weight": f".{kind}_proj.weight" for kind in "qkvo"}
        tops = {"embedding.": "model.embed_tokens.", "norm.": "model.norm.", "head.": "lm_head."}
        found = {}
        for name, weight in self.state_dict().items():
            if name.startswith("layers."):
                for ours, theirs in names.items():
                    name = name.replace(ours, theirs)  # noqa: PLW2901
                name = f"model.{name}"  # noqa: PLW2901
            else:
                ours, theirs = next(pair for pair in tops.items() if name.startswith(pair[0]))
                name = name.replace(ours, theirs)  # noqa: PLW2901
            found[name] = weight.detach()
        return found


def rotated(x: Tensor, positions: Tensor, base: float) -> Tensor:
    """Rotary positions as Llama has them: halves of ``[..., tokens, heads, dim]`` turned by each other."""
    half = x.shape[-1] // 2
    frequencies = base ** (-torch.arange(half) / half)
    angles = positions[:, None, None] * frequencies
    first, second = x[..., :half], x[..., half:]
    cosine, sine = angles.cos(), angles.sin()
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1)


def library_text() -> tuple[Tensor, Tensor]:
    """Bytes to learn from, and bytes that are held back: Python's standard library, every tenth file."""
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    texts = [
        torch.frombuffer(bytearray(file.read_bytes() + b"\n"), dtype=torch.uint8).long() for file in files
    ]
    held = [text for at, text in enumerate(texts) if at % 10 == 5]
    return torch.cat([text for at, text in enumerate(texts) if at % 10 != 5]), torch.cat(held)


def train(
    model: SmallLM,
    batches: Iterator[Tensor],
    steps: int,
    *,
    rate: float = 3e-3,
    weights: Callable[[Tensor], Tensor] | None = None,
    told: Callable[[int, float], None] = lambda _step, _loss: None,
) -> None:
    """Next-token prediction over `steps` batches of ids ``[batch, tokens]``; `weights` says what counts."""
    optimiser = torch.optim.AdamW(model.parameters(), rate, betas=(0.9, 0.98), weight_decay=0.05)
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = rate * min(1.0, (step + 1) / 50) * (0.55 + 0.45 * math.cos(math.pi * step / steps))
        tokens = next(batches)
        logits, _ = model(tokens[:, :-1])
        losses = functional.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], reduction="none")
        counted = torch.ones_like(losses) if weights is None else weights(tokens)[:, 1:]
        loss = (losses * counted).sum() / counted.sum()
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        told(step, float(loss.detach()))


def samples(text: Tensor, batch: int, tokens: int, seed: int = 0) -> Iterator[Tensor]:
    """Pieces of a text from anywhere, forever."""
    source = torch.Generator().manual_seed(seed)
    while True:
        starts = torch.randint(len(text) - tokens, (batch,), generator=source)
        yield torch.stack([text[start : start + tokens] for start in starts])


def agreement(one: Sequence[Tensor], other: Sequence[Tensor]) -> tuple[float, float]:
    """(share of positions with the same most likely token, mean KL divergence in nats) of pairs of logits."""
    first, second = torch.cat([x.flatten(0, -2) for x in one]), torch.cat([x.flatten(0, -2) for x in other])
    same = (first.argmax(-1) == second.argmax(-1)).float().mean()
    ours, theirs = first.log_softmax(-1), second.log_softmax(-1)
    return float(same), float((ours.exp() * (ours - theirs)).sum(-1).mean())
