"""The solver's C without a warning, and under address and undefined-behaviour sanitizers."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from nnapi_prof.partition.search import FLAGS, SOURCES
from tests.processes import output_of

GCC = shutil.which("gcc")
pytestmark = pytest.mark.skipif(GCC is None, reason="needs gcc")
WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror")

SCRIPT = """
import math
from dataclasses import replace
import numpy as np
from nnapi_prof.partition import Constraints, ErrorLimit, SearchLimits, Watch, plan_problem
from nnapi_prof.partition.parallel import plan_parallel
from nnapi_prof.partition.search import FLAGS, SOURCES, library
from nnapi_prof.partition.search.exact import search_ideals
from nnapi_prof.partition.search.tables import free_prices, unit_shares
from tests.partition.mixed import mixed_network
from tests.partition.networks import wide_problem
from tests.partition.precisions import with_formats
from tests.partition.problems import draw_problem

FLAGS = (*FLAGS, "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
assert library() is not None
limits = SearchLimits(seconds=20.0, effort=2e6)
blocks, stem = wide_problem("blocks", 60, 3, 0), wide_problem("stem", 80, 2, 0)
alone = {(frozenset({u}), k): 1.02 * ns for (u, k), ns in np.ndenumerate(stem.unit_ns)}
for problem in (replace(stem, region_ns=alone), blocks, stem):
    print(plan_problem(problem, limits=limits).best.proof.kind.value)
for problem in (blocks, draw_problem(1, 7)):
    print(plan_parallel(problem, contention=1.1, promising=0.0, limits=limits).proof.kind.value)
mixed, noise = mixed_network(30, 2, 1, preferences=1)
within = Constraints(errors=(ErrorLimit(noise, 0.01),))
print(plan_problem(mixed, limits=limits, constraints=within).best.proof.kind.value)
wide = with_formats(wide_problem("blocks", 40, 3, 1), 1)
print(plan_problem(wide, limits=limits).best.proof.kind.value)
for seed in range(20):  # with regions that were measured whole
    problem = with_formats(draw_problem(seed, 8), seed)
    prices = free_prices(problem, unit_shares(problem))
    search_ideals(problem, prices, math.inf, Watch(limits), watched=list(problem.region_ns))
"""


def test_no_warnings(tmp_path):
    for source in sorted(SOURCES.glob("*.c")):
        command = [GCC, *FLAGS, *WARNINGS, source, "-o", tmp_path / "out.so", "-lm"]
        output_of(command)


@pytest.mark.again("`make sanitize` runs it")
def test_sanitizers_find_nothing(tmp_path):
    runtime = output_of([GCC, "-print-file-name=libasan.so"]).strip()
    if not Path(runtime).is_absolute():
        pytest.skip("gcc comes without libasan")
    environment = {
        "PATH": "/usr/bin:/bin",
        "LD_PRELOAD": runtime,
        "ASAN_OPTIONS": "detect_leaks=0",  # Python keeps what it has
        "NNAPI_PROF_CC": str(GCC),
        "NNAPI_PROF_CACHE_DIR": str(tmp_path),
        "OPENBLAS_NUM_THREADS": "1",
    }
    command, root = [sys.executable, "-c", SCRIPT], Path(__file__).resolve().parents[2]
    ran = subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert len(ran.stdout.split()) == 7
    assert "runtime error" not in ran.stderr and "AddressSanitizer" not in ran.stderr
