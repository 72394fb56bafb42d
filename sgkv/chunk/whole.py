"""Whether bytes are a whole chunk blob, without knowing any model: its header and every checksum."""

from __future__ import annotations

from sgkv.chunk.header import (
    Header,
    HeaderError,
    UnknownFormatError,
    checksum,
    decode_header,
    stored_header_size,
)


def opened(blob: memoryview) -> tuple[Header, memoryview]:
    """A blob's header, and the pages that follow it, which are not looked at.

    Raises HeaderError for bytes without a header of ours, and UnknownFormatError for a chunk that this
    version cannot judge: of another format, or with pages that went through a codec.
    """
    begin = stored_header_size(blob)
    header = decode_header(blob[:begin])
    if header.codecs:
        raise UnknownFormatError(f"pages went through {', '.join(header.codecs)}, which this version has not")
    return header, blob[begin:]


def flaw_of_pages(header: Header, pages: memoryview) -> str:
    """What is wrong with the pages of a header: their number, or a checksum; empty when nothing is."""
    size = header.layout.page_bytes
    if len(pages) != header.pages * size:
        return f"{header.pages} pages of {size} bytes are not the {len(pages)} bytes that are here"
    for page in range(header.pages):
        if checksum([pages[page * size : (page + 1) * size]]) != header.checksum_of(page):
            return f"the checksum of page {page} does not match"
    return ""


def flaw(blob: memoryview) -> str:
    """What is wrong with a blob; empty when nothing is.

    That the chunk is the one its key names is for others to check: the store does in every read.
    """
    try:
        header, pages = opened(blob)
    except HeaderError as error:
        return str(error)
    return flaw_of_pages(header, pages)
