"""Shapes of the tiny models: for each kind a config.json and the shape of every weight.

Sources: transformers' config classes, and the parameter names that the model classes of SGLang
0.5.23 load (``models/llama.py``, ``models/deepseek_v2.py``, ``models/spark2_5.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Config = dict[str, Any]
Shapes = dict[str, tuple[int, ...]]
Architecture = Callable[[Mapping[str, Any]], tuple[Config, Shapes]]

VOCABULARY = 512
"""Two special tokens and 256 bytes are used; the rest can only be generated."""

_COMMON: Config = {
    "vocab_size": VOCABULARY,
    "num_hidden_layers": 4,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 1,
}


def llama(overrides: Mapping[str, Any]) -> tuple[Config, Shapes]:
    """Grouped-query attention, one KV pool; two KV heads, so that ``--tp 2`` splits them."""
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **_COMMON, **overrides}
    hidden, head = config["hidden_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    attention: Shapes = {
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
    }
    return config, _decoder(config, attention)


def qwen3(overrides: Mapping[str, Any]) -> tuple[Config, Shapes]:
    """A Llama with norms of queries and keys."""
    config, shapes = llama({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", **overrides})
    for index in range(config["num_hidden_layers"]):
        for name in ("q_norm", "k_norm"):
            shapes[f"model.layers.{index}.self_attn.{name}.weight"] = (config["head_dim"],)
    return config, shapes


def gemma3(overrides: Mapping[str, Any]) -> tuple[Config, Shapes]:
    """Full and sliding-window layers as vLLM 0.32 runs them on a CPU: two to three KV cache groups."""
    kinds = ("sliding_attention", "full_attention")
    own = {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "hidden_activation": "gelu_pytorch_tanh",
        "sliding_window": 128,
        "rope_local_base_freq": 10000.0,
        "query_pre_attn_scalar": 32,
        "num_hidden_layers": 3,
    }
    config, shapes = qwen3({**own, **overrides})
    config.setdefault("layer_types", [kinds[layer % 2] for layer in range(config["num_hidden_layers"])])
    for index in range(config["num_hidden_layers"]):
        for name in ("pre_feedforward_layernorm", "post_feedforward_layernorm"):
            shapes[f"model.layers.{index}.{name}.weight"] = (config["hidden_size"],)
    return config, shapes


def demo(overrides: Mapping[str, Any]) -> tuple[Config, Shapes]:
    """A Llama whose prefill is slow next to its KV: wide MLPs and one KV head."""
    size = {
        "num_hidden_layers": 8,
        "hidden_size": 512,
        "intermediate_size": 2048,
        "num_attention_heads": 8,
        "num_key_value_heads": 1,
        "head_dim": 64,
    }
    return llama({**size, **overrides})


def mla(overrides: Mapping[str, Any]) -> tuple[Config, Shapes]:
    """DeepSeek-V2 style multi-head latent attention, dense MLPs: one latent row a token and layer."""
    latent = {
        "architectures": ["DeepseekV2ForCausalLM"],
        "model_type": "deepseek_v2",
        "num_key_value_heads": 4,
        "kv_lora_rank": 64,
        "q_lora_rank": None,
        "qk_nope_head_dim": 32,
        "qk_rope_head_dim": 32,
        "v_head_dim": 32,
        "head_dim": 32,
        # Without a scaling SGLang's DeepSeek builds no rope that its CPU path can call.
        "rope_scaling": {
            "type": "yarn",
            "factor": 2.0,
            "original_max_position_embeddings": 4096,
            "beta_fast": 32,
            "beta_slow": 1,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
        },
    }
    config = {**_COMMON, "num_hidden_layers": 3, **latent, **_DENSE, **overrides}
    config.setdefault("first_k_dense_replace", config["num_hidden_layers"])
    return config, _decoder(config, _latent_attention(config))


def swa(overrides: Mapping[str, Any]) -> tuple[Config, Shapes]:
    """Full and sliding-window layers, so a full and a window KV pool.

    Spark-2.5 is the smallest model class of SGLang 0.5.23 that has a hybrid pool, really applies
    the window and runs on torch_native. The window (128) is smaller than any prompt worth caching.
    """
    config: Config = {
        "architectures": ["Spark2_5ForCausalLM"],
        "model_type": "spark2_5",
        "sliding_window": 128,
        "headwise_attn_output_gate": False,
        **_COMMON,
        **overrides,
    }
    kinds = ("sliding_attention", "full_attention")
    config.setdefault("layer_types", [kinds[layer % 2] for layer in range(config["num_hidden_layers"])])
    rope = {"rope_theta": config.pop("rope_theta"), "partial_rotary_factor": 1.0, "rope_type": "default"}
    config.setdefault("rope_parameters", dict.fromkeys(kinds, rope))
    hidden, head = config["hidden_size"], config["head_dim"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    attention: Shapes = {
        "self_attn.q_k_v_proj": ((heads + 2 * kv_heads) * head, hidden),
        "self_attn.out_proj": (hidden, heads * head),
    }
    return config, _decoder(config, attention)


_DENSE: Config = {
    "moe_intermediate_size": 64,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_layer_freq": 1,
    "n_group": 1,
    "topk_group": 1,
    "topk_method": "greedy",
    "norm_topk_prob": False,
    "routed_scaling_factor": 1.0,
    "scoring_func": "softmax",
    "attention_dropout": 0.0,
}
"""DeepSeek's expert settings: read at load, used by no layer."""


def _latent_attention(config: Config) -> Shapes:
    hidden, heads, latent = config["hidden_size"], config["num_attention_heads"], config["kv_lora_rank"]
    nope, rope, value = config["qk_nope_head_dim"], config["qk_rope_head_dim"], config["v_head_dim"]
    return {
        "self_attn.q_proj": (heads * (nope + rope), hidden),
        "self_attn.kv_a_proj_with_mqa": (latent + rope, hidden),
        "self_attn.kv_a_layernorm": (latent,),
        "self_attn.kv_b_proj": (heads * (nope + value), latent),
        "self_attn.o_proj": (hidden, heads * value),
    }


def _decoder(config: Config, attention: Shapes) -> Shapes:
    """Embedding, head and every layer with `attention`, a gated MLP and two norms."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    layer = {
        **attention,
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
    }
    shapes: Shapes = {
        "model.embed_tokens.weight": (config["vocab_size"], hidden),
        "lm_head.weight": (config["vocab_size"], hidden),
        "model.norm.weight": (hidden,),
    }
    for index in range(config["num_hidden_layers"]):
        shapes |= {f"model.layers.{index}.{name}.weight": shape for name, shape in layer.items()}
    return shapes


ARCHITECTURES: Mapping[str, Architecture] = {
    "llama": llama,
    "qwen3": qwen3,
    "gemma3": gemma3,
    "demo": demo,
    "mla": mla,
    "swa": swa,
}
