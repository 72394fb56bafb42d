"""SGLang's own parts in the benchmarks: its host pools, its file backend, and our adapter as it drives it.

Only these modules of the benchmarks import sglang.
"""
