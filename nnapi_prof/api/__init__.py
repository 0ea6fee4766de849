"""The steps of a model's way, for the command line and for Python: neither prints."""
