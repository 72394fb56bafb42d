"""The chunk: up to 256 tokens of one rank's KV as one self-describing, checksummed blob.

docs/format.md is the written specification of what these modules read and write.
"""
