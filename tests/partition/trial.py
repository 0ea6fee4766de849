"""Many random graphs on trial.

    python -m tests.partition.trial          (make judge)

judges NNAPI_PROF_EXAMPLES random graphs, in two processes, with a line of progress, and prints the
first failure of each kind. NNAPI_PROF_JUDGE_SEED draws other graphs.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context

from tests.partition.drawing import draw_case
from tests.partition.verdict import Verdict, judge, report

SEED = os.environ.get("NNAPI_PROF_JUDGE_SEED", "1")
EXAMPLES = int(os.environ.get("NNAPI_PROF_EXAMPLES", "300"))
"""`make judge` sets 20,000."""
PROCESSES = 2
BATCH = 25


@dataclass
class Tally:
    """Of many cases."""

    proofs: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    """Complaints by their first word."""
    failed: dict[str, list[str]] = field(default_factory=dict)
    """Kinds of complaints, as words -> seeds of the cases with these."""
    slowest: tuple[float, str] = (0.0, "")
    """Seconds of an answer, and the case's seed."""

    def add(self, seed: str, verdict: Verdict) -> None:
        self.proofs[verdict.proof] += 1
        self.kinds.update(verdict.kinds)
        if verdict.complaints:
            self.failed.setdefault(" ".join(sorted(verdict.kinds)), []).append(seed)
        self.slowest = max(self.slowest, (verdict.seconds, seed))

    def merge(self, other: Tally) -> None:
        self.proofs += other.proofs
        self.kinds += other.kinds
        for kinds, seeds in other.failed.items():
            self.failed.setdefault(kinds, []).extend(seeds)
        self.slowest = max(self.slowest, other.slowest)

    @property
    def words(self) -> str:
        proofs = ", ".join(f"{n:,} {kind}" for kind, n in self.proofs.most_common())
        kinds = "".join(f", {n} x {kind}" for kind, n in self.kinds.most_common())
        failures = sum(map(len, self.failed.values()))
        return (
            f"{proofs}; {failures:,} with complaints{kinds}; slowest answer "
            f"{self.slowest[0]:.2f} s ({self.slowest[1]})"
        )


def tally(seeds: Sequence[str]) -> Tally:
    """Judges some cases."""
    total = Tally()
    for seed in seeds:
        total.add(seed, judge(draw_case(seed)))
    return total


def main() -> None:
    begin = time.monotonic()
    seeds = [f"{SEED}/{i}" for i in range(EXAMPLES)]
    batches = [seeds[i : i + BATCH] for i in range(0, len(seeds), BATCH)]
    total = Tally()
    end_of_line = "\r" if sys.stderr.isatty() else "\n"
    with ProcessPoolExecutor(PROCESSES, get_context("spawn")) as pool:
        for number, part in enumerate(pool.map(tally, batches), 1):
            total.merge(part)
            if end_of_line == "\r" or number % 40 == 0:
                judged = min(number * BATCH, EXAMPLES)
                print(
                    f"{judged:,} of {EXAMPLES:,} graphs in {time.monotonic() - begin:.0f} s: "
                    f"{total.words}",
                    file=sys.stderr,
                    end=end_of_line,
                    flush=True,
                )
    print(f"{EXAMPLES:,} graphs in {time.monotonic() - begin:.0f} s: {total.words}")
    for kinds, failures in total.failed.items():
        print(f"\n{kinds}: {', '.join(failures)}\nThe first:\n{report(failures[0])}", flush=True)
    sys.exit(1 if total.failed else 0)


if __name__ == "__main__":
    main()
