"""Finding the operation whose results differ, why, and what to do.

:mod:`.search` halves a model, :mod:`.probe` runs regions on the device with reference inputs,
:mod:`.deviation` says how far is too far, :mod:`.locate` puts these together, :mod:`.diagnosis`
tells what kind of fault it looks like, :mod:`.reproducer` writes the smallest case that shows it.
"""
