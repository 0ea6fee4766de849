"""Actions on a device: profiling a model's regions, running, verifying and comparing plans."""
