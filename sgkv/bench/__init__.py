"""Benchmarks: every figure beside the same bytes moved by the plainest means, in the same run."""

from sgkv.bench.runner import run

__all__ = ["run"]
