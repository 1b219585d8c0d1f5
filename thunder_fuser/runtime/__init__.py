"""Compiling, caching and launching generated kernels, on the card and on the host. Knows nothing of fusions."""
