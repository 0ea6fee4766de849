"""Units of a graph turned into NNAPI models.

:mod:`lower` takes a set of units through the lowerings of :mod:`ops`, each of which writes to a
:class:`model.ModelBuilder`, and gives a :class:`region.Region`.
"""
