"""The valkey tier: Valkey, Redis, or what speaks their protocol, alone or as a cluster."""

try:
    import valkey  # noqa: F401 - said here once, for every module below
except ImportError as error:
    raise ImportError("a tier of type valkey needs its client: pip install 'sgkv[valkey]'") from error

from sgkv.backends.valkey.backend import ValkeyBackend
from sgkv.backends.valkey.options import ValkeyOptions

__all__ = ["ValkeyBackend", "ValkeyOptions"]
