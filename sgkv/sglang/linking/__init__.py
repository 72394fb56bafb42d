"""The parts of the external cache linker; `sgkv.sglang.linker` puts them together."""
