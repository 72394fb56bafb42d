"""What the controller says of a prompt, if it says so in time."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import httpx
from pydantic import TypeAdapter, ValidationError

from sgkv.control.models import LookupView, NamespaceView
from sgkv.control.places import Device
from sgkv.router.prompts import Pages
from sgkv.router.settings import ControllerSettings

_SILENCE = 1.0
"""Seconds without asking, after it did not answer."""
_KV = "kv"
_namespaces = TypeAdapter(list[NamespaceView])


class Asking:
    """Of the event loop alone."""

    def __init__(self, settings: ControllerSettings, page_tokens: int) -> None:
        self.failures = 0
        self._settings = settings
        self._page_tokens = page_tokens
        self._namespace = settings.namespace
        self._silent_until = 0.0
        self._http = httpx.AsyncClient(
            base_url=settings.url,
            timeout=settings.timeout,
            headers={"authorization": f"Bearer {settings.token.get_secret_value()}"},
        )

    async def held(self, pages: Pages, instances: Sequence[str]) -> list[Mapping[Device, int]] | None:
        """Leading tokens on each device of each of the instances; None where it does not say."""
        if not pages.exact or not pages.hashes or time.monotonic() < self._silent_until:
            return None
        try:
            namespace = self._namespace or await self._only_namespace()
            if namespace is None:
                return None
            wish = {"namespace": namespace, "hashes": pages.hashes, "limit": 4096}
            answer = await self._http.post("/v1/lookup", json=wish)
            answer.raise_for_status()
            view = LookupView.model_validate_json(answer.content)
        except (httpx.HTTPError, ValidationError):
            self.failures += 1
            self._silent_until = time.monotonic() + _SILENCE
            return None
        size = self._page_tokens
        found = {
            one.instance: {device: run * size for device, run in one.devices.items()} for one in view.matches
        }
        return [found.get(instance, {}) for instance in instances]

    async def close(self) -> None:
        await self._http.aclose()

    async def _only_namespace(self) -> str | None:
        """Of the KV that stores report; None while there is none, or several and nobody says which."""
        answer = await self._http.get("/v1/namespaces")
        answer.raise_for_status()
        known = [one for one in _namespaces.validate_json(answer.content) if one.pool == _KV]
        fitting = [one.digest for one in known if one.page_tokens == self._page_tokens]
        return fitting[0] if len(fitting) == 1 else None
