"""Puts the sources of XNNPACK and of what it is built with into a folder, each checked by hash.

``python fetch.py FOLDER [--archives DIR]``

archives.txt beside this file pins them. They are taken from DIR (default: the environment's
NNAPI_PROF_XNNPACK_ARCHIVES) where that holds them, else through apt from the mirror that this
Debian machine uses anyway, with a private configuration: the system's own apt state is left alone,
and no root is needed. FOLDER/xnnpack, FOLDER/pthreadpool, ... are complete or not there at all.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
TIMEOUT_S = 600.0

APT_CONF = """\
Dir::State "{apt}";
Dir::State::lists "{apt}/lists";
Dir::State::status "{apt}/status";
Dir::State::extended_states "{apt}/extended_states";
Dir::Cache "{apt}/cache";
Dir::Etc::sourcelist "{apt}/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Debug::NoLocking "true";
APT::Sandbox::User "";
Acquire::Languages "none";
Acquire::Retries "3";
Acquire::http::Timeout "30";
Acquire::https::Timeout "30";
"""


class FetchError(Exception):
    """One sentence for the user."""


@dataclass(frozen=True)
class SourceArchive:
    """One line of archives.txt."""

    folder: str
    suite: str
    package: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        upstream = self.version.rpartition("-")[0]
        return f"{self.package}_{upstream}.orig.tar.xz"


def pinned(path: Path = HERE / "archives.txt") -> list[SourceArchive]:
    """The archives that the list names."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return [SourceArchive(*line.split()) for line in lines]


def fetch(folder: Path, archives: Path | None = None) -> None:
    """Makes ``folder`` hold the sources of every pinned archive. Raises FetchError."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = [a for a in pinned() if not is_unpacked(folder, a)]
    if not missing:
        return
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=folder) as work:
        if archives is None:
            download(missing, Path(work))
        for archive in missing:
            unpack(archive, checked(archive, archives or Path(work)), folder, Path(work))


def is_unpacked(folder: Path, archive: SourceArchive) -> bool:
    """Whether the folder's mark says that this very archive was unpacked there."""
    mark = folder / archive.folder / ".archive"
    return mark.is_file() and mark.read_text() == archive.sha256


def checked(archive: SourceArchive, directory: Path) -> Path:
    """The archive's file in a directory, once its content is known to be what is pinned."""
    path = directory / archive.file_name
    if not path.is_file():
        raise FetchError(f"{directory} has no {archive.file_name}")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != archive.sha256:
        raise FetchError(f"{path} has SHA-256 {digest}, not {archive.sha256}, which is pinned")
    return path


def unpack(archive: SourceArchive, path: Path, folder: Path, work: Path) -> None:
    """Unpacks beside and renames, so that half a tree is never taken for a whole one."""
    draft = work / f"{archive.folder}.unpacked"
    with tarfile.open(path) as tar:
        if hasattr(tarfile, "data_filter"):  # Python 3.11.4
            tar.extractall(draft, filter="data")
        else:
            tar.extractall(draft)  # its hash vouches for it
    entries = list(draft.iterdir())
    root = entries[0] if len(entries) == 1 else draft  # some archives have no folder of their own
    (root / ".archive").write_text(archive.sha256)
    target = folder / archive.folder
    if target.exists():
        shutil.rmtree(target)
    root.rename(target)


def download(wanted: list[SourceArchive], directory: Path) -> None:
    """Downloads archives through a private apt configuration into a directory."""
    for tool in ("apt-get", "dpkg"):
        if shutil.which(tool) is None:
            raise FetchError(
                f"{tool} is missing: on other systems than Debian, name a folder that holds "
                f"{', '.join(a.file_name for a in wanted)} in NNAPI_PROF_XNNPACK_ARCHIVES"
            )
    if not KEYRING.is_file():
        raise FetchError(f"{KEYRING} is missing: install debian-archive-keyring")
    mirrors = system_mirrors()
    apt = directory / "apt"
    for part in ("lists/partial", "cache/archives/partial"):
        (apt / part).mkdir(parents=True)
    (apt / "status").touch()
    (apt / "apt.conf").write_text(APT_CONF.format(apt=apt))
    env = {**os.environ, "APT_CONFIG": str(apt / "apt.conf")}
    suites = sorted({a.suite for a in wanted})
    words = ""
    for mirror in mirrors:
        lines = [f"deb-src [signed-by={KEYRING}] {mirror} {suite} main\n" for suite in suites]
        (apt / "sources.list").write_text("".join(lines))
        done, words = run(["apt-get", "update", "-qq", "--error-on=any"], env, directory)
        if done:
            break
    else:
        raise FetchError(
            f"no repository of this machine's apt has {' and '.join(suites)}:\n{words}"
        )
    # Only the upstream archive: mirrors lack some of the other files of these packages.
    names = [f"{a.package}={a.version}" for a in wanted]
    command = ["apt-get", "source", "-qq", "--download-only", "--tar-only", *names]
    done, words = run(command, env, directory)
    if not done:
        raise FetchError(f"apt-get source failed:\n{words}")


def system_mirrors() -> list[str]:
    """The main repositories of the system's own apt configuration; Debian's keys tell which of
    them is Debian's archive."""
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(COMPONENT)"]
    result = subprocess.run(
        [*command, "Created-By: Packages"], capture_output=True, text=True, check=False
    )
    pairs = [line.split() for line in result.stdout.splitlines()]
    mirrors = list(dict.fromkeys(pair[0] for pair in pairs if pair[1:] == ["main"]))
    if not mirrors:
        raise FetchError("the system's apt configuration names no repository")
    return mirrors


def run(command: list[str], env: dict[str, str], cwd: Path) -> tuple[bool, str]:
    """Whether a command succeeded, and the end of what it said."""
    try:
        result = subprocess.run(
            command,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False, f"{command[0]} did not end within {TIMEOUT_S:g} s"
    return result.returncode == 0, "\n".join(result.stdout.splitlines()[-10:])


def main() -> int:
    """The command; 1 and a sentence on standard error where it fails."""
    parser = argparse.ArgumentParser(description="Fetches the sources of XNNPACK.")
    parser.add_argument("folder", type=Path)
    named = os.environ.get("NNAPI_PROF_XNNPACK_ARCHIVES")
    parser.add_argument("--archives", type=Path, default=Path(named) if named else None)
    options = parser.parse_args()
    try:
        fetch(options.folder.absolute(), options.archives)
    except (FetchError, OSError) as error:
        print(f"fetch.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
