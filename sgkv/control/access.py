"""Who may ask the controller for what: bearer tokens with a role, and the tenants they speak for."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, SecretStr, TypeAdapter, ValidationError


class Role(IntEnum):
    """Each may what those before it may."""

    READ = 1
    OPERATE = 2
    ADMIN = 3


@dataclass(frozen=True, slots=True)
class Caller:
    """Who shows a token."""

    name: str
    role: Role | None
    """None is an agent's: it reports, and nothing else."""
    tenants: frozenset[str] | None = None
    """None is all of them."""

    def may(self, role: Role) -> bool:
        return self.role is not None and self.role >= role

    def covers(self, tenant: str) -> bool:
        return self.tenants is None or tenant in self.tenants


class TokenEntry(BaseModel):
    """One token in the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1, max_length=64)
    """For the audit log."""
    token: SecretStr = Field(min_length=16, max_length=512)
    role: Literal["read", "operate", "admin", "agent"]
    tenants: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """null speaks for all."""

    @property
    def caller(self) -> Caller:
        role = None if self.role == "agent" else Role[self.role.upper()]
        return Caller(self.name, role, None if self.tenants is None else frozenset(self.tenants))


_FILE = TypeAdapter(list[TokenEntry])


class Tokens:
    """The tokens of a controller, of which only digests are kept."""

    def __init__(self, entries: Sequence[TokenEntry]) -> None:
        """Raises ValueError where two have one name, or there is none."""
        if not entries:
            raise ValueError("there is no token, and so nobody who may ask anything: name one")
        if len({entry.name for entry in entries}) != len(entries):
            raise ValueError("two tokens have the same name, by which the audit log tells them apart")
        self._callers = [(_digest(entry.token.get_secret_value()), entry.caller) for entry in entries]

    @classmethod
    def load(cls, path: Path) -> Tokens:
        """From a YAML or JSON list of ``name``, ``token``, ``role`` and, if scoped, ``tenants``.

        Raises ValueError, saying what to change, and OSError.
        """
        if path.stat().st_mode & 0o077:
            raise ValueError(f"{path} can be read by others: chmod 600 {path}")
        try:
            return cls(_FILE.validate_python(yaml.safe_load(path.read_text())))
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise ValueError(f"{path}: {where or 'the file'}: {first['msg']}") from None
        except yaml.YAMLError as error:
            raise ValueError(f"{path} is neither YAML nor JSON: {error}") from None

    def caller(self, header: str) -> Caller | None:
        """Of an ``Authorization`` header; None where its token is none of ours."""
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer":
            return None
        shown = _digest(token.strip())
        found = [caller for digest, caller in self._callers if hmac.compare_digest(digest, shown)]
        return found[0] if found else None


def _digest(token: str) -> bytes:
    return sha256(token.encode("utf-8", "surrogateescape")).digest()
