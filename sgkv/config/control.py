"""The fleet's control plane: where a store reports what it holds."""

from __future__ import annotations

from typing import Self

from pydantic import Field, SecretStr, model_validator

from sgkv.config.base import Section
from sgkv.config.tiers import Positive


class EngineEvents(Section):
    """Where the engine publishes its KV events (SGLang and vLLM: ``--kv-events-config``)."""

    endpoint: str = Field(pattern=r"^(tcp|ipc)://\S+$")
    """To connect to, e.g. ``tcp://127.0.0.1:5557``."""
    replay: str | None = Field(None, pattern=r"^(tcp|ipc)://\S+$")
    """The engine's ``replay_endpoint``, for what was published before; null knows only what comes."""
    topic: str = Field("", max_length=128)


class Publishing(Section):
    """What the store's tiers hold, as KV events for routers that subscribe to engines."""

    endpoint: str = Field(pattern=r"^(tcp|ipc)://\S+$")
    """To listen on, e.g. ``tcp://*:5560``; whoever reaches it learns hashes of prompts."""
    replay: str | None = Field(None, pattern=r"^(tcp|ipc)://\S+$")
    """To listen on for those who missed some."""
    topic: str = Field("", max_length=128)


class ControlConfig(Section):
    """Of the process that has the tiers: an engine with `mode: embedded`, or the node's daemon."""

    url: str | None = Field(None, pattern=r"^https?://[^\s/]+/?$")
    """Of the controller, e.g. ``https://control:7600``; null reports to none."""
    token: SecretStr | None = Field(None, min_length=16)
    """One whose role is ``agent``."""
    instance: str = Field("auto", min_length=1, max_length=128)
    """What the store is called there, unlike any other; auto is host and process."""
    every: Positive = 1.0
    """Between two reports."""
    events: EngineEvents | None = None
    """Of the engine in whose process the store is, to report what its device holds; null reports none."""
    publish: Publishing | None = None
    """null publishes nothing."""

    @model_validator(mode="after")
    def _both_or_none(self) -> Self:
        if (self.url is None) != (self.token is None):
            raise ValueError("control.url and control.token go together: set both or none")
        return self
