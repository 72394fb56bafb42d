"""A storage node: a process that gives memory to a pool and does nothing else.

    python -m sgkv.backends.mooncake.node --master HOST:PORT --bytes N [--hostname H] [--ssd FOLDER]

It listens on all interfaces, unauthenticated: that is the library's way, and no setting changes it.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from typing import Literal

from sgkv.backends.mooncake.library import NativeStore, load, set_up
from sgkv.backends.mooncake.options import MooncakeOptions


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit code: 1 where the master does not answer."""
    options = _parse(arguments)
    stops = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)  # before the library starts threads, which inherit it
    store: NativeStore = load(options).MooncakeDistributedStore()
    code = set_up(store, options)
    if code:
        print(f"mooncake node: no pool at {options.master} ({code})", file=sys.stderr)  # noqa: T201
        return 1
    print(f"mooncake node: serving {options.segment_bytes} bytes", flush=True)  # noqa: T201
    signal.sigwait(stops)
    store.close()
    return 0


def _parse(arguments: Sequence[str] | None) -> MooncakeOptions:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--master", required=True)
    parser.add_argument("--bytes", type=int, required=True)
    parser.add_argument("--hostname", default="127.0.0.1")
    parser.add_argument("--protocol", choices=("tcp", "rdma"), default="tcp")
    parser.add_argument("--ssd", default="")
    chosen = parser.parse_args(arguments)
    protocol: Literal["tcp", "rdma"] = chosen.protocol
    return MooncakeOptions(
        master=chosen.master,
        hostname=chosen.hostname,
        protocol=protocol,
        segment_bytes=chosen.bytes,
        ssd_path=chosen.ssd,
    )


if __name__ == "__main__":
    sys.exit(main())
