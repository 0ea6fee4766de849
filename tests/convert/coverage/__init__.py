"""The 122 ATen rows by which converters are compared, as small models.

Each row is what a user would write: a module or function and its inputs. A row counts as converted
where the front end loads it, the whole of it becomes one NNAPI model, and that model gives eager
PyTorch's numbers. ``tests/convert/test_coverage.py`` runs them and holds the count.
"""

from tests.convert.coverage.arithmetic import ROWS as ARITHMETIC
from tests.convert.coverage.layers import ROWS as LAYERS
from tests.convert.coverage.quantised import ROWS as QUANTISED
from tests.convert.coverage.reductions import ROWS as REDUCTIONS
from tests.convert.coverage.rows import Row
from tests.convert.coverage.shapes import ROWS as SHAPES

ALL_ROWS: dict[str, Row] = {**LAYERS, **ARITHMETIC, **REDUCTIONS, **SHAPES, **QUANTISED}
