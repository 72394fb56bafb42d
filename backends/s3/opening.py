"""From options to a data plane."""

from __future__ import annotations

from functools import partial
from typing import Any

from sgkv.backends.remote.faults import FaultLog
from sgkv.backends.s3.address import Address
from sgkv.backends.s3.boto import BotoPlane
from sgkv.backends.s3.client import open_client
from sgkv.backends.s3.connections import Connections
from sgkv.backends.s3.keys import ChainKeys, SigningKeys
from sgkv.backends.s3.options import S3Options
from sgkv.backends.s3.plane import DataPlane
from sgkv.backends.s3.sessions import SessionKeys, create_session
from sgkv.backends.s3.thin import ThinPlane


def open_plane(
    session: Any, options: S3Options, address: Address, control: Any, faults: FaultLog
) -> DataPlane:
    """The plane that `options` name; `control` is a client to open sessions with, `faults` counts them."""
    sessions = address.directory and options.session_auth
    connections = 2 * options.concurrency + options.probes
    if options.plane == "boto3":
        new_client = partial(
            open_client, session, options, attempts=1, connections=connections, sessions=sessions
        )
        return BotoPlane(new_client, options.bucket, sessions=sessions)
    keys: SigningKeys = ChainKeys(session)
    if sessions:
        keys = SessionKeys(partial(create_session, control, options.bucket), count=faults.count)
    kept = Connections(
        address,
        verify=options.verify,
        connect_timeout=options.connect_timeout,
        read_timeout=options.read_timeout,
        most_idle=connections,
    )
    return ThinPlane(address, keys, kept)
