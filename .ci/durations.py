"""Rewrites tests/durations.json from the JUnit XML of a whole run.

    make test && python .ci/durations.py

The file has the CPU seconds of each test of a second or more. They order the tests of the next run,
and a test of more than five seconds must give its reason (tests/summary.py).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parent.parent
CPU = "seconds of CPU"
LEAST_S = 1.0


def seconds_by_test(xml: Path) -> dict[str, float]:
    """Returns CPU seconds by node id, for tests of at least :data:`LEAST_S`."""
    result = {}
    for case in ElementTree.parse(xml).iter("testcase"):
        properties = {p.get("name"): p.get("value") for p in case.iter("property")}
        seconds = float(properties.get(CPU) or 0.0)
        file = case.get("classname", "").replace(".", "/") + ".py"
        if seconds >= LEAST_S and (ROOT / file).is_file():
            result[f"{file}::{case.get('name')}"] = round(seconds, 1)
    return dict(sorted(result.items()))


def main() -> int:
    xml = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "tests.xml"
    if not xml.is_file():
        print(f"{xml} is missing: run make test", file=sys.stderr)
        return 2
    seconds = seconds_by_test(xml)
    (ROOT / "tests" / "durations.json").write_text(json.dumps(seconds, indent=1) + "\n")
    print(f"{len(seconds)} tests of {LEAST_S:.0f} s or more")
    return 0


if __name__ == "__main__":
    sys.exit(main())
