"""Copy KV between any two tiers, such as the buckets of two zones.

The same as `sgkv prewarm sync`, as a file to put into a cron job and to change.
"""

import typer

from sgkv.cli.prewarm import sync

if __name__ == "__main__":
    typer.run(sync)
