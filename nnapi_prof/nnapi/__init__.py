"""NNAPI's facts: codes, signatures and feature levels, generated from the JSON files in ``data/``."""
