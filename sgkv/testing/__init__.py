"""What sgkv's own tests, demo and benchmarks use to run real engines on any machine."""
