"""Configuration: one model, read from a file, the environment or an engine's arguments.

`load` finds and checks the settings, `resolve` turns them into numbers for the machine at hand.
Importing this package imports pydantic; `import sgkv` does not.
"""

from sgkv.config.codecs import CodecConfig, KeysConfig
from sgkv.config.control import ControlConfig
from sgkv.config.errors import ConfigError, Problem
from sgkv.config.loading import Loaded, load
from sgkv.config.machine import Machine, Place, this_machine
from sgkv.config.model import Config, EngineConfig, LimitsConfig, LinkerConfig, ModelConfig, WriteBehindConfig
from sgkv.config.node import NodeConfig, TenantConfig
from sgkv.config.resolving import (
    ResolvedConfig,
    ResolvedCpu,
    ResolvedDisk,
    ResolvedMooncake,
    ResolvedS3,
    ResolvedTier,
    ResolvedValkey,
    resolve,
)
from sgkv.config.tiers import (
    AnyTier,
    BlobTier,
    BreakerConfig,
    CpuTier,
    DeadlineConfig,
    DiskTier,
    FaultConfig,
    MooncakeTier,
    PriceConfig,
    S3Tier,
    SimulateConfig,
    ValkeyTier,
)

__all__ = [
    "AnyTier",
    "BlobTier",
    "BreakerConfig",
    "CodecConfig",
    "Config",
    "ConfigError",
    "ControlConfig",
    "CpuTier",
    "DeadlineConfig",
    "DiskTier",
    "EngineConfig",
    "FaultConfig",
    "KeysConfig",
    "LimitsConfig",
    "LinkerConfig",
    "Loaded",
    "Machine",
    "ModelConfig",
    "MooncakeTier",
    "NodeConfig",
    "Place",
    "PriceConfig",
    "Problem",
    "ResolvedConfig",
    "ResolvedCpu",
    "ResolvedDisk",
    "ResolvedMooncake",
    "ResolvedS3",
    "ResolvedTier",
    "ResolvedValkey",
    "S3Tier",
    "SimulateConfig",
    "TenantConfig",
    "ValkeyTier",
    "WriteBehindConfig",
    "load",
    "resolve",
    "this_machine",
]
