"""Many random graphs on trial.

    python -m tests.partition.trial          (make judge)

judges NNAPI_PROF_EXAMPLES random graphs in two processes, and prints what is wrong with which.
NNAPI_PROF_JUDGE_SEED draws other graphs.
"""

import itertools
import os
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.partition.drawing import draw_case
from tests.partition.verdict import judge

EXAMPLES = int(os.environ.get("NNAPI_PROF_EXAMPLES", "300"))
"""`make judge` sets 20,000."""
BATCH = 500

Judge = Callable[[int], list[str] | None]
"""Seed -> what is wrong; None where the draw has nothing to judge."""


def judge_plans(seed: int) -> list[str]:
    """Complaints about the answer to the random case ``seed``."""
    return judge(draw_case(f"1/{seed}"))


def on_trial(judges: Mapping[str, Judge], examples: int) -> None:
    """Judges so many random graphs of each kind, and exits with 1 where there are complaints."""
    failures: list[str] = []
    begin = int(os.environ.get("NNAPI_PROF_JUDGE_SEED", "1")) * 1_000_000
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        for name, judged in judges.items():
            began, count = time.monotonic(), 0
            for first in itertools.count(begin, BATCH):
                seeds = range(first, first + BATCH)
                for seed, wrong in zip(seeds, pool.map(judged, seeds, chunksize=25), strict=True):
                    count += wrong is not None
                    failures += [f"{name} {seed}: {words}" for words in wrong or ()]
                seconds = time.monotonic() - began
                print(f"{name}: {count:,} graphs in {seconds:.0f} s, {len(failures)} complaints")
                if count >= examples:
                    break
    print("\n".join(failures[:40]))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    on_trial({"plans": judge_plans}, EXAMPLES)
