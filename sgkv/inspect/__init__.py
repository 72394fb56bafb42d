"""Looking into what a tier holds: `sgkv inspect`."""
