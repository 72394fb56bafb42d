"""The node's daemon: one store for all engines of a machine, which outlives them."""
