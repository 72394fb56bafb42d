"""Pages between an engine's device pools and the store, with no pool in host memory between them.

Engine-neutral: what an engine's connector has to say is which tensors make up a pool and which slots
a page lies in. Imports torch, so nothing is imported here.
"""
