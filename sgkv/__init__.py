"""sgkv: the KV cache of LLM inference as a storage asset."""

__version__ = "0.1.0"
