"""The agents that a wheel brings along, one for each device.

    agents/sources            the key of the sources that they were built from
    agents/android-ABI/agent
    agents/linux-ABI/agent

A source tree or an sdist has none of them: there they are built when a device first needs one.
``python -m nnapi_prof.device.shipped`` builds all of them into this folder, for `make wheel`;
``--clean`` takes them away again.
"""

from __future__ import annotations

import argparse
import shutil
import sys

from nnapi_prof.device.build import AGENTS_DIR, SHIPPED, build_agent, sources_key
from nnapi_prof.errors import BuildError


def _main() -> int:
    parser = argparse.ArgumentParser(prog="python -m nnapi_prof.device.shipped")
    parser.add_argument("--clean", action="store_true", help="remove them")
    if parser.parse_args().clean:
        shutil.rmtree(AGENTS_DIR, ignore_errors=True)
        return 0
    try:
        for os_name, abi in SHIPPED:
            built = build_agent(abi, os_name, progress=lambda text: print(text, file=sys.stderr))
            target = AGENTS_DIR / f"{os_name}-{abi}" / "agent"
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(built, target)
            print(target)
        (AGENTS_DIR / "sources").write_text(sources_key() + "\n")
    except (BuildError, OSError) as error:
        print(f"python -m nnapi_prof.device.shipped: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main())
