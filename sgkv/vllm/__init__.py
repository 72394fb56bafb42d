"""sgkv behind vLLM: a secondary tier of its tiered KV offload.

Only this package imports vllm, and `sgkv.vllm.launch` not even that.
"""
