"""The search for the best plan: a file for each of its steps; :mod:`.anytime` runs them in turn."""
