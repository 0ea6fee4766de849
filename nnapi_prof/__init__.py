"""Measures PyTorch models on Android NNAPI accelerators, then decides what runs where."""

__version__ = "0.1.0"
