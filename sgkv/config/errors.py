"""What is wrong with a configuration, said so that it can be mended.

Each problem names the full path of the field, where its value came from, what is wrong and what to
write instead; all problems are reported at once.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel, ValidationError

from sgkv.config.tiers import CpuTier, DiskTier, MooncakeTier, S3Tier, ValkeyTier

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

Location = tuple[int | str, ...]
TIER_TYPES: Mapping[str, type[BaseModel]] = {
    "cpu": CpuTier,
    "disk": DiskTier,
    "mooncake": MooncakeTier,
    "s3": S3Tier,
    "valkey": ValkeyTier,
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to mend."""

    path: str
    """Field path like ``tiers.1.capacity``; empty where it is not about one field."""
    message: str
    origin: str = ""
    """The file, variable or argument the value came from."""

    def __str__(self) -> str:
        where = f"{self.path} ({self.origin})" if self.path and self.origin else self.path or self.origin
        return f"{where}: {self.message}" if where else self.message


class ConfigError(ValueError):
    """The configuration cannot be used; `problems` says why."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


def config_error(error: ValidationError, root: type[BaseModel], origins: Mapping[str, str]) -> ConfigError:
    """Translate what pydantic found in a `root` whose leaves came from `origins`."""
    return ConfigError(_problem(details, root, origins) for details in error.errors())


def nearest(word: str, known: Iterable[str]) -> str:
    """``; did you mean "x"?`` for the closest of `known`, else what is known."""
    names = sorted(known)
    close = difflib.get_close_matches(word.lower().replace("-", "_"), names, n=1)
    return f'; did you mean "{close[0]}"?' if close else f"; known: {', '.join(names)}"


def _problem(details: ErrorDetails, root: type[BaseModel], origins: Mapping[str, str]) -> Problem:
    location = _without_tags(details["loc"])
    message = _message(details, root)
    if details["type"].startswith("union_tag"):
        location = (*location, "type")
    path = ".".join(map(str, location))
    return Problem(path, message, _origin(path, origins))


def _message(details: ErrorDetails, root: type[BaseModel]) -> str:
    context: dict[str, Any] = details.get("ctx", {})
    given = details["input"]
    match details["type"]:
        case "extra_forbidden":
            return f"unknown key{nearest(str(details['loc'][-1]), _keys_at(details['loc'][:-1], root))}"
        case "union_tag_not_found":
            return f"is missing: write one of {', '.join(TIER_TYPES)}"
        case "union_tag_invalid":
            return f"{context['tag']!r} is not a kind of tier{nearest(str(context['tag']), TIER_TYPES)}"
        case "literal_error":
            return f"{_shown(given)} is not one of {context['expected']}"
        case "value_error":
            return str(context["error"])
        case "missing":
            return "is missing"
        case "model_type" | "model_attributes_type" | "dict_type":
            return f"{_shown(given)} is not a section: write its keys below it, or leave it out"
        case "tuple_type":
            return f"{_shown(given)} is not a list"
        case _:
            return f"{details['msg'].replace('Input should', 'should')}, not {_shown(given)}"


def _shown(value: object) -> str:
    try:
        return repr(value)
    except ValueError:  # Python writes no integers of thousands of digits
        return "a number of thousands of digits"


def _without_tags(location: Sequence[int | str]) -> Location:
    """Pydantic names the member of a union after the index; a reader's path does not."""
    return tuple(
        step
        for before, step in zip((None, *location), location, strict=False)
        if not (isinstance(before, int) and step in TIER_TYPES)
    )


def _keys_at(location: Sequence[int | str], root: type[BaseModel]) -> Iterable[str]:
    model = root
    for step in location:
        if step in TIER_TYPES:
            model = TIER_TYPES[str(step)]
        elif isinstance(step, str) and step in model.model_fields:
            model = _section(model.model_fields[step].annotation) or model
    return model.model_fields


def _section(annotation: object) -> type[BaseModel] | None:
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def _origin(path: str, origins: Mapping[str, str]) -> str:
    if path in origins:
        return origins[path]
    below = dict.fromkeys(origin for leaf, origin in origins.items() if leaf.startswith(f"{path}."))
    return ", ".join(below)
