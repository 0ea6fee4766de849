"""Documents about outputs that are not finite: JSON has no word for them."""

import json
import math
from dataclasses import replace

from nnapi_prof.documents.plans import of_checks
from nnapi_prof.documents.report import of_comparison
from nnapi_prof.execution.report import OutputCheck
from nnapi_prof.reports.comparison import Compared, Side
from tests.reports.sample import sample


def test_an_output_that_is_not_finite_is_null_and_not_ok() -> None:
    check = OutputCheck("y", (1,), math.inf, math.inf, 1e-4)
    document, finite = of_checks([check, replace(check, max_abs=0.5, relative=0.25)])
    assert document["max_abs"] is None and document["relative"] is None and not document["ok"]
    assert finite["relative"] == 0.25


def test_a_comparison_of_such_outputs_is_json() -> None:
    data = sample(8)
    assert data.run is not None
    checks = (OutputCheck("y", (1,), math.inf, math.inf, 1e-4),)
    broken = replace(data, run=replace(data.run, checks=checks))
    compared = Compared(Side.of("good", data), Side.of("broken", broken))
    json.dumps(of_comparison(compared), allow_nan=False)
