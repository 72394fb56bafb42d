"""The numbers a simulation stands on, from a file."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sgkv.decide import Prefill


class FiguresError(ValueError):
    """A file of figures that cannot be used."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Model(_Section):
    """A model on its devices."""

    tokens_s: float = Field(gt=0)
    half_length: float = Field(gt=0)
    kv_bytes: int = Field(gt=0)
    """Of one token."""

    @property
    def prefill(self) -> Prefill:
        return Prefill(self.tokens_s, self.half_length)


class Media(_Section):
    """What KV is kept on, but for its bandwidth."""

    latency: float = Field(ge=0)
    scatter: float = Field(gt=0)
    control: float = Field(ge=0)
    jitter: float = Field(ge=0, lt=1)


class Figures(_Section):
    """All of them."""

    models: dict[str, Model] = Field(min_length=1)
    media: Media

    def model(self, name: str) -> Model:
        """Raises FiguresError for a model that is not among them."""
        if name not in self.models:
            raise FiguresError(f"there is no model {name!r}; choose from {', '.join(self.models)}")
        return self.models[name]


def load_figures(path: Path | None = None) -> Figures:
    """Those of `path`, or the package's own. Raises FiguresError with what is wrong."""
    source = path or files("sgkv.replay") / "figures.yaml"
    try:
        return Figures.model_validate(yaml.safe_load(source.read_text()))
    except (OSError, yaml.YAMLError, ValidationError) as error:
        raise FiguresError(f"{source}: {error}") from error
