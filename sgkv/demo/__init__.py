"""A real engine answers a long prompt, is killed, comes back, and answers it again from sgkv."""

from sgkv.demo.run import run_demo

__all__ = ["run_demo"]
