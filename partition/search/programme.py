"""A linear programme under construction: columns with costs and limits, rows as triples."""

from __future__ import annotations

from collections.abc import Sequence

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
        self._single: list[tuple[int, int, float]] = []
        """Row, column and factor of entries that came one by one."""
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

    def column(self, cost: float = 0.0, limit: float = 1.0) -> int:
        """Adds one column; its index."""
        return int(self.columns(np.array([cost]), limit)[0])

    def rows(self, count: int) -> Ints:
        """Adds rows; their indices."""
        added = np.arange(self.n_rows, self.n_rows + count)
        self.n_rows += count
        return added

    def row(self, terms: Sequence[tuple[int, float]], low: float = 0.0) -> int:
        """Adds one row of columns with factors; its index."""
        row = int(self.rows(1)[0])
        for column, factor in terms:
            self.enter(row, column, factor)
        if low:
            self.low[row] = low
        return row

    def enter(self, row: int, column: int, factor: float) -> None:
        """Adds one entry of a row."""
        self._single.append((row, column, factor))

    def add(self, row: Ints, column: Ints, factor: Floats | float) -> None:
        """Adds entries of rows; those at the same place add up."""
        shape = np.broadcast_shapes(row.shape, column.shape, np.shape(factor))
        self._row.append(np.broadcast_to(row, shape).ravel())
        self._column.append(np.broadcast_to(column, shape).ravel())
        self._factor.append(np.broadcast_to(np.asarray(factor, np.float64), shape).ravel())

    @property
    def n_entries(self) -> int:
        """Non-zeros, those at the same place each."""
        return sum(map(len, self._row)) + len(self._single)

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
        single = np.array(self._single, dtype=np.float64).reshape(-1, 3).T
        row, column = single[:2].astype(np.int64)
        where = np.concatenate([*self._row, row]), np.concatenate([*self._column, column])
        factor = np.concatenate([*self._factor, single[2]])
        return csr_array((factor, where), shape=(self.n_rows, self.n_columns))
