"""Small models in the manner of well-known architectures, with what is peculiar to each.

``ARCHITECTURES`` maps a name to a function that makes the model, in eval mode, and its inputs.
Widths are tiny, so that each converts and runs in a second.
"""

from tests.convert.architectures.images import CLASSIFIERS, DENSE
from tests.convert.architectures.sequences import SEQUENCES, TRANSFORMERS

ARCHITECTURES = CLASSIFIERS | DENSE | SEQUENCES | TRANSFORMERS
