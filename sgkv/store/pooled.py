"""From the configuration of a mooncake tier to what its backend wants."""

from __future__ import annotations

from sgkv.backends.mooncake.options import MooncakeOptions
from sgkv.config import MooncakeTier


def mooncake_options(tier: MooncakeTier) -> MooncakeOptions:
    """The same settings, without pydantic."""
    return MooncakeOptions(
        master=tier.master,
        admin=tier.admin or "",
        hostname=tier.hostname,
        protocol=tier.protocol,
        devices=tier.devices,
        segment_bytes=tier.segment,
        standalone=tier.standalone or "",
        staging_bytes=tier.staging,
        io_threads=tier.io_threads or 4,
        replicas=tier.replicas,
        pin=tier.pin,
        preferred_segment=tier.preferred_segment or "",
        tenant=tier.pool_tenant,
        ssd_path=str(tier.ssd_path or ""),
        rpc_timeout=tier.rpc_timeout,
        transfer_timeout=tier.transfer_timeout,
        connect_wait=tier.connect_wait,
    )
