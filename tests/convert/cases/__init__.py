"""The operator harness's table: id -> what is converted, and where it is refused and why."""

from tests.convert.cases.activation import ACTIVATIONS
from tests.convert.cases.comparison import CASTS, CHOICE, COMPARISON, MOVES
from tests.convert.cases.convolution import CONVOLUTIONS, LINEAR, TRANSPOSED
from tests.convert.cases.elementwise import ARITHMETIC
from tests.convert.cases.formulas import FORMULAS
from tests.convert.cases.indexing import INDEXING
from tests.convert.cases.moving import MOVING
from tests.convert.cases.norms import NORMS
from tests.convert.cases.pool import POOLING
from tests.convert.cases.products import ATTENTION, PRODUCTS
from tests.convert.cases.quantised import QUANTISED
from tests.convert.cases.quantised_layers import QUANTISED_LAYERS
from tests.convert.cases.recurrent import RECURRENT
from tests.convert.cases.reduction import REDUCTIONS
from tests.convert.cases.resizing import RESIZING
from tests.convert.cases.rounding import ROUNDING
from tests.convert.cases.shape import SHAPES
from tests.convert.cases.variants import VARIANTS

POINTWISE = {**COMPARISON, **CHOICE, **MOVES, **CASTS, **ROUNDING, **FORMULAS, **VARIANTS}

CASES = {
    **POINTWISE,
    **CONVOLUTIONS,
    **LINEAR,
    **ARITHMETIC,
    **ACTIVATIONS,
    **POOLING,
    **SHAPES,
    **REDUCTIONS,
    **NORMS,
    **PRODUCTS,
    **ATTENTION,
    **RECURRENT,
    **RESIZING,
    **TRANSPOSED,
    **INDEXING,
    **MOVING,
    **{f"quantised {name}": case for name, case in {**QUANTISED, **QUANTISED_LAYERS}.items()},
}
