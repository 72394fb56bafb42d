"""Warming a store before traffic: compute prompts, copy blobs between tiers, verify what is there.

Everything here works on the backend contract, so any tier can be source or target. docs/prewarm.md is
the operator's page; `sgkv prewarm` and scripts/prewarm_*.py call what this package offers.
"""
