"""Ask the agent on a device for its description, and run requests on it.

push request -> `agent run` -> lines -> (blobs missing: push them, once more) -> results

:func:`clean` deletes files on a device. Everything lies in one folder
(:mod:`nnapi_prof.device.install`); only files with our names are touched there.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import posixpath
import re
import tarfile
import uuid
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass

from nnapi_prof.device.install import InstalledAgent, install_agent, remote_dir
from nnapi_prof.device.protocol import (
    ActionResult,
    AgentInfo,
    Cleaned,
    End,
    ErrorLine,
    Event,
    Hello,
    KeptOutput,
    Missing,
    Readings,
    Start,
    Wait,
)
from nnapi_prof.device.protocol.lines import parse_line
from nnapi_prof.device.protocol.request import PROTOCOL_VERSION, Request
from nnapi_prof.device.transport import (
    MAX_OUTPUT_BYTES,
    LineStream,
    Transport,
    refusal,
    storage_error,
)
from nnapi_prof.errors import (
    AgentError,
    DeviceError,
    DeviceOffline,
    DeviceStorageError,
    SerializationError,
    escape_untrusted,
)
from nnapi_prof.progress import Notify

LOGGER = logging.getLogger(__name__)
EXIT_MISSING = 3
KILLED = 128
"""Exit code of a killed command, to which a shell adds the number of the signal."""
THROUGH = ",library="
"""Separates a device from the library that gives access to its accelerators."""
_OUTPUT_NAME = re.compile(r"\w[\w.-]*", re.ASCII)
SILENCE_MARGIN_S = 60.0
"""Seconds beyond an action's own watchdog: the agent hashes its blobs and reads the request."""

# $0 the client's work folder, then the agent's command line.
_RUN_SCRIPT = 'umask 077; chmod 600 "$0/request"; echo $$ >"$0/pid"; exec "$@" 2>"$0/stderr"'
_STOP_SCRIPT = 'kill "$(cat "$0/pid")" 2>/dev/null; true'
# $0 where blobs were pushed to, $1 the store. A rename: others may read or push the same blob.
# adbd gives everybody the owner's permissions of a pushed file.
_STORE_SCRIPT = 'chmod 600 "$0"/* && mv -f "$0"/* "$1"/ && rmdir "$0"'


# $0 where blobs go; beside it lies the archive of them.
_UNPACK_SCRIPT = 'umask 077; tar -xf "$0.tar" -C "$0"; code=$?; rm -f "$0.tar"; exit $code'
FEWEST_IN_ARCHIVE = 4
"""Smallest number of blobs that are worth an archive, which takes a further command to unpack."""


