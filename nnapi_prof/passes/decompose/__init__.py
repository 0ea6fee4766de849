"""Decomposes operations that NNAPI lacks into several that it has."""
