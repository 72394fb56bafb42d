"""The controller's page for browsers: three files that anybody may have, and that know nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.resources import files

from fastapi import FastAPI, Response

_FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
}
OPEN = frozenset(_FILES)
"""Paths that need no token: what the page shows it asks the API for, with the visitor's."""
_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "form-action 'none'; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


def add_pages(api: FastAPI) -> None:
    """Read once, at start."""
    for path, (name, media_type) in _FILES.items():
        content = files("sgkv.control").joinpath("page", name).read_bytes()
        api.add_api_route(path, _page(content, media_type), include_in_schema=False)


def _page(content: bytes, media_type: str) -> Callable[[], Awaitable[Response]]:
    async def page() -> Response:
        return Response(content, headers=_HEADERS, media_type=media_type)

    return page
