"""The Triton kernels themselves; the modules beside this folder check arguments and launch them."""
