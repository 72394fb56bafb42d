"""The whole configuration of a store, with its defaults and the rules that span fields."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from annotated_types import Gt
from pydantic import Field, field_validator, model_validator

from sgkv.config.base import Section
from sgkv.config.codecs import KeysConfig
from sgkv.config.control import ControlConfig
from sgkv.config.node import NodeConfig
from sgkv.config.tiers import AnyTier, BlobTier, CpuTier, DiskTier, Positive, check_together
from sgkv.config.units import Capacity, Duration, Percent, Size


class ModelConfig(Section):
    """What makes two servers' KV interchangeable."""

    weights: str = Field("auto", min_length=1)
    """``auto`` fingerprints the checkpoint: every byte of a small one, a sample of a large one; ``full``
    reads every byte; anything else is a revision of your own, to be changed whenever the weights are."""
    numerics: Literal["exact", "compatible"] = "exact"
    """``exact`` shares between equal engine, version, device kind and kernels; ``compatible`` within
    `numerics_class`."""
    numerics_class: str | None = Field(None, min_length=1)
    """The reviewed class, e.g. ``llama-family bf16 unquantized``."""
    head_group: int | None = Field(None, ge=1)
    """KV heads in a cell of the fleet's grid; null is what a rank holds. A divisor of that on every server,
    so that servers of other tensor-parallel sizes share KV."""
    layer_group: int | None = Field(None, ge=1)
    """Layers in a cell; null is what a pipeline stage holds."""

    @model_validator(mode="after")
    def _class_belongs_to_compatible(self) -> Self:
        if (self.numerics == "compatible") != (self.numerics_class is not None):
            raise ValueError(
                'numerics: compatible and numerics_class go together: set both, or numerics: "exact" alone'
            )
        return self


class WriteBehindConfig(Section):
    """How pages move to the slower tiers after the engine's call has returned."""

    max_bytes: Capacity = "auto"
    """Bytes waiting; past it a write is dropped and counted. A share is of the first cpu tier; auto is
    the smaller of 1 GiB and 50 % of it."""
    tail_delay: Duration = 2.0
    """How long a chunk may stay incomplete before its pages are written one by one."""
    threads: int = Field(1, ge=1, le=64)
    """Threads that write, over all tiers."""
    drain_timeout: Duration = 5.0
    """How long closing the store waits for what is queued."""


class EngineConfig(Section):
    """How long one call of the engine may wait for the store, over all tiers."""

    exists_deadline: Positive = 0.25
    get_deadline: Positive = 5.0
    set_deadline: Positive = 5.0


class GateConfig(Section):
    """Whether KV that is there is loaded also where computing it again is quicker."""

    mode: Literal["off", "shadow", "on"] = "off"
    """``shadow`` decides and counts, and loads all the same."""
    prefill_tokens_s: float = Field(20_000.0, gt=0)
    """Tokens a second that the engine computes of a short prompt."""
    prefill_half_length: float = Field(120_000.0, gt=0)
    """Tokens of a prompt over which that rate is half as high."""
    control: Duration = 0.002
    """What a load costs whatever its size: lookups, scheduling."""
    install: Annotated[Size, Gt(0)] | None = None
    """Bytes a second from the store into the device; null takes no time."""
    quantile: float = Field(0.5, gt=0, lt=1)
    """How late a read is assumed to be: 0.5 as most are, 0.95 for a promise that few loads may break."""


class RolloutConfig(Section):
    """How much of what is there is loaded, while a fleet gets used to it. Storing goes on in any mode."""

    mode: Literal["shadow", "percent", "all"] = "all"
    """``shadow`` loads nothing and counts what would have been saved; ``percent`` loads for some prompts."""
    percent: float = Field(10.0, gt=0, le=100)
    """Of prompts, by the hash of their first page: a conversation stays on its side."""
    max_failed: float | None = Field(None, gt=0, le=1)
    """Share of reads that may fail before loading pauses; null never pauses for it."""
    max_read: Positive | None = None
    """Seconds that 19 of 20 reads stay below, or loading pauses; null never pauses for it."""
    window: int = Field(200, ge=20, le=100_000)
    """Reads that are judged together."""
    pause: Positive = 300.0
    """Seconds without loads after that."""

    @property
    def active(self) -> bool:
        return self.mode != "all" or self.max_failed is not None or self.max_read is not None


