"""A bundle on a device: outputs, timings, and the comparison with eager PyTorch."""