class AgentClient:
    """Runs requests on one device, one at a time. Close it, or use it in a ``with`` statement.

    Without ``installed`` the agent is built and pushed when first needed (into ``remote_dir``, see
    :func:`~nnapi_prof.device.install.install_agent`). ``nnapi_library`` is a file on the device
    that stands in for its libneuralnetworks.so: a support library, NeuronAdapter, another NNAPI.
    """

    def __init__(
        self,
        transport: Transport,
        installed: InstalledAgent | None = None,
        *,
        remote_dir: str | None = None,
        nnapi_library: str | None = None,
        progress: Notify | None = None,
    ) -> None:
        self.transport = transport
        self._installed = installed
        self._remote_dir = remote_dir
        self._nnapi_library = nnapi_library
        self._progress = progress
        self._info: AgentInfo | None = None
        self._work: str | None = None

    def __enter__(self) -> AgentClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def serial(self) -> str:
        """The device's ``--device`` value, the library included where one was named."""
        library = self._nnapi_library
        return self.transport.serial + ("" if library is None else f"{THROUGH}{library}")

    @property
    def installed(self) -> InstalledAgent:
        """The agent on the device; installed if needed."""
        if self._installed is None:
            self._installed = install_agent(self.transport, self._remote_dir, self._progress)
        return self._installed

    @property
    def folder(self) -> str:
        """The folder on the device that has all files of ours; does not ask the device."""
        if self._installed is not None:
            return posixpath.dirname(self._installed.store)
        return self._remote_dir or remote_dir()

    def info(self) -> AgentInfo:
        """Returns the device's description, and asks for it only once. Raises AgentError."""
        if self._info is None:
            self._info = self._ask_info()
        return self._info

    def readings(self) -> Readings:
        """Returns the present heat and clocks from ``agent info``. Raises AgentError."""
        return self._ask_info().readings

    def run(self, request: Request) -> Generator[Event, None, None]:
        """Runs a request and yields the agent's events as they arrive.

        Blobs that the device lacks are pushed. Leaving the iterator early stops the agent. Outputs
        stay on the device for :meth:`pull_output` until the next run.

        Raises AgentError where the agent fails or dies, DeviceOffline where the connection breaks,
        each naming the action that ran; earlier events stay valid. Raises DeviceStorageError where
        the device cannot store what it needs.
        """
        silence_s = request.silence_s + SILENCE_MARGIN_S
        work = self._fresh_work()
        n_bytes = len(request.content)
        LOGGER.debug("sends a request of %d bytes to %s, %s", n_bytes, self.serial, work)
        self.transport.push(request.content, f"{work}/request")
        missing = yield from self._attempt(work, silence_s)
        if missing:
            LOGGER.debug("pushes %d blobs of weights that the device lacks", len(missing))
            self._push_blobs(missing, request.blobs, work)
            missing = yield from self._attempt(work, silence_s)
        if missing:
            raise AgentError(
                f"{self.serial}: {len(missing)} blobs were pushed and are missing still, first "
                f"{missing[0]}: is something else emptying {self.installed.store}?",
                serial=self.serial,
            )

    def pull_output(self, output: KeptOutput | str) -> bytes:
        """Returns a kept output of the last run, checked against its hash where that is known."""
        name = output if isinstance(output, str) else output.file
        if self._work is None or not _OUTPUT_NAME.fullmatch(name):
            raise AgentError(
                f"{self.serial}: the last run left no output {name!r}", serial=self.serial
            )
        data = self.transport.pull(f"{self._work}/out/{name}")
        if isinstance(output, KeptOutput) and hashlib.sha256(data).hexdigest() != output.sha256:
            raise AgentError(
                f"{self.serial}: output {name} arrived with other bytes than the agent wrote "
                f"({len(data)} bytes, {output.n_bytes} stated)",
                serial=self.serial,
            )
        return data

    def close(self) -> None:
        """Removes this client's files from the device (blobs stay) and closes the connection."""
        if self._work is not None:
            # A device that is gone keeps its files: the next host that connects removes them.
            with contextlib.suppress(DeviceError):
                self.transport.shell(["rm", "-rf", self._work])
            self._work = None
        self.transport.close()

    def _ask_info(self) -> AgentInfo:
        result = self.transport.shell([self.installed.path, "info", *self._library()])
        errors = []
        for line in result.output.splitlines():
            try:
                event = parse_line(line)
            except SerializationError as error:
                raise AgentError(f"{self.serial}: {error}", serial=self.serial) from error
            if isinstance(event, AgentInfo):
                if event.protocol != PROTOCOL_VERSION:
                    raise AgentError(
                        f"{self.serial}: the agent speaks protocol {event.protocol}, "
                        f"{PROTOCOL_VERSION} is required",
                        serial=self.serial,
                    )
                return event
            if isinstance(event, ErrorLine):
                errors.append(event.message)
        words = "; ".join(errors) or escape_untrusted(result.output.strip()[-300:])
        raise AgentError(
            f"{self.serial}: the agent tells nothing about the device (exit code "
            f"{result.exit_code}): {words}",
            serial=self.serial,
        )

    def _library(self) -> list[str]:
        library = self._nnapi_library or self.installed.nnapi_library
        return [] if library is None else ["--nnapi-library", library]

    def _fresh_work(self) -> str:
        """Makes an empty work folder of this client's own."""
        if self._work is None:
            self._work = f"{self.installed.work}/{uuid.uuid4().hex[:12]}"
        script = 'umask 077; rm -rf "$0" && mkdir -p "$0/out"'
        result = self.transport.shell(["sh", "-c", script, self._work])
        if result.exit_code != 0:
            raise refusal(result.output, "make", self._work, self.serial)
        return self._work

    def _attempt(self, work: str, silence_s: float) -> Generator[Event, None, tuple[str, ...]]:
        """Starts the agent once. Returns (to ``yield from``) the names of missing blobs."""
        agent = self.installed
        stream = self.transport.stream(
            [
                *("sh", "-c", _RUN_SCRIPT, work),
                *(agent.path, "run", f"{work}/request"),
                *("--store", agent.store, "--work", f"{work}/out"),
                *self._library(),
            ],
            silence_s,
        )
        reader = _Reader()
        ended = False
        try:
            yield from reader.events(stream)
            ended = True
            if reader.unread is not None and stream.exit_code <= KILLED:
                raise reader.unread
        except DeviceOffline as error:
            ended = True
            raise DeviceOffline(
                f"{error}; this was {reader.where()}", serial=self.serial
            ) from error
        except SerializationError as error:
            raise AgentError(
                f"{self.serial}: {error}; this was {reader.where()}", serial=self.serial
            ) from error
        finally:
            stream.close()
            if not ended:
                self._stop(work)
        if stream.exit_code == EXIT_MISSING and reader.missing:
            return reader.missing
        if stream.exit_code != 0 or not reader.done:
            raise self._failure(reader, stream, work)
        return ()

    def _stop(self, work: str) -> None:
        """Ends an agent that nobody listens to any more."""
        with contextlib.suppress(DeviceError):
            self.transport.shell(["sh", "-c", _STOP_SCRIPT, work])

    def _failure(self, reader: _Reader, stream: LineStream, work: str) -> DeviceError:
        words = reader.error or self._stderr(work) or reader.noise
        stored = storage_error(words, self.installed.store, self.serial)
        if stored is not None:
            return stored
        code = stream.exit_code
        if reader.error is None and code > KILLED:
            how = f"was killed by signal {code - KILLED}"
        elif reader.error is None and code == 0:
            how = "ended before the request did"
        else:
            how = f"failed (exit code {code})"
        tail = f": {words}" if words else ""
        return AgentError(
            f"{self.serial}: the agent {how} {reader.where()}{tail}", serial=self.serial
        )

    def _stderr(self, work: str) -> str:
        with contextlib.suppress(DeviceError):
            text = self.transport.pull(f"{work}/stderr").decode("utf-8", "replace")
            return escape_untrusted(text.strip()[-300:])
        return ""

    def _push_blobs(self, names: tuple[str, ...], blobs: Mapping[str, bytes], work: str) -> None:
        store = self.installed.store
        draft = f"{work}/blobs"
        result = self.transport.shell(["sh", "-c", 'umask 077; mkdir -p "$0"', draft])
        if result.exit_code != 0:
            raise refusal(result.output, "make", draft, self.serial)
        absent = next((name for name in names if name not in blobs), None)
        if absent is not None:
            raise AgentError(
                f"{self.serial}: the request names blob {absent}, which the host does not have",
                serial=self.serial,
            )
        try:
            if not self._push_archive(names, blobs, draft):
                for name in names:
                    self.transport.push(blobs[name], f"{draft}/{name}")
        except DeviceStorageError:
            # Half a blob is useless, and should not fill the disk.
            self.transport.shell(["rm", "-rf", draft])
            raise
        result = self.transport.shell(["sh", "-c", _STORE_SCRIPT, draft, store])
        if result.exit_code != 0:
            raise refusal(result.output, "write to", store, self.serial)

    def _push_archive(self, names: tuple[str, ...], blobs: Mapping[str, bytes], draft: str) -> bool:
        """Push many blobs as one file: each push of a file waits for several round trips.

        Returns False where there are few, or the device has no ``tar`` (Android 5 and before).
        """
        if len(names) < FEWEST_IN_ARCHIVE:
            return False
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for name in names:
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode = len(blobs[name]), 0o600
                archive.addfile(entry, io.BytesIO(blobs[name]))
        self.transport.push(packed.getvalue(), f"{draft}.tar")
        result = self.transport.shell(["sh", "-c", _UNPACK_SCRIPT, draft])
        stored = storage_error(result.output, draft, self.serial)
        if stored is not None:
            raise stored
        return result.exit_code == 0


