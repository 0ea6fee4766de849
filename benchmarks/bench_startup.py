"""Start-up: `nnapi-prof --help` against a bare interpreter, and against importing torch, in turns.

python benchmarks/bench_startup.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROUNDS = 15
COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "nnapi-prof --help": ["-m", "nnapi_prof", "--help"],
    "import torch": ["-c", "import torch"],
}


def main() -> None:
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(ROUNDS):
        for name, arguments in COMMANDS.items():
            begin = time.perf_counter()
            subprocess.run(
                [sys.executable, *arguments], cwd=ROOT, check=True, stdout=subprocess.DEVNULL
            )
            seconds[name].append(time.perf_counter() - begin)
    base = statistics.median(seconds["python -c pass"])
    print("| command | median s | slowest s | ratio to a bare interpreter |")
    print("|---|---|---|---|")
    for name, row in seconds.items():
        median = statistics.median(row)
        print(f"| `{name}` | {median:.3f} | {max(row):.3f} | {median / base:.1f} |")


if __name__ == "__main__":
    main()
