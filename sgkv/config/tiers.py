"""Tiers: the places a store keeps blobs in, and how far each may be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, ClassVar, Literal, Self, TypeAlias

from annotated_types import Ge, Gt
from pydantic import (
    Field,
    SecretStr,
    field_validator,
    model_validator,
)

from sgkv.config.base import AbsolutePath, Section, TierPath
from sgkv.config.codecs import CodecConfig
from sgkv.config.units import Auto, Capacity, Duration, Percent, Size

Positive = Annotated[Duration, Gt(0)]
Address = Annotated[str, Field(pattern=r"^.+:[0-9]{1,5}$")]
"""``HOST:PORT``."""
Eviction = Literal["lru", "s3fifo", "reuse"]
"""A policy of `sgkv.backends.eviction`."""
Probability = Annotated[float, Field(ge=0, le=1)]


class DeadlineConfig(Section):
    """How long one batched call to a tier may take before its answer no longer matters."""

    contains: Positive = 0.25
    get: Positive = 5.0
    put: Positive = 10.0


class BreakerConfig(Section):
    """When to stop asking a tier that fails, and for how long."""

    failures: int = Field(5, ge=1)
    """Consecutive failed calls that open the breaker."""
    cooldown: Positive = 1.0
    """First pause; each probe that fails doubles it."""
    max_cooldown: Positive = 60.0

    @model_validator(mode="after")
    def _grows(self) -> Self:
        if self.max_cooldown < self.cooldown:
            raise ValueError("max_cooldown is shorter than cooldown: a pause only grows")
        return self


class SimulateConfig(Section):
    """Makes a tier as slow as another would be, for experiments."""

    latency: Duration = 0.0
    """Added to every call."""
    bandwidth: Annotated[Size, Gt(0)] | None = None
    """Bytes a second that the tier does not exceed; null is no limit."""


class FaultConfig(Section):
    """Makes a tier misbehave, for chaos tests: shares of calls (0..1), the same ones for the same seed."""

    seed: int = 0
    error: Probability = 0.0
    hang: Probability = 0.0
    corrupt: Probability = 0.0
    absent: Probability = 0.0


class Tier(Section):
    """What every tier has. `speed` orders the kinds: a tier may only follow one that is as fast."""

    speed: ClassVar[int]
    usual_inflight: ClassVar[int] = 8
    type: str
    name: str = Field(pattern=r"^[a-z][a-z0-9_-]{0,31}$")
    """Unique; the label in metrics."""
    capacity: Capacity = "auto"
    deadlines: DeadlineConfig = DeadlineConfig()
    breaker: BreakerConfig = BreakerConfig()
    max_inflight: int | None = Field(None, ge=1, le=1024)
    """Calls under way at once, each a thread; past it the answer is a timeout. Null is `usual_inflight`."""
    simulate: SimulateConfig | None = None
    faults: FaultConfig | None = None

    @field_validator("capacity")
    @classmethod
    def _has_room(cls, capacity: int | Percent | Auto) -> int | Percent | Auto:
        if capacity == 0:
            raise ValueError("a tier without room holds nothing: write a size, or leave the tier out")
        return capacity


class CpuTier(Tier):
    """Memory of this process. Capacity: bytes, or a share of the machine's memory."""

    speed: ClassVar[int] = 0
    type: Literal["cpu"]
    name: str = Field("cpu", pattern=r"^[a-z][a-z0-9_-]{0,31}$")
    copy_threads: int | None = Field(None, ge=1, le=64)
    """Threads that copy large batches; null chooses by the number of cores."""
    eviction: Eviction = "lru"
    """Which blobs go first when it is full."""


class BlobTier(Tier):
    """What every tier below memory has."""

    promote: bool = True
    """Whether what is read from here is also copied into the cpu tier."""
    codec: CodecConfig = CodecConfig()
    """How blobs are kept here."""


class DiskTier(BlobTier):
    """A folder of files. Capacity: bytes, or a share of the file system it lies on."""

    speed: ClassVar[int] = 1
    type: Literal["disk"]
    name: str = Field("disk", pattern=r"^[a-z][a-z0-9_-]{0,31}$")
    path: TierPath = "auto"
    """May be shared by several processes; auto is ``sgkv`` in the user's cache folder."""
    min_free: Capacity = "auto"
    """Room always left on the file system; auto is the smaller of 2 GiB and 2 %."""
    io_threads: int | None = Field(None, ge=1, le=64)
    """Threads that read and write; null chooses by the number of cores."""
    eviction: Eviction = "lru"
    """Which blobs go first when it is full."""
    fsync: Literal["none", "data"] = "none"
    """``data`` makes a published blob survive a power cut; without it a torn one is a counted miss."""


