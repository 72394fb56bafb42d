"""Whether bytes that arrived are a whole chunk."""

from __future__ import annotations

from sgkv.chunk.header import HeaderError, checksum, decode_header, stored_header_size


def flaw(blob: memoryview) -> str:
    """What is wrong with it: its header, its size, or a page's checksum; empty when nothing is.

    That the chunk is the one its key names is the store's to check, as it does in every read.
    """
    try:
        begin = stored_header_size(blob)
        header = decode_header(blob[:begin])
    except HeaderError as error:
        return str(error)
    if header.codecs:
        return "pages that went through a codec are not sent"
    size = header.layout.page_bytes
    if len(blob) != begin + header.pages * size:
        return f"{header.pages} pages of {size} bytes do not fit a chunk of {len(blob)}"
    for page in range(header.pages):
        at = begin + page * size
        if checksum([blob[at : at + size]]) != header.checksum_of(page):
            return f"the checksum of page {page} does not match"
    return ""
