"""Copy KV from this node to a bucket.

The same as `sgkv prewarm push`, as a file to put into a cron job and to change.
"""

import typer

from sgkv.cli.prewarm import push

if __name__ == "__main__":
    typer.run(push)
