"""How a tier keeps its blobs, and where keys come from."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from sgkv.config.base import AbsolutePath, Section

Format = Literal["none", "int8", "fp8", "int4", "nf4"]


class QuantizeConfig(Section):
    """Fewer bits a number: what is read is no longer what was written."""

    k: Format = "none"
    """Of keys, and of what a model keeps in their place; they bear less than values do."""
    v: Format = "none"
    max_error: float = Field(0.2, gt=0, le=1)
    """A blob of which more is lost (relative, root mean square) is kept without loss."""
    allow_mixing: bool = False
    """Let servers that keep everything share KV with this one: some of theirs will be quantized."""

    @property
    def formats(self) -> tuple[str, str]:
        return ("" if self.k == "none" else self.k, "" if self.v == "none" else self.v)


class CodecConfig(Section):
    """What is done to blobs on their way into a tier; what is read there may have been coded otherwise."""

    compress: Literal["none", "zstd", "lz4"] = "none"
    level: int = Field(1, ge=1, le=19)
    """Of zstd."""
    planes: bool = True
    """Sort the bytes of floats by their kind first, which is what makes KV compress."""
    quantize: QuantizeConfig = QuantizeConfig()
    encrypt: bool = False
    """Seal with the keys of `keys`."""
    accept_unsealed: bool = False
    """With `encrypt`: also read what is not sealed, for as long as that is still there."""
    threads: int = Field(2, ge=1, le=64)
    """Threads that code and open pages."""

    @model_validator(mode="after")
    def _unsealed_is_about_sealing(self) -> Self:
        if self.accept_unsealed and not self.encrypt:
            raise ValueError("accept_unsealed is of no use without encrypt: true")
        return self


class KeysConfig(Section):
    """What wraps the data keys of tiers that encrypt."""

    provider: Literal["file", "environment", "kms", "custom"] = "file"
    file: AbsolutePath | None = None
    """Of `sgkv keys`; only its owner may read it."""
    variable: str = Field("SGKV_KEYS", min_length=1)
    """Environment variable that holds what such a file would."""
    kms_key: str | None = Field(None, min_length=1)
    """Id, ARN or alias."""
    kms_region: str | None = Field(None, min_length=1)
    kms_endpoint: str | None = Field(None, pattern=r"^https?://[^/]+/?$")
    factory: str | None = Field(None, pattern=r"^[\w.]+:\w+$")
    """``package.module:function``, called without arguments for a `KeyProvider`."""

    @model_validator(mode="after")
    def _names_its_keys(self) -> Self:
        needed = {"file": self.file, "kms": self.kms_key, "custom": self.factory}
        if self.provider in needed and needed[self.provider] is None:
            field = {"file": "file", "kms": "kms_key", "custom": "factory"}[self.provider]
            raise ValueError(f"provider: {self.provider} needs {field}")
        return self