class PriceConfig(Section):
    """What a bucket costs, for `sgkv s3 cost`: S3 Express One Zone in us-east-1, in US dollars."""

    storage_gb_month: float = Field(0.11, ge=0)
    thousand_puts: float = Field(0.00113, ge=0)
    """Also of listings."""
    thousand_gets: float = Field(0.00003, ge=0)
    """Also of existence checks."""
    upload_gb: float = Field(0.0032, ge=0)
    retrieval_gb: float = Field(0.0006, ge=0)


class S3Tier(BlobTier):
    """A bucket of S3 or of what speaks its protocol. Capacity: bytes; auto is no limit of ours."""

    speed: ClassVar[int] = 3
    usual_inflight: ClassVar[int] = 16  # far calls take longer
    type: Literal["s3"]
    name: str = Field("s3", pattern=r"^[a-z][a-z0-9_-]{0,31}$")
    bucket: str = Field(min_length=3, max_length=63, pattern=r"^[a-z0-9][a-z0-9.-]*$")
    """``name--zone--x-s3`` is a directory bucket of S3 Express One Zone."""
    prefix: str = Field("sgkv/", pattern=r"^([^/].*/)?$")
    """Before every key: empty, or ending in a slash."""
    region: str | None = Field(None, min_length=1)
    endpoint: str | None = Field(None, pattern=r"^https?://[^/]+/?$")
    """Of an S3-compatible server; null is AWS."""
    addressing: Literal["auto", "path", "virtual"] = "auto"
    tls_verify: bool = True
    tls_ca: AbsolutePath | None = None
    """File of certificate authorities; null is the system's."""
    profile: str | None = Field(None, min_length=1)
    access_key: str | None = Field(None, min_length=1)
    secret_key: SecretStr | None = Field(None, min_length=1)
    """Better in the environment, where boto3 looks too."""
    session_auth: bool = True
    """Directory buckets: sessions; without, every request is authorized by itself."""
    plane: Literal["thin", "boto3"] = "thin"
    encryption: Literal["AES256", "aws:kms"] | None = None
    kms_key: str | None = Field(None, min_length=1)
    examine: bool = True
    """Find out at start what the bucket can do, and log it."""
    concurrency: int = Field(16, ge=1, le=256)
    probes: int = Field(32, ge=1, le=256)
    connect_timeout: Positive = 1.0
    read_timeout: Positive = 5.0
    attempts: int = Field(3, ge=1, le=10)
    known_keys: int = Field(250_000, ge=1)
    present_for: Duration = 600.0
    absent_for: Duration = 2.0
    list_every: Positive | None = 300.0
    prices: PriceConfig = PriceConfig()

    @field_validator("capacity")
    @classmethod
    def _is_no_share(cls, capacity: int | Percent | Auto) -> int | Percent | Auto:
        if isinstance(capacity, Percent):
            raise ValueError("a bucket has no size to take a share of: write a size, or auto")  # noqa: TRY004
        return capacity

    @model_validator(mode="after")
    def _settings_go_together(self) -> Self:
        if (self.access_key is None) != (self.secret_key is None):
            raise ValueError("access_key and secret_key go together: set both or neither")
        if self.kms_key is not None and self.encryption != "aws:kms":
            raise ValueError("kms_key needs encryption: aws:kms")
        if self.tls_ca is not None and not self.tls_verify:
            raise ValueError("tls_ca is of no use with tls_verify: false")
        return self


class MooncakeTier(BlobTier):
    """Memory pooled over machines by Mooncake Store. Its size is that of its nodes."""

    speed: ClassVar[int] = 1
    type: Literal["mooncake"]
    name: str = Field("mooncake", pattern=r"^[a-z][a-z0-9_-]{0,31}$")
    master: Address
    """RPC of the master."""
    admin: str | None = Field(None, pattern=r"^https?://[^/]+$")
    """HTTP of the master; null is port 9003 of its host."""
    hostname: str = Field("127.0.0.1", min_length=1)
    """Of this machine, for the others."""
    protocol: Literal["tcp", "rdma"] = "tcp"
    devices: str = ""
    """RDMA devices, comma-separated; empty is the library's choice."""
    segment: Size = 0
    """Memory that each rank gives to the pool, and takes along when it ends."""
    standalone: Address | None = None
    """A ``mooncake_client`` of this machine that does the work."""
    staging: Annotated[Size, Ge(16 << 20)] = 64 << 20
    """Registered memory that reads pass through."""
    io_threads: int | None = Field(None, ge=1, le=64)
    """Native calls at once, for reads and for writes each; null is 4."""
    replicas: int = Field(1, ge=1, le=16)
    pin: Literal["none", "soft", "hard"] = "none"
    preferred_segment: str | None = Field(None, min_length=1)
    pool_tenant: str = Field("default", min_length=1)
    """Tenant as the master knows it; `tenant` keeps stores apart without."""
    ssd_path: AbsolutePath | None = None
    """Folder that the segment is offloaded to, best effort."""
    rpc_timeout: Positive = 2.0
    transfer_timeout: Annotated[Duration, Ge(1)] = 3.0
    connect_wait: Duration = 10.0
    """How long a start waits for the pool."""

    @field_validator("capacity")
    @classmethod
    def _is_the_nodes(cls, capacity: int | Percent | Auto) -> int | Percent | Auto:
        if capacity != "auto":
            raise ValueError("a pool is as large as its nodes: leave capacity out, and see segment")
        return capacity

    @model_validator(mode="after")
    def _settings_go_together(self) -> Self:
        if self.standalone is not None and self.segment:
            raise ValueError("a standalone client has the segment: leave segment out")
        if self.ssd_path is not None and not self.segment:
            raise ValueError("ssd_path offloads this process's segment: give it one")
        if self.devices and self.protocol != "rdma":
            raise ValueError("devices are RDMA's: write protocol: rdma too")
        return self


