"""Measurements of one device -> what any region of a model costs on any of its targets."""
