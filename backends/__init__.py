"""Blob stores: key -> bytes. They know nothing of pages, models or engines.

`base` is the contract; every other module is one implementation or one wrapper of it.
Implementations are imported where they are used, so that none of their dependencies is
paid for by those who do not configure them.
"""
