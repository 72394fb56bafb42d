"""SGLang: its HiCache storage backend, its plugin, and a CPU mode for development.

Only this package imports sglang.
"""
