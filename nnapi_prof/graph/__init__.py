"""The graph that every stage agrees on: types, units, plans, and the passes that normalise it."""
