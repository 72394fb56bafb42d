"""SGLang: its HiCache storage backend, its plugin, and a CPU mode for development.

Only this package, and the benchmarks that compare with it, import sglang.
"""