class ValkeyTier(BlobTier):
    """Valkey, Redis or what speaks their protocol. Capacity: bytes; auto leaves it to the server."""

    speed: ClassVar[int] = 1
    type: Literal["valkey"]
    name: str = Field("valkey", pattern=r"^[a-z][a-z0-9_-]{0,31}$")
    address: Address
    """Of the server, or of any node of a cluster."""
    cluster: bool = False
    database: int = Field(0, ge=0)
    prefix: str = Field("sgkv/", pattern=r"^([^/].*/)?$")
    """Before every key: empty, or ending in a slash."""
    username: str | None = Field(None, min_length=1)
    password: SecretStr | None = Field(None, min_length=1)
    """Better in the environment or in a file."""
    password_file: AbsolutePath | None = None
    """Holds the password and nothing else; read at each start."""
    tls: bool = False
    tls_verify: bool = True
    tls_ca: AbsolutePath | None = None
    """File of certificate authorities; null is the system's."""
    tls_cert: AbsolutePath | None = None
    """What this side shows, for servers that want a certificate."""
    tls_key: AbsolutePath | None = None
    connections: int = Field(4, ge=1, le=64)
    connect_timeout: Positive = 1.0
    read_timeout: Positive = 5.0
    watch_every: Positive = 30.0
    list_every: Positive = 300.0

    @field_validator("capacity")
    @classmethod
    def _is_no_share(cls, capacity: int | Percent | Auto) -> int | Percent | Auto:
        if isinstance(capacity, Percent):
            raise ValueError("a server's memory is its own to share: write a size, or auto")  # noqa: TRY004
        return capacity

    @model_validator(mode="after")
    def _settings_go_together(self) -> Self:
        if self.password is not None and self.password_file is not None:
            raise ValueError("password and password_file: set one of them")
        if self.username is not None and self.password is None and self.password_file is None:
            raise ValueError("username needs a password: set password or password_file")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key go together: set both or neither")
        if not self.tls and (self.tls_ca is not None or self.tls_cert is not None):
            raise ValueError("certificates are of no use without tls: true")
        if self.tls_ca is not None and not self.tls_verify:
            raise ValueError("tls_ca is of no use with tls_verify: false")
        if self.cluster and self.database:
            raise ValueError("a cluster has only database 0")
        return self


AnyTier: TypeAlias = CpuTier | DiskTier | MooncakeTier | S3Tier | ValkeyTier


def check_together(tiers: Sequence[AnyTier]) -> None:
    """Raise ValueError where tiers that are right by themselves make no order of tiers."""
    if not tiers:
        raise ValueError("there is no tier to keep anything in: name at least one, or leave the key out")
    for upper, lower in pairwise(tiers):
        if lower.speed < upper.speed:
            raise ValueError(
                f"{lower.name!r} ({lower.type}) is faster than {upper.name!r} ({upper.type}) before it: "
                "order the tiers from fast to slow"
            )
    if len([tier for tier in tiers if isinstance(tier, CpuTier)]) > 1:
        raise ValueError("there is more than one cpu tier: add up their capacities in one")
    _distinct([tier.name for tier in tiers], "the name {!r}: give each tier its own")
    paths = [str(tier.path) for tier in tiers if isinstance(tier, DiskTier)]
    _distinct(paths, "the path {!r}: give each disk tier a folder of its own")
    places = [
        f"{tier.endpoint or ''} {tier.bucket}/{tier.prefix}" for tier in tiers if isinstance(tier, S3Tier)
    ]
    masters = [f"{tier.master} {tier.pool_tenant}" for tier in tiers if isinstance(tier, MooncakeTier)]
    _distinct(masters, "the pool {!r}: a pool is one tier")
    databases = [
        f"{tier.address}/{tier.database}/{tier.prefix}" for tier in tiers if isinstance(tier, ValkeyTier)
    ]
    _distinct(databases, "the place {!r}: give each valkey tier a prefix of its own")
    _distinct(places, "the place {!r}: give each s3 tier a bucket or prefix of its own")


def _distinct(values: Sequence[str], message: str) -> None:
    for value in values:
        if values.count(value) > 1:
            raise ValueError(f"{values.count(value)} tiers have {message.format(value)}")
