"""This host's adb key: what a phone knows this computer by."""

from __future__ import annotations

import base64
import stat
from collections.abc import Iterator
from pathlib import Path

from nnapi_prof.doctor.findings import Family, Finding
from nnapi_prof.doctor.registry import Host, host_checks

ADB = Family("ADB")
ANDROID_KEY_BITS = 2048
_CHECK = "adb key"


@host_checks(ADB.name)
def adb_key(_: Host) -> Iterator[Finding]:
    from nnapi_prof.device.adb import key_file

    path = key_file()
    public = Path(f"{path}.pub")
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        yield ADB.ok(_CHECK, f"{path} is not there yet: made when a phone is first connected")
        return
    except OSError as error:
        yield ADB.problem(
            _CHECK, f"{path} cannot be read: {error.strerror}", f"sudo chown $USER '{path}'"
        )
        return
    public_half = _public_half(path, content)
    if public_half is None:
        yield ADB.problem(
            _CHECK,
            f"{path} holds no RSA key of {ANDROID_KEY_BITS} bits",
            f"mv '{path}' '{path}.old' (a new one is made; phones ask their owner again)",
        )
        return
    yield from _mode(path)
    yield _pair(path, public, public_half)


def _mode(path: Path) -> Iterator[Finding]:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        yield ADB.warning(
            _CHECK,
            f"{path} may be used by other users of this host (mode {mode:o})",
            f"chmod 600 '{path}'",
        )


def _pair(path: Path, public: Path, wanted: bytes) -> Finding:
    """Whether the public half is that of the private one: phones are shown it."""
    try:
        shown = public.read_bytes().split()
    except FileNotFoundError:
        return ADB.ok(_CHECK, f"{path}; its public half is made when a phone is first connected")
    except OSError as error:
        return ADB.problem(
            _CHECK, f"{public} cannot be read: {error.strerror}", f"sudo chown $USER '{public}'"
        )
    if not shown or shown[0] != wanted:
        return ADB.problem(
            _CHECK,
            f"{public} is the public half of another key: phones that confirm it refuse this one",
            f"mv '{public}' '{public}.old' (the right one is made)",
        )
    return ADB.ok(_CHECK, f"{path} is readable, and its public half matches")


def _public_half(path: Path, pem: bytes) -> bytes | None:
    """The public key of a private one in Android's form, base64; None where it holds none."""
    from adb_shell.auth.keygen import encode_pubkey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(pem, None)
    except (ValueError, TypeError):  # no key; one under a password
        return None
    if not isinstance(key, RSAPrivateKey) or key.key_size != ANDROID_KEY_BITS:
        return None
    return base64.b64encode(bytes(encode_pubkey(str(path))))
