"""Quantised layers as NNAPI's quant8 operations, by its rules for scales and zero points."""
