"""A PostgreSQL server of the tests' own: Debian's binaries, a temporary folder, a unix socket."""

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg

USER = "nnapi"
_INSTALLED = Path("/usr/lib/postgresql")
_SETTINGS = ("fsync=off", "listen_addresses=", "max_connections=50", "lc_messages=C")


def binaries() -> Path | None:
    """The newest server's folder of programs, as Debian's package ``postgresql`` installs it."""
    result = [path.parent for path in _INSTALLED.glob("*/bin/initdb")]
    return max(result, key=lambda path: float(path.parent.name), default=None)


class Server:
    """Runs as a user without rights, which a server insists on; ``stop`` removes all of it."""

    def __init__(self, bin_: Path) -> None:
        self._bin = bin_
        self.folder = Path(tempfile.mkdtemp(prefix="nnapi-pg-"))
        self._data = self.folder / "data"
        self._as: list[str] = []
        if os.geteuid() == 0:
            shutil.chown(self.folder, "postgres", "postgres")
            self.folder.chmod(0o755)
            self._as = ["runuser", "-u", "postgres", "--"]
        # In an order of text that is not that of bytes, where there is one.
        options = ["--encoding=UTF8", "--locale=C.UTF-8", "--auth=trust", f"--username={USER}"]
        self._call("initdb", "-D", self._data, *options, "--no-sync")
        self._n_schemas = 0
        self.start()

    def _call(self, program: str, *arguments: object) -> None:
        command = [*self._as, str(self._bin / program), *map(str, arguments)]
        # Of a server that goes on, the pipes would never end: its words go to a file.
        with (self.folder / "said").open("w+") as text:
            done = subprocess.run(command, stdout=text, stderr=text, cwd="/", check=False)
            text.seek(0)
            assert done.returncode == 0, f"{program}: {text.read()}"

    def _control(self, *arguments: str) -> None:
        log = self._data / "log"
        self._call("pg_ctl", "-D", self._data, "-l", log, "-w", "-t", "60", *arguments)

    def start(self) -> None:
        settings = " ".join(f"-c {each}" for each in _SETTINGS)
        self._control("-o", f"-k {self.folder} {settings}", "start")

    def restart(self) -> None:
        """Every connection breaks, whatever it was at."""
        self._control("-m", "immediate", "stop")
        self.start()

    def pause(self, seconds: float) -> None:
        self._control("-m", "immediate", "stop")
        time.sleep(seconds)
        self.start()

    def stop(self) -> None:
        self._control("-m", "immediate", "stop")
        shutil.rmtree(self.folder)

    def execute(self, sql: str) -> None:
        host, name = str(self.folder), "postgres"
        with psycopg.connect(host=host, user=USER, dbname=name, autocommit=True) as link:
            link.execute(sql.encode())

    def empty(self) -> str:
        """The URL of a new schema, which is made far faster than a database."""
        self._n_schemas += 1
        name = f"costs{self._n_schemas}"
        self.execute(f"CREATE SCHEMA {name}")
        return f"postgresql://{USER}@/postgres?host={self.folder}&options=-csearch_path%3D{name}"
