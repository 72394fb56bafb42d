"""Pages whose bytes follow from their sequence, so that any process knows what it should read."""

import random

from sgkv.reasons import MissReason
from tests.store.conftest import PAGE_BYTES

PAGES = 6


def contents(seed: int, pages: int = PAGES) -> list[list[memoryview]]:
    source = random.Random(seed)
    return [[memoryview(bytearray(source.randbytes(PAGE_BYTES)))] for _ in range(pages)]


def wrong_pages(seed: int, reasons: list[MissReason | None], pages: list[bytes]) -> list[int]:
    """Pages that a read called hits and that are not what belongs there."""
    right = [b"".join(page) for page in contents(seed, len(pages))]
    return [at for at, reason in enumerate(reasons) if reason is None and pages[at] != right[at]]
