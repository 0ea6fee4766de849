"""Google's own NNAPI runtimes of Android 9 and 10, for arm64, as phones of tests.

They are no part of the repository. The folder that has them, $NNAPI_PROF_ANDROID_RUNTIMES or
../shared/android, holds for each API level

    apiN/system         a phone's dynamic linker, its libneuralnetworks.so, and what that loads
    apiN/wrap.so        stands before that library: hands over long constants without Android's
                        services
    api29/libfakesm.so  preloaded: without a manager of services Android 10 lists no device

There are no drivers: the one device, of Android 10, is the runtime's own CPU code.
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from nnapi_prof.device.build import agent_binary
from tests.android.phone import MACHINES, AndroidPhone, build_root

REPO = Path(__file__).resolve().parent.parent.parent
VARIABLE = "NNAPI_PROF_ANDROID_RUNTIMES"
ABI = "arm64-v8a"
APIS = (28, 29)
RELEASES = {28: "9", 29: "10"}
SETTINGS = {
    28: "KMP_AFFINITY=disabled",  # under QEMU its OpenMP crashes where it binds threads
    29: "LD_PRELOAD=/libfakesm.so",
}
"""What the environment of an agent needs, on the phone's side of QEMU."""
NNAPI = "/wrap.so"


def runtimes_folder() -> Path:
    """Where the runtimes are looked for."""
    return Path(os.environ.get(VARIABLE) or REPO.parent / "shared/android")


def why_missing(folder: Path) -> str | None:
    """What to tell where the runtimes are not in ``folder``."""
    if all((folder / f"api{api}" / NNAPI[1:]).is_file() for api in APIS):
        return None
    return (
        f"Google's NNAPI runtimes of Android 9 and 10 are not in {folder} ({VARIABLE} names "
        "another folder): nothing here runs on them"
    )


@dataclass(frozen=True, slots=True)
class GooglePhone(AndroidPhone):
    """A phone with Android's own linker, libc and NNAPI; the agent runs under QEMU."""

    api: int

    @property
    def library(self) -> Path:
        return self.root / NNAPI[1:]

    def command(self, *arguments: str) -> list[str]:
        qemu = str(self.root / "rig" / str(MACHINES[ABI].qemu))
        options = ["-L", str(self.root), "-U", "LD_LIBRARY_PATH", "-E", SETTINGS[self.api]]
        return [qemu, *options, str(self.agent), *arguments]

    def build_folder(self, folder: Path) -> Path:
        """Libraries that are linked to the NNAPI in the folder look for it by its own name."""
        AndroidPhone.build_folder(self, folder)
        (folder / NNAPI[1:]).symlink_to(self.library)
        return folder

    @property
    def properties(self) -> dict[str, str]:
        """What its getprop says."""
        release = RELEASES[self.api]
        return {
            "ro.product.cpu.abi": ABI,
            "ro.build.version.sdk": str(self.api),
            "ro.build.version.release": release,
            "ro.build.fingerprint": f"google/runtime/phone:{release}/RIG/1:user/test-keys",
        }

    @property
    def environment(self) -> dict[str, str]:
        """What its programs get besides: for QEMU, and for foreign.c."""
        return {"QEMU_SET_ENV": SETTINGS[self.api], "PHONE_NNAPI": NNAPI}


def build_google_phone(
    api: int, folder: Path, runtimes: Path, prefix: Path, adbd: Path
) -> GooglePhone:
    """Builds the phone of an API level in the new ``folder``; ``prefix`` and ``adbd`` as for
    ``build_root``."""
    source = runtimes / f"api{api}"
    build_root(folder, ABI, prefix, adbd, None, source / "system")
    for library in source.glob("*.so"):
        shutil.copy(library, folder / library.name)
    return GooglePhone(ABI, folder, agent_binary(ABI, "android"), api)
