"""Blobs smaller and sealed: what a tier keeps of a page, and how a page comes of it again.

A coded blob is an envelope (`envelope.py`) around a chunk blob; `backend.py` makes and opens envelopes
around any backend, so that neither the store above nor the backend below knows of them.
"""