class _Reader:
    """Sorts the lines of a run of the agent, and remembers the current action."""

    def __init__(self) -> None:
        self.missing: tuple[str, ...] = ()
        self.done = False
        self.error: str | None = None
        self.noise = ""
        self.unread: SerializationError | None = None
        """Error of an unreadable last line: a killed agent may have written half of it."""
        self._running: int | None = None
        self._finished: int | None = None

    def events(self, lines: Iterator[str]) -> Iterator[Event]:
        """Yields the events of a run; a hello only once it is known that no blobs are missing."""
        hello: Hello | None = None
        n_noise = 0
        for line in lines:
            if self.unread is not None:
                raise self.unread
            try:
                event = parse_line(line)
            except SerializationError as error:
                self.unread = error
                continue
            if event is None or isinstance(event, AgentInfo | Cleaned):
                self.noise = escape_untrusted(line.strip()[-300:]) or self.noise
                n_noise += len(line) + 1
                if n_noise > MAX_OUTPUT_BYTES:
                    raise SerializationError(
                        f"more than {MAX_OUTPUT_BYTES >> 20} MiB of lines are not the agent's"
                    )
            elif isinstance(event, Hello):
                hello = event
            elif isinstance(event, Missing):
                self.missing = event.blobs
            elif isinstance(event, ErrorLine):
                self.error = event.message
            else:
                if hello is not None:
                    yield hello
                    hello = None
                self._note(event)
                yield event

    def where(self) -> str:
        if self._running is not None:
            return f"during action {self._running}"
        if self._finished is not None:
            return f"after action {self._finished}"
        return "before the first action"

    def _note(self, event: Start | Wait | ActionResult | End) -> None:
        if isinstance(event, Start | Wait):
            self._running = event.action
        elif isinstance(event, ActionResult):
            self._running, self._finished = None, event.action
        else:
            self.done = True


