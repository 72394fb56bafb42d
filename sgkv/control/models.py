"""What callers send to the controller, and what they are told."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StrictInt, model_validator

from sgkv.control.pins import LONGEST
from sgkv.control.places import Device

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
PageHash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Token = Annotated[StrictInt, Field(ge=0, lt=2**63)]
Name = Annotated[str, Field(min_length=1, max_length=128)]


class Wish(BaseModel):
    """Strict: what is not understood is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Prompt(Wish):
    """Pages of one namespace from the start of a prompt: by its tokens, or by the hashes of its pages."""

    namespace: Digest
    tokens: Annotated[tuple[Token, ...], Field(max_length=2_000_000)] = ()
    hashes: Annotated[tuple[PageHash, ...], Field(max_length=65_536)] = ()
    extra_key: Name | None = None
    """An adapter's, where tokens are given; the hashes say it themselves."""
    cache_salt: Name | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if bool(self.tokens) == bool(self.hashes):
            raise ValueError("give tokens or hashes: one of them, and not empty")
        return self


class Lookup(Prompt):
    limit: int = Field(64, ge=1, le=4096)
    """Instances, the best first."""


class PinWish(Prompt):
    seconds: float = Field(gt=0, le=LONGEST)
    instances: tuple[Name, ...] = Field((), max_length=1024)
    """None is every instance that has some of it."""


class PrefetchWish(Prompt):
    instance: Name


class MoveWish(Prompt):
    """Over a tier that both reach; where they have none, it fails and says so."""

    source: Name
    target: Name
    keep: bool = False
    """Leave what the source's disk has."""


class CompressWish(Wish):
    """What one device of an instance has of a prompt, or of a whole namespace."""

    namespace: Digest
    tokens: Annotated[tuple[Token, ...], Field(max_length=2_000_000)] = ()
    hashes: Annotated[tuple[PageHash, ...], Field(max_length=65_536)] = ()
    """Neither is the whole namespace."""
    instance: Name
    device: Literal[Device.DISK, Device.REMOTE] = Device.DISK
    method: Literal["zstd", "lz4", "none"] = "zstd"
    """``none`` makes it what it was."""
    level: int = Field(3, ge=1, le=19)
    """Of zstd."""


class ClearWish(Wish):
    """A prompt, a namespace or a tenant: exactly one."""

    prompt: Prompt | None = None
    namespace: Digest | None = None
    tenant: Name | None = None
    instance: Name | None = None
    """null is all of them."""

    @model_validator(mode="after")
    def _one_of_all(self) -> Self:
        if sum(one is not None for one in (self.prompt, self.namespace, self.tenant)) != 1:
            raise ValueError("name one of prompt, namespace and tenant")
        return self


class MatchView(BaseModel):
    """How much of a prompt an instance has."""

    instance: str
    pages: int
    tokens: int
    devices: dict[Device, int]
    """Pages on each alone."""
    draining: bool


class LookupView(BaseModel):
    pages: int
    """Of the prompt."""
    matches: list[MatchView]


class InstanceView(BaseModel):
    name: str
    silent_seconds: float
    draining: bool
    tiers: dict[str, Device]
    usage: dict[str, tuple[int, int]]
    """Bytes used, and bytes that there may be, of each tier; 0 where nobody says."""
    hit_pages: dict[str, int]
    """Since its store was opened, by tier."""
    miss_pages: dict[str, int]
    """By reason."""


class PrefixView(BaseModel):
    """A prefix that lookups found."""

    namespace: str
    hash: str
    """Of its last page."""
    pages: int
    tokens: int
    lookups: int


class NamespaceView(BaseModel):
    digest: str
    tenant: str
    weights: str
    pool: str
    cell: str
    page_tokens: int
    pages_per_chunk: int


class OperationView(BaseModel):
    id: str
    what: str
    state: Literal["running", "done", "failed", "cancelled"]
    why: str
    done: int
    total: int
    """Pages or blobs of all commands that have told so far."""
    began: float


class PinView(BaseModel):
    id: str
    owner: str
    tenant: str
    namespace: str
    pages: int
    instances: list[str]
    expires_at: float
    operation: str | None = None
