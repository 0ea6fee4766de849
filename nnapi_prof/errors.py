"""All errors of nnapi-prof, as one tree.

    NnapiProfError                 base: one line for the user, exit code 1
    +-- UsageError                 the command line or an option is wrong, exit code 2
    |   +-- ModelFileError         the model file is missing or of an unsupported kind
    |   +-- InputSpecError         the stated inputs do not fit the model
    +-- FrontendError              the model was read but cannot become a graph
    |   +-- KeepsState             a run of the model depends on the run before
    +-- UnsupportedOp              a lowering refuses a node; carries the reason as a sentence
    +-- ConversionError            a region cannot be converted to the requested precision or form
    +-- SerializationError         bytes are not a model, request or bundle of nnapi-prof
    +-- CostError                  a cost table cannot be opened or lacks the requested costs
    |   +-- NotMeasured            it has no costs of a model, device or conditions
    +-- PartitionError             no plan exists for the given costs
    +-- DeviceError                something about the device or the way to it
    |   +-- DeviceNotFound         no such device
    |   +-- DeviceUnauthorized     the phone waits for the user's consent
    |   +-- DeviceOffline          the device is known but does not answer
    |   +-- DeviceStorageError     /data/local/tmp is full or read-only
    |   +-- AgentError             the agent on the device failed, died or speaks another protocol
    +-- BuildError                 the agent or the emulator could not be built
    +-- SlowerError                a plan or a cost table is slower than `compare` allows
    +-- MismatchError              outputs differ from eager PyTorch by more than the tolerance

A message states the problem (what failed, on which object, what was found) and the remedy.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path


class NnapiProfError(Exception):
    """Base of all errors that a user may see; ``exit_code`` is what the command line returns.

    ``problem`` says what failed, on which object, and what was found; ``remedy`` says what to do,
    None where the problem says it.
    """

    exit_code = 1

    def __init__(self, problem: str = "", remedy: str | None = None) -> None:
        super().__init__(problem if remedy is None else f"{problem}: {remedy}")
        self.problem = problem
        self.remedy = remedy


class UsageError(NnapiProfError):
    """The command line or an option is wrong."""

    exit_code = 2


class ModelFileError(UsageError):
    """The model file is missing or of an unsupported kind."""


class InputSpecError(UsageError):
    """The stated inputs do not fit the model."""


class FrontendError(NnapiProfError):
    """The model was read but cannot become a graph."""


class KeepsState(FrontendError):
    """A model keeps state, so that a run depends on the run before."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason for which an operation does not run on NNAPI."""

    reason: str
    operation: str | None = None
    """The ATen operator that NNAPI cannot run; None where the reason is another one."""
    source: str = ""
    """The node that was refused."""

    @property
    def sentence(self) -> str:
        """The refusal in a sentence, without the node."""
        if self.operation is None:
            return self.reason
        return f"{self.operation} cannot run on NNAPI: {self.reason}"

    def __str__(self) -> str:
        return f"{self.source}: {self.sentence}" if self.source else self.sentence


class UnsupportedOp(NnapiProfError):
    """A lowering refuses a node; ``op`` is its ATen operator."""

    def __init__(self, node: str, op: str, reason: str) -> None:
        self.refusal = Refusal(reason, op, node)
        super().__init__(str(self.refusal))
        self.node = node
        self.op = op
        self.reason = reason


class ConversionError(NnapiProfError):
    """A region cannot be converted to the requested precision or form."""


class SerializationError(NnapiProfError):
    """Bytes are not a model, request or bundle of nnapi-prof."""


class CostError(NnapiProfError):
    """A cost table cannot be opened or lacks the requested costs."""


class NotMeasured(CostError):
    """A cost table has no costs of a model, a device or conditions."""


class PartitionError(NnapiProfError):
    """No plan exists for the given costs."""


class DeviceError(NnapiProfError):
    """A device or the connection to it fails; ``serial`` names the device where known."""

    def __init__(
        self, problem: str, remedy: str | None = None, *, serial: str | None = None
    ) -> None:
        super().__init__(problem, remedy)
        self.serial = serial


class DeviceNotFound(DeviceError):
    """The device does not exist."""


class DeviceUnauthorized(DeviceError):
    """The phone waits for the user's consent to this host's key."""


class DeviceOffline(DeviceError):
    """The device is known but does not answer."""


class DeviceStorageError(DeviceError):
    """The device's ``/data/local/tmp`` is full or read-only."""


class AgentError(DeviceError):
    """The agent on the device failed, died or speaks another protocol."""


class BuildError(NnapiProfError):
    """The agent or the emulator could not be built; the message ends with the compiler's words."""


class MismatchError(NnapiProfError):
    """Outputs differ from eager PyTorch by more than the tolerance."""


class SlowerError(NnapiProfError):
    """A latency is worse than the limit allows."""


_on_command_line: ContextVar[bool] = ContextVar("on_command_line", default=False)
_ARGUMENTS = {"input": "inputs", "list": "listed", "output": "path"}
"""Options whose argument has another name in Python."""


@contextmanager
def command_line() -> Iterator[None]:
    """Spells options in messages as on the command line during a block, instead of as Python
    arguments."""
    token = _on_command_line.set(True)
    try:
        yield
    finally:
        _on_command_line.reset(token)


def for_caller(on_command_line: str, in_python: str) -> str:
    """Returns a message in the caller's terms."""
    return on_command_line if _on_command_line.get() else in_python


def option_name(name: str, value: str | None = None) -> str:
    """Returns an option as its user spells it: ``--max-regions`` or ``max_regions``; with a value
    ``--pin relu=cpu`` or ``pin='relu=cpu'``."""
    argument = _ARGUMENTS.get(name, name.replace("-", "_"))
    if value is None:
        return for_caller(f"--{name}", argument)
    return for_caller(f"--{name} {value}", f"{argument}={value!r}")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Returns `` (did you mean NAME?)`` for an error message where a known word resembles the
    mistyped one, else an empty text."""
    import difflib

    near = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {near[0]}?)" if near else ""


def non_regular_kind(path: Path) -> str | None:
    """Returns the kind of a ``path`` that is not a regular file: ``a folder``, ``a pipe`` or ``a
    device``; None for a file, a link to one, and where nothing exists.

    Call it before reading a file that a user named: opening a pipe waits for a writer, and a
    device may never end.
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return None
    kinds = {stat.S_IFREG: None, stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def escape_untrusted(text: str, limit: int = 500) -> str:
    """Returns text from an untrusted source (a phone, a file) as one line for a message. Control
    characters, which could steer a terminal or forge lines, become visible escapes, and text beyond
    ``limit`` characters is cut off."""
    shown = "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode("ascii")
        for c in text[: limit + 1]
    )
    return shown if len(text) <= limit else f"{shown[:limit]}…"
