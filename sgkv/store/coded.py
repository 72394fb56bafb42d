"""From a configuration to how a tier's blobs are coded."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING

from sgkv.backends.base import Backend
from sgkv.codecs.backend import CodedBackend
from sgkv.codecs.coding import Recipe
from sgkv.codecs.errors import CodecError, KeyConfigError
from sgkv.codecs.locksmith import Locksmith
from sgkv.config import ConfigError, Problem

if TYPE_CHECKING:
    from sgkv.codecs.keys import KeyProvider
    from sgkv.config import CodecConfig, Config, KeysConfig


def coded(backend: Backend, codec: CodecConfig, config: Config) -> Backend:
    """`backend` with blobs coded as its tier says. What others have coded is read in any case.

    Raises ConfigError where keys or a codec cannot be had: better no store than one that writes what
    should have been sealed.
    """
    recipe, keys = recipe_of(codec, config, backend.name)
    if not recipe.codes:
        return CodedBackend(backend, keys=keys, threads=codec.threads)
    strict = codec.encrypt and not codec.accept_unsealed
    return CodedBackend(backend, recipe, keys=keys, sealed_only=strict, threads=codec.threads)


def recipe_of(codec: CodecConfig, config: Config, tier: str) -> tuple[Recipe, Locksmith | None]:
    """(how a tier's blobs are coded, what opens those that are sealed). Raises ConfigError."""
    squeeze = {"none": "", "zstd": f"zstd:{codec.level}", "lz4": "lz4"}[codec.compress]
    keys = Locksmith(provider(config.keys), config.tenant) if config.keys is not None else None
    locksmith = keys if codec.encrypt else None
    recipe = Recipe(squeeze, codec.planes, locksmith, codec.quantize.formats, codec.quantize.max_error)
    try:
        recipe.chain("bfloat16")
    except CodecError as error:
        raise ConfigError([Problem(f"tiers ({tier}).codec", str(error))]) from error
    return recipe, keys


def provider(keys: KeysConfig) -> KeyProvider:
    """Where the keys of a configuration come from. Raises ConfigError."""
    try:
        return _provider(keys)
    except (KeyConfigError, ImportError, AttributeError, TypeError) as error:
        raise ConfigError([Problem("keys", str(error))]) from error


def _provider(keys: KeysConfig) -> KeyProvider:
    from sgkv.codecs import sealing  # noqa: F401 - says at once where cryptography is missing
    from sgkv.codecs.keys import KeyProvider, KmsKeys, parse_keys, read_keys

    if keys.provider == "file":
        assert keys.file is not None  # as the configuration has checked
        return read_keys(keys.file)
    if keys.provider == "environment":
        return parse_keys(os.environ.get(keys.variable, ""), f"the variable {keys.variable}")
    if keys.provider == "kms":
        import boto3
        from botocore.config import Config as Botocore

        patience = Botocore(connect_timeout=2, read_timeout=5, retries={"total_max_attempts": 2})
        client = boto3.client(
            "kms", region_name=keys.kms_region, endpoint_url=keys.kms_endpoint, config=patience
        )
        return KmsKeys(str(keys.kms_key), client)
    module, _, function = str(keys.factory).partition(":")
    made = getattr(importlib.import_module(module), function)()
    if not isinstance(made, KeyProvider):
        raise KeyConfigError(f"{keys.factory} made {type(made).__name__}, which is no KeyProvider")
    return made
