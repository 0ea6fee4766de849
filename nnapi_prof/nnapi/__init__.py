"""NNAPI's facts: codes, signatures, feature levels, from the JSON files in ``data/``."""
