"""What every part of the configuration is made of."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, TypeAlias

from pydantic import BaseModel, ConfigDict, PlainSerializer, PlainValidator

from sgkv.config.units import Auto


class Section(BaseModel):
    """A part of the configuration: immutable, and no key in it goes unread."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


def parse_path(value: object) -> Path | Auto:
    """An absolute path, with ``~`` for the home folder, or ``"auto"``."""
    if value == "auto":
        return "auto"
    if not isinstance(value, str | Path):
        raise ValueError(f"{value!r} is not a path")  # noqa: TRY004 - pydantic collects ValueErrors
    try:
        os.fsencode(value)
        path = Path(value).expanduser()
    except (RuntimeError, UnicodeError) as error:
        raise ValueError(f"{str(value)!r} is not a path: {error}") from error
    if "\0" in str(value):
        raise ValueError(f"{str(value)!r} is not a path: no name holds a zero byte")
    if not path.is_absolute():
        raise ValueError(f"{str(value)!r} depends on where the server is started: write an absolute path")
    return path


TierPath = Annotated[Path | Auto, PlainValidator(parse_path), PlainSerializer(str)]
AbsolutePath: TypeAlias = Annotated[Path, PlainValidator(parse_path), PlainSerializer(str)]
