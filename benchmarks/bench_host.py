"""How much of a profile is not measuring?

    python benchmarks/bench_host.py [--models A,B] [--size N] [--device local] [--all]

Wall time of `nnapi-prof profile` from the start of Python to its end; the part for starting Python
and reading the model (torch.export); and the agent's time in actions (from the first action of a
request to the end of the last, except while the host stored results). The rest is the host's:
converting, pushing, starting the agent, storing, planning. Two shares are printed: of that rest in
a profile without reading the model, and of everything that is not measuring. Fails where the first
is 15 % or more.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BAR = 0.15
PARTS = ("measure", "convert", "send", "store", "plan")

# Runs in its own process, like the command.
SCRIPT = """
import json, sys
from nnapi_prof.cli import main
from nnapi_prof.execution.profile import session

profile = session.profile

def instrumented(*arguments):
    outcome = profile(*arguments)
    with open(sys.argv[1], "w") as file:
        json.dump({"spent_s": outcome.spent_s, "seconds": outcome.seconds}, file)
    return outcome

session.profile = instrumented
main(sys.argv[2:])
"""


def measure(name: str, turn: str, command: list[str], result: Path) -> bool:
    """Runs a profile and prints a row; returns whether it is within the bar."""
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(result), *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    wall = time.perf_counter() - begin
    if done.returncode != 0:
        sys.exit(f"profiling {name} failed:\n{done.stderr}")
    figures = json.loads(result.read_text())
    spent = figures["spent_s"]
    read = wall - figures["seconds"] + spent.get("load", 0.0)
    share = 1 - spent["measure"] / (wall - read)
    seconds = [wall, read, *(spent[part] for part in PARTS)]
    cells = [name, turn, *(f"{part:.1f}" for part in seconds)]
    print(f"| {' | '.join(cells)} | {share:.1%} | {1 - spent['measure'] / wall:.1%} |", flush=True)
    return bool(share < BAR)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", default="mobilenet_v2,resnet18")
    parser.add_argument("--device", default="local")
    parser.add_argument("--size", type=int, default=224, help="side of the input")
    parser.add_argument("--all", action="store_true", help="nnapi-reference, too, which is slow")
    options = parser.parse_args()
    more = () if options.all else ("--accelerator", "nnapi-fast", "--accelerator", "auto")
    columns = ("model", "profile", "wall s", "read s", *(f"{part} s" for part in PARTS))
    print(f"| {' | '.join(columns)} | not measuring | with reading |")
    print("|---" * (len(columns) + 2) + "|")
    good = True
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models.split(","):
            model = Path(folder) / f"{name}.pt"
            size = ["--size", str(options.size)]
            command = [sys.executable, "examples/models.py", name, str(model), *size]
            subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
            costs = Path(folder) / f"{name}.sqlite"
            shape = f"1x3x{options.size}x{options.size}"
            ask = ["profile", "--device", options.device, "--costs", str(costs), "--fresh", *more]
            for turn in ("first", "second"):
                asked = [*ask, "--input", shape, str(model)]
                good &= measure(name, turn, asked, Path(folder) / "result.json")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
