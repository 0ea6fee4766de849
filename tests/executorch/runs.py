"""A process of a test: runs a .pte against its model under some caution.

python runs.py PTE MODEL DEVICE CAUTION [CACHE]    prints a document
"""

import json
import sys


def main() -> None:
    from nnapi_prof.executorch import Caution, run_file
    from nnapi_prof.executorch.host import describe, describe_units

    pte, model, device, caution, *cache = sys.argv[1:]
    guard = Caution(**json.loads(caution))
    folder = cache[0] if cache else None
    run = run_file(pte, device, against=model, runs=5, caution=guard, cache_folder=folder)
    document = {
        "agrees": run.agrees and bool(run.checks),
        "parts": [part.name for part in run.parts],
        "description": describe(),
        "units": [(each.segment, each.engine, each.share, each.why) for each in describe_units()],
    }
    print(json.dumps(document))


if __name__ == "__main__":
    main()
