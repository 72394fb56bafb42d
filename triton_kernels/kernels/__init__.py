"""The Triton kernels themselves; the modules beside this folder check arguments and launch them."""

RUNTIME = ["tokens", "slot_count", "first_layer", "layers", "table_start", "table_layers", "items"]
"""Arguments that differ from call to call: kernels are not compiled anew for values such as 1 or 16."""
ANYWHERE = ["slots"]
"""Pointers that may be parts of longer rows: nor are kernels compiled anew for their alignment."""
