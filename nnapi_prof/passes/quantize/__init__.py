"""Quantised graphs: quantize and dequantize nodes around float operations."""
