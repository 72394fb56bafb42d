"""The `sgkv` command. Each subcommand imports what it needs when it runs, so that help is instant."""

from sgkv.cli.app import main

__all__ = ["main"]
