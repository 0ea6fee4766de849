"""Models whose input sizes are left open until they are loaded.

What NNAPI sees has fixed sizes. A model with open sizes is therefore a :class:`Template`: its
conversion at one size, and what each number in it that depends on the sizes is, as an expression of
them. The expressions are found by converting the model at some sizes (:mod:`derive`) and checked by
converting it at others.
"""

from nnapi_prof.convert.dynamic_shapes.convert import flexible_region
from nnapi_prof.convert.dynamic_shapes.template import OpenSize, Template

__all__ = ["OpenSize", "Template", "flexible_region"]