class LimitsConfig(Section):
    """What may pile up in memory beside the tiers and the write-behind queue."""

    promotion_pages: int = Field(4096, ge=1)
    """Pages that wait to be copied into the cpu tier; past it a promotion is dropped and counted."""
    remembered_pages: int = Field(131_072, ge=2)
    """Pages of which each pool remembers the chunk, from lookup to read; some 300 bytes each."""


class LinkerConfig(Section):
    """How SGLang's external cache linker moves pages between its device and the store."""

    staging_chunks: int = Field(4, ge=1, le=256)
    """Chunks in one staging buffer of a read; there are two such buffers, and two of one chunk each for
    layer-wise loads and for writes."""
    layer_wise: bool = True
    """Whether a model begins to compute when its first layer is loaded; else when all are."""
    read_ahead: Size = 1 << 30
    """Bytes of pages read from slow tiers for requests that wait; what is beyond is read while the engine
    waits."""
    offload_window: int | None = Field(None, ge=1)
    """Tokens that the device may hold for being written; null is a quarter of its pool."""


class Config(Section):
    """One store."""

    mode: Literal["embedded", "attach"] = "embedded"
    """``attach`` uses the store of the node's daemon, and its tiers, instead of one in this process."""
    node: NodeConfig = NodeConfig()
    control: ControlConfig = ControlConfig()
    tenant: str = Field("default", min_length=1, max_length=128)
    """Stores of different tenants never share a blob, whatever places they share."""
    model: ModelConfig = ModelConfig()
    chunk_tokens: int = Field(256, ge=16, le=4096)
    """Tokens a stored chunk covers; a power of two."""
    tiers: tuple[Annotated[AnyTier, Field(discriminator="type")], ...] = (
        CpuTier(type="cpu"),
        DiskTier(type="disk"),
    )
    """Fastest first."""
    write_behind: WriteBehindConfig = WriteBehindConfig()
    gate: GateConfig = GateConfig()
    rollout: RolloutConfig = RolloutConfig()
    limits: LimitsConfig = LimitsConfig()
    engine: EngineConfig = EngineConfig()
    linker: LinkerConfig = LinkerConfig()
    ttl: Positive | None = None
    """Age at which a chunk is a miss; null is never."""
    keys: KeysConfig | None = None
    """For tiers that encrypt."""

    @property
    def embedded(self) -> Config:
        """The same with its own tiers: what the node's daemon makes of it, and tools that look into tiers."""
        return self.model_copy(update={"mode": "embedded"})

    @property
    def losses(self) -> list[str]:
        """What tiers make of numbers, where KV of which something was lost is to be kept apart."""
        quantized = [tier.codec.quantize for tier in self.tiers if isinstance(tier, BlobTier)]
        formats = {(one.k, one.v) for one in quantized if any(one.formats) and not one.allow_mixing}
        return [f"quantized k={k} v={v}" for k, v in sorted(formats)]

    @field_validator("chunk_tokens")
    @classmethod
    def _power_of_two(cls, tokens: int) -> int:
        if tokens & (tokens - 1):
            lower = 1 << (tokens.bit_length() - 1)
            raise ValueError(f"{tokens} is not a power of two: write {lower} or {2 * lower}")
        return tokens

    @field_validator("tiers")
    @classmethod
    def _tiers_fit_together(cls, tiers: tuple[AnyTier, ...]) -> tuple[AnyTier, ...]:
        check_together(tiers)
        return tiers

    @model_validator(mode="after")
    def _sealing_has_keys(self) -> Self:
        sealed = [tier.name for tier in self.tiers if isinstance(tier, BlobTier) and tier.codec.encrypt]
        if sealed and self.keys is None:
            raise ValueError(f"tier {sealed[0]!r} encrypts, and there are no keys: set keys")
        return self

    @model_validator(mode="after")
    def _queue_has_a_measure(self) -> Self:
        no_cpu = not any(isinstance(tier, CpuTier) for tier in self.tiers)
        if no_cpu and isinstance(self.write_behind.max_bytes, Percent):
            raise ValueError(
                "write_behind.max_bytes is a share of the cpu tier, and there is none: write a size"
            )
        return self
