"""The 122 ATen rows by which converters are compared, as small models.

Each row is what a user would write: a module or function and its inputs. A row counts as converted
where the front end loads it, the whole of it becomes one NNAPI model, and that model gives eager
PyTorch's numbers. ``tests/convert/test_coverage.py`` runs them and holds the count.
"""

from tests.convert.coverage.functions import ARITHMETIC, REDUCTIONS, SHAPES
from tests.convert.coverage.layers import LAYERS, QUANTISED
from tests.convert.coverage.rows import Row

ALL_ROWS: dict[str, Row] = {**LAYERS, **ARITHMETIC, **REDUCTIONS, **SHAPES, **QUANTISED}
