"""Copy KV from a bucket to this node before it takes traffic.

The same as `sgkv prewarm pull`, as a file to put into a cron job and to change.
"""

import typer

from sgkv.cli.prewarm import pull

if __name__ == "__main__":
    typer.run(pull)
