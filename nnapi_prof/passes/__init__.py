"""Passes that bring a model's graph to the normal form that lowerings read."""
