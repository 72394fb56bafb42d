"""Real vLLM engines for tests, demo and benchmarks: one import, many engines, each its own process.

vLLM lives in an environment of its own (`make setup-vllm`), because its pins are not SGLang's.
"""

from sgkv.testing.vllm.engine import Answer, VllmEngine, VllmHost, vllm_python

__all__ = ["Answer", "VllmEngine", "VllmHost", "vllm_python"]
