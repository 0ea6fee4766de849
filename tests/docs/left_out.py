"""Commands in the documentation that no test runs as they stand, each with the reason.

Each entry must occur in some page: a command that is gone from the pages goes from here, too.
"""

PHONE = "needs a phone; tests/device goes the same way to a real adbd over TCP and an adb server"
INSTALL = "installs PyTorch and more from the network into a new environment; CI begins with it"
MINUTES = "takes minutes, and is a step of CI of its own (.ci/run)"
ROOT = "changes this machine, as root, so that its owner may open phones on USB"
LIBRARY = "compiles the C library, for a minute; tests/library builds the same targets and an app"
PHONES_AGENT = "builds XNNPACK for a phone, for a minute; tests/device builds such an agent without"
EXECUTORCH = "takes long to lower and run; tests/executorch/test_pte.py does both the same way"
AGAIN = "the steps of before with a serial: the page ran them, and tests/device with a real adbd"
TRY = "measures three rewritten networks; tests/api/test_advise.py tries one, of a smaller network"
ESTIMATE = "one more start of PyTorch; tests/cli/test_costs.py estimates from both kinds of file"
GO = "the four steps before it once more; the README's page and tests/cli/test_go.py run it"
FRAMES = "searches and queues for long; tests/cli/test_throughput.py does both with a smaller one"
DOORS = "needs a vendor's library; tests/cli/test_devices.py goes through peers of them"

LEFT_OUT: dict[str, str] = {
    "make demo": INSTALL,
    ". .venv/bin/activate": "of the environment that make sets up; the tests run in one already",
    "python .ci/durations.py": "rewrites a file of this checkout from a whole run of the tests",
    "make check": "would run tests within the tests: they are a part of those of make test",
    "make test": MINUTES,
    "make lint": MINUTES,
    "make docs": "tests/docs/test_build.py builds these pages with the same options",
    "make phone": "serves a device until somebody stops it; tests/adbd starts the same daemon",
    "make demo DEVICE=127.0.0.1:PORT": "of what make phone serves; tests/device goes the same way",
    "sudo apt-get install android-sdk-platform-tools-common": ROOT,
    "sudo cp 51-android.rules /etc/udev/rules.d/": ROOT,
    "sudo udevadm control --reload-rules": ROOT,
    'sudo usermod -aG plugdev "$USER"': ROOT,
    "adb tcpip 5555": PHONE,
    "adb pair 192.168.1.23:37099": PHONE,
    "adb connect 192.168.1.23:41111": PHONE,
    "nnapi-prof profile --device 192.168.1.23:5555 model.pt": PHONE,
    "nnapi-prof profile --device 192.168.1.23:41111 model.pt": PHONE,
    "nnapi-prof profile   --device SERIAL --input 1x3x96x96 segmenter.pt": AGAIN,
    "nnapi-prof partition --device SERIAL --input 1x3x96x96 --output phone.nnprof segmenter.pt": (
        AGAIN
    ),
    "nnapi-prof run       --device SERIAL phone.nnprof": AGAIN,
    "nnapi-prof convert --to executorch --output segmenter.pte segmenter.nnprof": EXECUTORCH,
    "nnapi-prof run --device sim:npu-phone --against segmenter.nnprof segmenter.pte": EXECUTORCH,
    "nnapi-prof convert --to executorch --partitioners nnapi,xnnpack --device local --seconds 1200"
    " unet.pt2": "how a figure was made, in some minutes; tests/executorch/test_choose.py is short",
    "nnapi-prof advise --try --device sim:npu-phone segmenter.nnprof": TRY,
    "nnapi-prof estimate --phone pixel4 --input 1x3x96x96 segmenter.pt": ESTIMATE,
    "nnapi-prof estimate --phone my-phone.json --input 1x3x96x96 segmenter.pt": ESTIMATE,
    "nnapi-prof go --device sim:npu-phone --input 1x3x96x96 segmenter.pt": GO,
    "nnapi-prof partition --objective throughput --frames-in-flight 8 --device sim:npu-phone"
    " --input 1x3x96x96 -o frames.nnprof segmenter.pt": FRAMES,
    "nnapi-prof run --frames 100 frames.nnprof": FRAMES,
    "nnapi-prof devices --nnapi-library /vendor/lib64/libneuron_adapter.so": DOORS,
    "nnapi-prof profile --nnapi-library /data/local/tmp/libsl.so model.pt": DOORS,
    "nnapi-prof partition --nnapi-library /data/local/tmp/libsl.so model.pt -o model.nnprof": DOORS,
    "nnapi-prof run --nnapi-library /data/local/tmp/libsl.so model.nnprof": DOORS,
    "cmake -S device_agent -B build -DNP_LIBRARY=ON -DCMAKE_BUILD_TYPE=Release": LIBRARY,
    "cmake --build build --target nnapi_prof_runtime nnapi_prof_runtime_static": LIBRARY,
    "nnapi-prof agent build --abi arm64-v8a": PHONES_AGENT,
    "cmake --install build --component runtime --prefix PREFIX": LIBRARY,
}

NO_COMMANDS = {
    "nnapi-prof agent VERSION, protocol N": "what the agent prints, in the agent's protocol"
}
"""Code in sentences that looks like a command line of ours and is none."""

SUBSTITUTIONS = {"SERIAL": "sim:npu-phone"}
"""Words in commands that stand for what a reader has, and what the tests put there."""

NEVER = frozenset({"make", "sudo", "adb", "apt", "apt-get", "pip", "git"})
"""Programs that are left out or the test fails: they would change the machine."""
