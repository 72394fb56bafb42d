"""`python -m sgkv`."""

from sgkv.cli import main

main()
