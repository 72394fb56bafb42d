"""What must match for bytes to be interchangeable, as one frozen value with one digest.

Every blob key begins with the digest and every chunk header repeats it, so that a difference in any
field is a miss and never a wrong hit. Byte order inside a page is deliberately not here: it is a
property of the blob, and a reader with another order converts.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property

FORMAT_VERSION = 1
DIGEST_HEX = 32
"""128 bits: names an operator's namespaces without collisions, and keeps keys short."""


@dataclass(frozen=True)
class Namespace:
    """One set of interchangeable KV pages."""

    tenant: str
    """Whose prompts these are; a tenant never hits another's pages."""
    weights: str
    """Fingerprint of the weights or the operator's revision string; never a path or a served name."""
    epoch: str
    """Which state of the weights, when they changed under a running engine; empty for as-loaded."""
    architecture: str
    """Digest of the model facts that change K or V: rope, norms, heads, windows."""
    numerics: str
    """Producer class: engine, version, device kind and kernels for `exact`, or a reviewed class."""
    kv_dtype: str
    """Logical dtype of the stored values; both fp8 kinds apart although a pool may hold uint8."""
    page_tokens: int
    chunk_tokens: int
    pool: str
    """kv, swa, mamba, indexer, draft ..."""
    cell: str
    """Which part of the model a rank's pages hold: layer range and head shard, or replicated."""
    geometry: str
    """Shape of one page without its byte order."""

    @property
    def prompt_tokens(self) -> int:
        """Tokens of a prompt that a page saves: none of a pool beside the KV, whose pages are of the same
        tokens.
        """
        return self.page_tokens if self.pool == "kv" else 0

    @cached_property
    def digest(self) -> str:
        """32 hex digits over the canonical JSON of every field and the format version."""
        canonical = json.dumps(
            {"format": FORMAT_VERSION, **asdict(self)},
            sort_keys=True,
            separators=(",", ":"),
            ensure_ascii=True,
        )
        return hashlib.sha256(canonical.encode()).hexdigest()[:DIGEST_HEX]
