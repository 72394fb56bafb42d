"""Getting hold of the library: its settings come first, and a failure says what to install."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from sgkv.backends.mooncake.options import STANDALONE_BUFFER, MooncakeOptions

DISTRIBUTIONS = (
    "mooncake-transfer-engine-non-cuda",
    "mooncake-transfer-engine",
    "mooncake-transfer-engine-cuda13",
)
"""All install the same package `mooncake`; pip sees no conflict, and the last one wins."""
_ADVICE = {
    "libibverbs": "install libibverbs1 (Debian, Ubuntu: apt install libibverbs1)",
    "libnuma": "install libnuma1 (Debian, Ubuntu: apt install libnuma1)",
    "libcurl": "install libcurl4 (Debian, Ubuntu: apt install libcurl4)",
    "libmlx5": "install ibverbs-providers (Debian, Ubuntu: apt install ibverbs-providers)",
    "libcuda": (
        "this build needs NVIDIA's driver: without a GPU install mooncake-transfer-engine-non-cuda instead"
    ),
    "libcudart": "this build is for another CUDA: choose between sgkv's extras mooncake-cuda12 and -cuda13",
}


class LibraryMissingError(ImportError):
    """The library is not installed, or lacks something; the message says what to do."""


class NativeStore(Protocol):
    """What we use of `mooncake.store.MooncakeDistributedStore` 0.3.13; all calls release the GIL.

    Called before `setup` has succeeded or after `close`, most of them end the process with SIGSEGV.
    """

    def setup(self, *arguments: object, **options: object) -> int: ...
    def setup_dummy(self, mem_pool_size: int, local_buffer_size: int, server_address: str) -> int: ...
    def close(self) -> int: ...
    def register_buffer(self, pointer: int, size: int) -> int: ...
    def unregister_buffer(self, pointer: int) -> int: ...
    def alloc_from_mem_pool(self, size: int) -> int: ...
    def batch_is_exist(self, keys: Sequence[str]) -> list[int]: ...
    def batch_put_session_start(
        self, keys: Sequence[str], sizes: Sequence[int], config: object
    ) -> list[int]: ...
    def batch_put_from_multi_buffer_ranges(
        self,
        keys: Sequence[str],
        pointers: Sequence[Sequence[int]],
        sizes: Sequence[Sequence[int]],
        offsets: Sequence[Sequence[int]],
    ) -> list[int]: ...
    def batch_put_from_multi_buffers(
        self,
        keys: Sequence[str],
        pointers: Sequence[Sequence[int]],
        sizes: Sequence[Sequence[int]],
        config: object,
    ) -> list[int]: ...
    def batch_put_session_end(self, keys: Sequence[str]) -> list[int]: ...
    def batch_put_session_revoke(self, keys: Sequence[str]) -> list[int]: ...
    def get_into_ranges(
        self,
        pointers: Sequence[int],
        keys: Sequence[Sequence[str]],
        into: Sequence[Sequence[Sequence[int]]],
        offsets: Sequence[Sequence[Sequence[int]]],
        sizes: Sequence[Sequence[Sequence[int]]],
    ) -> list[list[list[int]]]: ...
    def batch_remove(self, keys: Sequence[str], force: bool) -> list[int]: ...
    def remove_by_regex(self, pattern: str, force: bool) -> int: ...


def settings(options: MooncakeOptions) -> Mapping[str, str]:
    """The environment that bounds the library's waits, which are 30 to 90 s by default.

    Read when the library is loaded and set up. `MC_TCP_BIND_ADDRESS` is the address that the library
    gives to others; it listens on all of them whatever this says.
    """
    return {
        "MC_RPC_TIMEOUT_MS": str(round(options.rpc_timeout * 1000)),
        "MC_RPC_CONNECT_TIMEOUT_MS": str(round(options.rpc_timeout * 500)),
        "MC_STORE_CLIENT_SETUP_RETRIES": "1",
        "MC_TCP_STATUS_TIMEOUT_SEC": str(max(1, round(options.transfer_timeout))),
        "MC_TRANSFER_TIMEOUT": str(max(1, round(options.transfer_timeout))),
        "MC_TCP_BIND_ADDRESS": options.hostname,
        "MC_LOG_LEVEL": "ERROR",
    }


def load(options: MooncakeOptions) -> Any:
    """Import `mooncake.store` with our settings, where the operator has none.

    Raises LibraryMissingError.
    """
    for name, value in settings(options).items():
        os.environ.setdefault(name, value)
    try:
        return importlib.import_module("mooncake.store")
    except ImportError as error:
        raise LibraryMissingError(_explain(error)) from error


def set_up(store: NativeStore, options: MooncakeOptions) -> int:
    """Connect; 0 is success. Blocks for seconds where the master does not answer."""
    if options.standalone:
        return store.setup_dummy(2 * options.staging_bytes, STANDALONE_BUFFER, options.standalone)
    return store.setup(
        options.hostname,
        options.metadata,
        options.segment_bytes,
        0,  # no bytes of ours go through the library's own buffer
        options.protocol,
        options.devices,
        options.master,
        enable_ssd_offload=bool(options.ssd_path),
        ssd_offload_path=options.ssd_path,
        tenant_id=options.tenant,
    )


def placement(library: Any, options: MooncakeOptions) -> object:
    """Where the pool shall keep what we write (`ReplicateConfig`)."""
    config = library.ReplicateConfig()
    config.replica_num = options.replicas
    config.with_hard_pin = options.pin == "hard"
    if options.pin == "soft":
        config.soft_pin_action = library.SoftPinAction.ENABLE
    if options.preferred_segment:
        config.preferred_segment = options.preferred_segment
    return config


def _explain(error: ImportError) -> str:
    text = str(error)
    advice = next((advice for name, advice in _ADVICE.items() if f"{name}.so" in text), "")
    if advice:
        return f"Mooncake cannot be loaded ({text}): {advice}"
    if isinstance(error, ModuleNotFoundError):
        return "Mooncake is not installed: pip install 'sgkv[mooncake]' (or mooncake-cuda12, mooncake-cuda13)"
    return f"Mooncake cannot be loaded: {text}"
