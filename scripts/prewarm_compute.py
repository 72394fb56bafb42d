"""Send prompts through a running SGLang server, so that their KV lands in its store.

The same as `sgkv prewarm compute`, as a file to put into a cron job and to change.
"""

import typer

from sgkv.cli.prewarm import compute

if __name__ == "__main__":
    typer.run(compute)
