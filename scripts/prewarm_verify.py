"""Check every blob of a tier.

The same as `sgkv prewarm verify`, as a file to put into a cron job and to change.
"""

import typer

from sgkv.cli.prewarm import verify

if __name__ == "__main__":
    typer.run(verify)
