"""The master's HTTP server, which knows what the library cannot be asked: for people, not for traffic."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from typing import Any

from sgkv.backends.base import BlobInfo
from sgkv.backends.mooncake.keys import native_key, own_key

_SECONDS = 5.0
_KEYS_A_QUERY = 100
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
"""Whatever proxies the environment names: a master is in our own network."""


class Admin:
    """`/health`, `/get_all_keys`, `/batch_query_keys`, `/get_segments_detail` and `/api/v1/tenant_quotas`."""

    def __init__(self, url: str) -> None:
        """`url` is ``http://HOST:PORT``. Raises ValueError for another kind."""
        if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            raise ValueError(f"{url!r} is not the address of an HTTP server")
        self.url = url

    def ready(self, timeout: float = _SECONDS) -> bool:
        """Whether the master serves. Raises OSError where it does not answer in `timeout` seconds."""
        return bool(json.loads(self._read("/health", timeout)).get("service_ready"))

    def segments(self) -> list[dict[str, Any]]:
        """Memory that nodes give to the pool: `segment_name`, `size_bytes`, `protocol`, `status`, ..."""
        found: list[dict[str, Any]] = json.loads(self._read("/get_segments_detail"))["segments"]
        return found

    def tenants_isolated(self) -> bool:
        """Whether the master keeps tenants apart. Raises OSError where it does not answer."""
        try:
            answer = json.loads(self._read("/api/v1/tenant_quotas"))
        except urllib.error.HTTPError:
            return False
        except ValueError:
            return False
        return bool(answer.get("success", True))

    def blobs(self, prefix: str) -> Iterator[BlobInfo]:
        """Our blobs whose key starts with `prefix`. Raises OSError where the master does not answer."""
        names = self._read("/get_all_keys").splitlines()
        keys = [key for key in map(own_key, names) if key is not None and key.startswith(prefix)]
        for start in range(0, len(keys), _KEYS_A_QUERY):
            yield from self._described(keys[start : start + _KEYS_A_QUERY])

    def _described(self, keys: Sequence[str]) -> Iterator[BlobInfo]:
        query = ",".join(urllib.parse.quote(native_key(key), safe="") for key in keys)
        found = json.loads(self._read(f"/batch_query_keys?keys={query}"))["data"]
        for key in keys:
            replicas = found.get(native_key(key), {}).get("values")
            if replicas:
                yield BlobInfo(key, replicas[0]["size_"], 0.0)

    def _read(self, path: str, timeout: float = _SECONDS) -> str:
        try:
            with _direct(self.url + path, timeout=timeout) as answer:
                text: str = answer.read().decode()
        except http.client.HTTPException as error:
            raise ConnectionError(f"{self.url} does not speak HTTP: {error}") from error
        return text
