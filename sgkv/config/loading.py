"""From sources to one checked configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

from pydantic import ValidationError

from sgkv.config.errors import ConfigError, Problem, config_error
from sgkv.config.model import Config
from sgkv.config.sources import (
    FILE_VARIABLE,
    Tree,
    environment,
    laid_over,
    marked,
    own_keys,
    read_file,
    split,
)

DEFAULT = "default"
ARGUMENT = "argument"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration and where each of its values was written."""

    config: Config
    origins: Mapping[str, str]
    """Origin by field path, e.g. ``{"tiers.0.capacity": "SGKV__TIERS__0__CAPACITY"}``."""

    def origin(self, path: str) -> str:
        """Where the value at `path` comes from: a file name, a variable, or ``default``."""
        return self.origins.get(path, DEFAULT)


def load(
    options: Mapping[str, object] | None = None,
    *,
    file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    origin: str = ARGUMENT,
) -> Loaded:
    """The configuration of `options`, over the environment, over a file, over the defaults.

    `options` may be SGLang's extra config as it is: SGLang's own keys are passed over, and a key
    ``config`` names the file. Otherwise `file` does, or the variable ``SGKV_CONFIG``. `origin` is
    what to call `options` in messages. Raises ConfigError with every problem that was found.
    """
    environ = os.environ if environ is None else environ
    given = own_keys(options or {})
    path = _file(given.pop("config", None), file, environ)
    layers: list[Tree] = [marked({"tiers": [{"type": "cpu"}, {"type": "disk"}]}, DEFAULT)]
    if path is not None:
        layers.append(marked(own_keys(read_file(path)), str(path)))
    layers += environment(environ)
    layers.append(marked(given, origin))
    return _validated(reduce(laid_over, layers))


def _file(named: object, file: Path | None, environ: Mapping[str, str]) -> Path | None:
    if named is not None and not isinstance(named, str | Path):
        raise ConfigError([Problem("config", f"{named!r} is not the name of a file")])
    chosen = named or file or environ.get(FILE_VARIABLE)
    try:
        return Path(chosen).expanduser() if chosen else None
    except RuntimeError as error:  # ~ of a user who has no home, or is none
        raise ConfigError([Problem("config", f"{str(chosen)!r} names no file: {error}")]) from error


def _validated(tree: Tree) -> Loaded:
    values, origins = split(tree)
    try:
        return Loaded(Config.model_validate(values), origins)
    except ValidationError as error:
        raise config_error(error, Config, origins) from error
