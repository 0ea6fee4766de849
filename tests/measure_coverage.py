"""Measures what the tests run: of Python lines and branches, of C lines.

``python -m tests.measure_coverage [ARGUMENTS OF PYTEST]`` copies the working tree, builds agent and
emulator there with gcc's --coverage, runs the C tests and pytest, and prints two numbers.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from nnapi_prof.device.build import ARCHIVES
from nnapi_prof.device.xnnpack import built_prefix
from nnapi_prof.toolchain import python_tool
from tests.mutations import CACHE, REPO, Copy
from tests.record_lines import percent_run

START = """
from pathlib import Path
from tests.record_lines import record
record(Path({tree!r}), Path({results!r}))
"""
IMPORTED_BEFORE = ("-W", "ignore::pytest.PytestAssertRewriteWarning")
"""slipcover is a plugin of pytest, too, which warns that it could not rewrite it."""
SHARE = """
#include <stdlib.h>
#include <sys/mman.h>
extern char np_counts[] __attribute__((weak, visibility("hidden")));
extern char np_counts_end[] __attribute__((weak, visibility("hidden")));
void __gcov_dump(void);
__attribute__((constructor)) static void share(void) {
  if (np_counts) {
    mmap(np_counts, (size_t)(np_counts_end - np_counts), PROT_READ | PROT_WRITE,
         MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  }
}
void np_exit(int code) {
  if (!np_counts) {
    __gcov_dump();
  }
  _Exit(code);
}
"""
"""Forks count into their parent's memory, which it writes to files at its end. Each fork of an
agent would take milliseconds to write a file for each object, and what is killed would lose its
counts. What links the archives, without :data:`SECTION`, does write them."""
SECTION = """
SECTIONS {
  .np_counts (NOLOAD) : ALIGN(CONSTANT(MAXPAGESIZE)) {
    HIDDEN(np_counts = .);
    *(.bss.__gcov0.*)
    . = ALIGN(CONSTANT(MAXPAGESIZE));
    HIDDEN(np_counts_end = .);
  }
} INSERT AFTER .bss;
"""
"""For GNU ld: all counters in pages of their own."""


def c_flags(folder: Path) -> tuple[str, ...]:
    """Returns CMake's options for a build that counts lines, also in children."""
    source, compiled, script = (folder / name for name in ("share.c", "share.o", "section.ld"))
    source.write_text(SHARE)
    script.write_text(SECTION)
    subprocess.run(["gcc", "-fPIC", "-c", source, "-o", compiled], check=True)
    flags = f"{compiled} -Wl,-T,{script}"
    linked = [f"-DCMAKE_{kind}_LINKER_FLAGS={flags}" for kind in ("EXE", "SHARED")]
    flags = "--coverage -fdata-sections -D_exit=np_exit"
    return ("-DNP_TESTS=ON", "-DCMAKE_C_COMPILER=gcc", f"-DCMAKE_C_FLAGS={flags}", *linked)


def add_counters(archive: Path, share: Path) -> None:
    """Adds what counts to an archive: a test links it without gcc's --coverage."""
    command = ["gcc", "-print-file-name=libgcov.a"]
    library = subprocess.check_output(command, text=True).strip()
    script = f"OPEN {archive}\nADDLIB {library}\nADDMOD {share}\nSAVE\nEND\n"
    subprocess.run(["ar", "-M"], input=script, text=True, check=True)


def c_lines(build: Path) -> float:
    """Returns how many per cent of the lines of the sources, without the tests, ran."""
    counts: Counter[tuple[str, int]] = Counter()
    with ThreadPoolExecutor() as pool:
        documents = [text for out in pool.map(_gcov, build.rglob("*.gcno")) for text in out if text]
    for file in [file for text in documents for file in json.loads(text)["files"]]:
        _, ours, name = file["file"].partition("/device_agent/")
        if ours and not name.startswith("tests/"):
            for line in file["lines"]:
                counts[name, line["line_number"]] += line["count"]
    return 100 * sum(count > 0 for count in counts.values()) / len(counts)


def _gcov(notes: Path) -> list[str]:
    """Returns what ran of an object; nothing ran where a killed process left half its counts."""
    command = ["gcov", "--json-format", "--stdout", notes]
    ran = subprocess.run(command, cwd=notes.parent, capture_output=True, text=True, check=False)
    if ran.returncode:
        print(f"{notes.name}: counts that cannot be read: {ran.stderr.strip()}", file=sys.stderr)
        notes.with_suffix(".gcda").unlink()
        return _gcov(notes)
    return ran.stdout.splitlines()


def main(arguments: list[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="coverage-") as name:
        folder = Path(name)
        copy = Copy(folder / "tree")
        for part in (CACHE / "xnnpack", CACHE / "zig", Path("build/adbd")):
            if (REPO / part).is_dir():
                (copy.root / part).parent.mkdir(parents=True, exist_ok=True)
                (copy.root / part).symlink_to(REPO / part)
        xnnpack = built_prefix(copy.root / CACHE)
        # Named as the tests name it: they would build an agent of their own.
        xnnpack = None if xnnpack is None else xnnpack.resolve()
        built = copy.build(*c_flags(folder), xnnpack=xnnpack)
        for archive in ARCHIVES:
            add_counters(built / archive, folder / "share.o")
        results = folder / "python"
        results.mkdir()
        start = START.format(tree=str(copy.root), results=str(results))
        (copy.root / "sitecustomize.py").write_text(start)
        environment = os.environ | {
            "NNAPI_PROF_XNNPACK": str(xnnpack or ""),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(copy.root),
        }
        ctest = Path(python_tool("cmake", "CMAKE_BIN_DIR")).with_name("ctest")
        pytest = [sys.executable, "-m", "pytest", *IMPORTED_BEFORE, *arguments]
        codes = [
            subprocess.run(command, cwd=copy.root, env=environment, check=False).returncode
            for command in (
                [ctest, "--test-dir", "build/mutants", "--output-on-failure", "-j", "2"],
                pytest,
            )
        ]
        python = percent_run(copy.root, results)
        c = c_lines(copy.root / "build" / "mutants")
        print(f"Python: {python:.1f} % of lines and branches; C: {c:.1f} % of lines")
    return max(codes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
