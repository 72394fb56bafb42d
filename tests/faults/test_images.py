"""Kind: an image's identity cut short, so that one image is served the KV of another.

SGLang writes an image into the prompt as padding tokens derived from its identity, and those are what a
page is named by. Four of 62 bits each from a 256-bit digest, or from a 64-bit hash of the item.
"""

import random

from sglang.srt.managers.schedule_batch import Modality, MultimodalDataItem

from sgkv.keys import hash_pages
from tests.sglang.conftest import get_hash_str

IMAGES = 1000
PAGE = 16
WIDE = 1 << 32


def item() -> MultimodalDataItem:
    return MultimodalDataItem(modality=Modality.IMAGE)


def test_a_thousand_images_share_no_page() -> None:
    draw = random.Random(7)
    names = set()
    for number in range(IMAGES):
        image = item()
        if number % 2:
            image.set_identity(draw.randbytes(32))
        else:
            image.set_hash(draw.getrandbits(64))
        tokens = image.padding_sequence(4 * PAGE)
        pages = hash_pages(tokens, PAGE)
        assert pages == get_hash_str(tokens, None, PAGE)
        names.update(pages)
    assert len(names) == 4 * IMAGES


def test_one_bit_of_an_images_hash_is_another_name() -> None:
    names = set()
    for bit in range(64):
        image = item()
        image.set_hash(1 << bit)
        names.add(hash_pages(image.padding_sequence(PAGE), PAGE)[0])
    assert len(names) == 64


def test_more_of_the_identity_than_32_bits_is_in_each_token() -> None:
    """Tokens wider than 32 bits take the wide form of the page hash, which drops nothing of them."""
    image = item()
    image.set_identity(bytes(range(32)))
    assert max(image.padding_values()) > WIDE
    narrow = [token % WIDE for token in image.padding_sequence(PAGE)]
    assert hash_pages(image.padding_sequence(PAGE), PAGE) != hash_pages(narrow, PAGE)
