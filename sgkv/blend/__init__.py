"""Reuse beyond the prefix: KV of a document wherever it appears, made right by computing a small part anew.

After CacheBlend (Yao et al., EuroSys 2025, arXiv 2405.16444).
"""
