"""GPU kernels that pack and unpack KV pages, each beside a plain torch reference of the same function.

Nothing is imported here: torch and triton are paid for by the module that needs them.
"""
