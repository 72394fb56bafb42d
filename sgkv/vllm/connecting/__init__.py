"""The parts of the connector; `sgkv.vllm.connector` puts them together."""
