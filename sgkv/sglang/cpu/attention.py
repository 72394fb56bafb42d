"""What SGLang 0.5.23's ``torch_native`` attention backend lacks to serve every model kind of ours."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any


def absorb_mla() -> None:
    """Serve MLA models by the absorbed form always.

    The registry knows no torch_native and falls back to a handler that prefills with unabsorbed
    K and V, which torch_native then cannot read back from the latent pool.
    """
    from sglang.srt.models.deepseek_common.attention_backend_handler import AttentionBackendRegistry
    from sglang.srt.models.deepseek_common.attention_forward_methods.forward_methods import AttnForwardMethod

    AttentionBackendRegistry.register("torch_native", lambda attention, batch: AttnForwardMethod.MLA)


def read_windows_where_they_are() -> None:
    """Let layers with a sliding window read the slots they wrote.

    A hybrid pool keeps window layers in a pool of its own: torch_native translates slots into it
    when writing, but reads at the untranslated ones. Results then depend on what other requests left
    there, which looks like a cache that returns wrong KV.
    """
    from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend

    for name in ("forward_extend", "forward_decode"):
        forward = getattr(TorchNativeAttnBackend, name)
        if not hasattr(forward, "__wrapped__"):
            setattr(TorchNativeAttnBackend, name, _with_translated_slots(forward))


def _with_translated_slots(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a forward method; a backend belongs to one scheduler thread, so swapping its table is safe."""

    @functools.wraps(forward)
    def translated(backend: Any, q: Any, k: Any, v: Any, layer: Any, *args: Any, **kwargs: Any) -> Any:
        pool, table = backend.token_to_kv_pool, backend.req_to_token_pool
        if not backend.use_sliding_window_kv_pool or not pool.layers_mapping[layer.layer_id][1]:
            return forward(backend, q, k, v, layer, *args, **kwargs)
        slots = pool.translate_loc_from_full_to_swa(table.req_to_token)
        backend.req_to_token_pool = SimpleNamespace(req_to_token=slots)
        try:
            return forward(backend, q, k, v, layer, *args, **kwargs)
        finally:
            backend.req_to_token_pool = table

    return translated
