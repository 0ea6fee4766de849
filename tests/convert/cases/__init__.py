"""The operator harness's table: id -> what is converted, and where it is refused and why."""

from tests.convert.cases.activation import ACTIVATIONS, NORMS
from tests.convert.cases.comparison import CASTS, CHOICE, COMPARISON, MOVES
from tests.convert.cases.convolution import CONVOLUTIONS, LINEAR, TRANSPOSED
from tests.convert.cases.elementwise import ARITHMETIC, ROUNDING
from tests.convert.cases.formulas import FORMULAS, VARIANTS
from tests.convert.cases.indexing import INDEXING
from tests.convert.cases.pool_resize import POOLING, RESIZING
from tests.convert.cases.products import ATTENTION, PRODUCTS
from tests.convert.cases.quantised import QUANTISED, QUANTISED_LAYERS
from tests.convert.cases.recurrent import RECURRENT
from tests.convert.cases.reduction import REDUCTIONS
from tests.convert.cases.shape import MOVING, SHAPES

FAMILIES = (
    *(COMPARISON, CHOICE, MOVES, CASTS, ROUNDING, FORMULAS, VARIANTS, CONVOLUTIONS, LINEAR),
    *(ARITHMETIC, ACTIVATIONS, POOLING, SHAPES, REDUCTIONS, NORMS, PRODUCTS, ATTENTION),
    *(RECURRENT, RESIZING, TRANSPOSED, INDEXING, MOVING),
)
CASES = {name: case for family in FAMILIES for name, case in family.items()}
CASES |= {f"quantised {name}": case for name, case in {**QUANTISED, **QUANTISED_LAYERS}.items()}