# $0 the folder, then more conditions of find. Prints kilobytes and path of each agent, and of each
# draft of one that a host did not finish.
_AGENTS_SCRIPT = (
    '[ -d "$0" ] || exit 0; '
    'find "$0" -mindepth 2 -maxdepth 2 -name "agent*" "$@" -exec du -sk {} \\; '
    "2>/dev/null; true"
)
# $0 the folder. Prints the kilobytes of all of it, if it exists.
_SIZE_SCRIPT = '[ -d "$0" ] || exit 0; du -sk "$0" 2>/dev/null; true'
_AGENT_LINE = re.compile(r"\s*(\d+)\s+(.*)/([0-9a-f]{16})/agent(?:\.[0-9a-f]{8})?")


@dataclass(frozen=True, slots=True)
class Removed:
    """The number and size of the deleted files, and the size of the rest."""

    n_agents: int
    n_files: int
    n_bytes: int
    kept_bytes: int


def clean(client: AgentClient, older_than_days: int | None = None) -> Removed:
    """Removes other versions' agents, blobs and work folders.

    With ``older_than_days`` only those not used for so long, else all except work folders younger
    than a day. The agent itself stays. Raises AgentError.
    """
    transport = client.transport
    installed = client.installed
    age = () if older_than_days is None else ("-mtime", f"+{older_than_days}")
    n_agents, agent_bytes = _remove_agents(transport, client.folder, age, keep=installed.path)
    limit = () if older_than_days is None else ("--older-than-days", str(older_than_days))
    folders = ("--store", installed.store, "--work", installed.work)
    result = transport.shell([installed.path, "clean", *folders, *limit])
    events = [parse_line(line) for line in result.output.splitlines()]
    for event in events:
        if isinstance(event, Cleaned):
            return Removed(n_agents, event.files, event.n_bytes + agent_bytes, event.kept_bytes)
    words = "; ".join(event.message for event in events if isinstance(event, ErrorLine))
    raise AgentError(
        f"{client.serial}: the agent does not clean (exit code {result.exit_code}): "
        f"{words or result.output.strip()[-300:]}",
        serial=client.serial,
    )


def clean_all(client: AgentClient) -> Removed:
    """Removes the agents, every blob and every work folder, without installing an agent."""
    transport = client.transport
    folder = client.folder
    before = _folder_size(transport, folder)
    n_agents, _ = _remove_agents(transport, folder, (), keep=None)
    result = transport.shell(["rm", "-rf", f"{folder}/store", f"{folder}/work"])
    if result.exit_code != 0:
        raise refusal(result.output, "remove", folder, client.serial)
    transport.shell(["sh", "-c", 'rmdir "$0" 2>/dev/null; true', folder])
    left = _folder_size(transport, folder)
    return Removed(n_agents, 0, before - left, left)


def _remove_agents(
    transport: Transport, folder: str, conditions: tuple[str, ...], keep: str | None
) -> tuple[int, int]:
    """Removes agents' folders except that of ``keep``; returns their number and bytes."""
    listed = transport.shell(["sh", "-c", _AGENTS_SCRIPT, folder, *conditions])
    matches = [_AGENT_LINE.fullmatch(line.rstrip()) for line in listed.output.splitlines()]
    gone: dict[str, int] = {}
    for match in matches:
        if match is None or match[2] != folder or f"{folder}/{match[3]}/agent" == keep:
            continue
        path = f"{folder}/{match[3]}"
        gone[path] = gone.get(path, 0) + (int(match[1]) << 10)
    if gone:
        result = transport.shell(["rm", "-rf", *gone])
        if result.exit_code != 0:
            raise refusal(result.output, "remove", folder, transport.serial)
    return len(gone), sum(gone.values())


def _folder_size(transport: Transport, folder: str) -> int:
    words = transport.shell(["sh", "-c", _SIZE_SCRIPT, folder]).output.split()
    return int(words[0]) << 10 if words and words[0].isdigit() else 0
