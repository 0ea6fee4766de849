"""A linear programme under construction: columns with costs and limits, rows as triples."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from nnapi_prof.partition.arrays import Floats, Ints

TOTAL = 1e4
"""What costs are scaled to sum up to: HiGHS works to an absolute 1e-7."""


class Programme:
    """Columns between 0 and a limit, 1 unless said otherwise, and rows that they are factors of."""

    def __init__(self) -> None:
        self._cost: list[Floats] = []
        self._limit: list[Floats] = []
        self._row: list[Ints] = []
        self._column: list[Ints] = []
        self._factor: list[Floats] = []
        self.low: dict[int, float] = {}
        """Of rows that are at least something else than 0"""
        self.n_columns = 0
        self.n_rows = 0

    def columns(self, cost: Floats, limit: Floats | float = 1.0) -> Ints:
        """Adds columns; their indices."""
        added = np.arange(self.n_columns, self.n_columns + cost.size).reshape(cost.shape)
        self._cost.append(cost.ravel())
        self._limit.append(np.broadcast_to(limit, cost.shape).ravel())
        self.n_columns += cost.size
        return added

    def rows(self, count: int) -> Ints:
        """Adds rows; their indices."""
        added = np.arange(self.n_rows, self.n_rows + count)
        self.n_rows += count
        return added

    def add(self, row: Ints, column: Ints, factor: Floats | float) -> None:
        """Adds entries of rows; those at the same place add up."""
        shape = np.broadcast_shapes(row.shape, column.shape, np.shape(factor))
        self._row.append(np.broadcast_to(row, shape).ravel())
        self._column.append(np.broadcast_to(column, shape).ravel())
        self._factor.append(np.broadcast_to(np.asarray(factor, np.float64), shape).ravel())

    @property
    def n_entries(self) -> int:
        """Non-zeros, those at the same place each."""
        return sum(map(len, self._row))

    @property
    def cost(self) -> Floats:
        """[columns]"""
        return np.concatenate(self._cost)

    @property
    def limit(self) -> Floats:
        """[columns]"""
        return np.concatenate(self._limit)

    @property
    def least(self) -> Floats:
        """[rows]: what each is at least."""
        least = np.zeros(self.n_rows)
        least[list(self.low)] = list(self.low.values())
        return least

    @property
    def matrix(self) -> csr_array:
        """[rows, columns]"""
        none = np.zeros(0, dtype=np.int64)
        where = np.concatenate([*self._row, none]), np.concatenate([*self._column, none])
        factor = np.concatenate([*self._factor, np.zeros(0)])
        return csr_array((factor, where), shape=(self.n_rows, self.n_columns))
