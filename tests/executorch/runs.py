"""A process of a test: runs a .pte against its model under some caution, and loads it often.

python runs.py PTE MODEL DEVICE CAUTION LOADS    prints a document
"""

import json
import resource
import sys
from pathlib import Path


def resident_kb() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // 1024


def main() -> None:
    from nnapi_prof.executorch import Caution, run_file

    pte, model, device, caution, loads = sys.argv[1:]
    run = run_file(pte, device, against=model, runs=5, caution=Caution(**json.loads(caution)))
    from executorch.runtime import Runtime

    sizes = []
    for number in range(int(loads)):
        Runtime.get().load_program(Path(pte)).load_method("forward")
        if number >= int(loads) // 4:
            sizes.append(resident_kb())
    document = {
        "agrees": run.agrees and bool(run.checks),
        "parts": [part.name for part in run.parts],
        "grown_kb": sizes[-1] - sizes[0] if sizes else 0,
    }
    print(json.dumps(document))


if __name__ == "__main__":
    main()
