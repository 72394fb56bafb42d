"""vLLM's own OffloadingConnector, which also tells sgkv's tier what vLLM tells no tier.

That is the whole configuration of the engine, for an identity that outlives it, and the token ids of
each request, from which SGLang's page hashes are made. ``kv_connector: SgkvOffloadingConnector`` with
``kv_connector_module_path: sgkv.vllm.offloading``.
"""

from __future__ import annotations

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1 import KVConnectorRole
from vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector import OffloadingConnector

from sgkv.vllm.chains import PAGE_TOKENS, Chains
from sgkv.vllm.facts import Engine, announced, read_facts


class SgkvOffloadingConnector(OffloadingConnector):
    """Scheduler and worker side, each in its own process."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        extra = vllm_config.kv_transfer_config.kv_connector_extra_config
        self._chains = Chains(int(extra.get("page_tokens", PAGE_TOKENS)))
        if role != KVConnectorRole.SCHEDULER:
            super().__init__(vllm_config, role, kv_cache_config)
            return
        with announced(Engine(read_facts(vllm_config, kv_cache_config), self._chains)):
            super().__init__(vllm_config, role, kv_cache_config)

    def on_new_request(self, request: Any) -> None:
        """Scheduler thread. Requests with images, embeddings or adapters are more than their token ids."""
        named = not request.mm_features and request.prompt_embeds is None and request.lora_request is None
        if named:
            self._chains.begin(request.request_id, request.all_token_ids, request.cache_salt)
        super().on_new_request(request)
