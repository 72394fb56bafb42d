"""The router's own file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, ValidationError, model_validator

from sgkv.config.base import AbsolutePath, Section
from sgkv.config.errors import config_error
from sgkv.config.sources import read_file

Url = Annotated[str, Field(pattern=r"^https?://[^\s/]+/?$")]
Rate = Annotated[float, Field(gt=0)]


class EngineSettings(Section):
    """One server with an API like OpenAI's."""

    url: Url
    instance: str = Field("", max_length=128)
    """What its store is called at the controller; empty where it has none."""


class ControllerSettings(Section):
    """Whom to ask where KV is."""

    url: Url
    token: SecretStr = Field(min_length=16)
    """One whose role is ``read``."""
    namespace: str | None = Field(None, pattern=r"^[0-9a-f]{32}$")
    """Of the KV of the engines' model; null takes the only one that the controller knows."""
    timeout: float = Field(0.05, gt=0, le=5)
    """Seconds that a request waits for its answer."""


class Costs(Section):
    """What scores are worked out of: tokens a second."""

    prefill: Rate = 8_000.0
    """That an engine computes of a prompt (`sgkv calibrate` measures it)."""
    cpu: Rate = 500_000.0
    """That it loads from its node's memory."""
    disk: Rate = 100_000.0
    remote: Rate = 50_000.0
    running: float = Field(0.002, ge=0)
    """Seconds that each request that an engine is answering delays the next one."""


class RouterSettings(Section):
    """Everything."""

    engines: tuple[EngineSettings, ...] = Field(min_length=1, max_length=1024)
    controller: ControllerSettings | None = None
    tokenizer: AbsolutePath | None = None
    """Folder of the model, for prompts that are text; null knows them by their characters alone."""
    page_tokens: int = Field(64, ge=1, le=4096)
    """The engines' page size."""
    policy: Literal["cache", "round_robin"] = "cache"
    costs: Costs = Costs()
    remembered_pages: int = Field(1_000_000, ge=1)
    """Of prompts sent before, by which engine got them."""
    connect_timeout: float = Field(2.0, gt=0)
    read_timeout: float = Field(600.0, gt=0)
    """Seconds without a byte of an answer."""
    tries: int = Field(2, ge=1, le=8)
    """Engines that a request may be sent to, where one cannot be reached."""
    health_every: float = Field(2.0, gt=0)
    max_body: int = Field(16 << 20, ge=1)
    """Bytes of a request."""
    max_requests: int = Field(4096, ge=1)
    """At a time; more are refused with 429."""

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        urls = [engine.url.rstrip("/") for engine in self.engines]
        if len(set(urls)) != len(urls):
            raise ValueError("two engines have the same url")
        return self


def load_settings(path: Path) -> RouterSettings:
    """From YAML, TOML or JSON. Raises ConfigError naming each field that is wrong."""
    try:
        return RouterSettings.model_validate(read_file(path))
    except ValidationError as error:
        raise config_error(error, RouterSettings, {}) from None
