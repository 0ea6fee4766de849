"""The agent client with the real agent: on this host, on adbd, behind an adb server; and what
cleaning up leaves."""

import contextlib
import struct
from dataclasses import replace

import numpy as np
import pytest

from nnapi_prof import errors
from nnapi_prof.costs.measurement import Status
from nnapi_prof.device.agent import AgentClient, clean, clean_all
from nnapi_prof.device.find import open_device, open_local, open_simulated
from nnapi_prof.device.install import InstalledAgent, device_platform, install_agent, remote_dir
from nnapi_prof.device.protocol import ActionResult, End, Hello, Start, actions
from nnapi_prof.device.protocol.actions import ActionSpec, SegmentSpec, TensorSource, TensorSpec
from nnapi_prof.device.protocol.request import Request, RequestBuilder
from nnapi_prof.device.transport import LocalTransport
from nnapi_prof.device.transport.adb import connect_tcp
from nnapi_prof.errors import AgentError, BuildError, DeviceOffline, DeviceStorageError, UsageError
from nnapi_prof.graph.plan import CPU, Engine, Preference, Target
from nnapi_prof.nnapi.container import read_container, write_container
from tests.agent import packer
from tests.processes import is_running, wait_until

TCP, SERVER = (pytest.param(way, marks=pytest.mark.adbd) for way in ("tcp", "server"))


@pytest.fixture
def reach(request, built_host):
    """A client on a kind of device; all but local are the simulated npu-phone."""

    def opened(way):
        if way == "local":
            return open_local()
        if way == "sim":
            return open_simulated("npu-phone")
        daemon = request.getfixturevalue("start_daemon")("npu-phone")
        if way == "server":
            request.getfixturevalue("adb_server").connect(daemon.serial)
        return AgentClient(open_device(daemon.serial).transport, remote_dir=daemon.remote_dir)

    return opened


@pytest.fixture(params=["local", "sim", TCP, SERVER])
def client(request, reach):
    with reach(request.param) as opened:
        yield opened


@pytest.fixture
def on_adbd(start_daemon, built_host):
    """Makes a client on an adbd that is a simulated phone; gives it and its daemon."""
    with contextlib.ExitStack() as clients:

        def start(phone="npu-phone", **options):
            daemon = start_daemon(phone, **options)
            transport = connect_tcp("127.0.0.1", daemon.port)
            client = AgentClient(transport, remote_dir=daemon.remote_dir)
            return clients.enter_context(client), daemon

        yield start


@pytest.fixture
def phone(on_adbd):
    return on_adbd()


def on_phone(client: AgentClient, script: str) -> list[str]:
    """The words a script says; $0 is the folder of ours there."""
    result = client.transport.shell(["sh", "-c", script, client.folder])
    assert result.exit_code == 0, result.output
    return result.output.split()


def tensor(n: int, source=TensorSource.SEGMENT, value: int = 0, keep: bool = False) -> TensorSpec:
    return TensorSpec(packer.TENSOR_FLOAT32, (1, n), source, value, keep)


def product(n: int) -> tuple[RequestBuilder, np.ndarray]:
    """Action 5: y = relu(x * w), multiplied by NNAPI and rectified by the CPU engine."""
    rng = np.random.default_rng(3)
    w, x = rng.standard_normal((2, n), dtype=np.float32)
    model, builder = packer.Model(), RequestBuilder()
    factor = model.tensor(1, n)
    inputs = [factor, model.buffered(0, 1, n), model.scalar(0)]
    multiplied = model.pack([factor], [model.add(packer.MUL, inputs, 1, n)])
    multiply = builder.add_model(multiplied, [w.tobytes()])
    rectify = builder.add_model(packer.unary(packer.RELU, 1, n), [])
    source = tensor(n, TensorSource.BLOB, builder.add_blob(x.tobytes()))
    nnapi = Target.nnapi("nnapi-reference", Preference.FAST_SINGLE_ANSWER)
    first = SegmentSpec.on(nnapi, multiply, (0,), (1,))
    second = SegmentSpec.on(CPU, rectify, (1,), (2,))
    tensors = (source, tensor(n), tensor(n, keep=True))
    builder.add_action(
        ActionSpec(5, tensors, (first, second), actions.Timing(min_runs=4, max_runs=4))
    )
    return builder, np.maximum(x * w, 0)


def run_product(client: AgentClient, n: int = 8) -> None:
    builder, _ = product(n)
    assert list(client.run(builder.request()))[-1] == End(1, 1, 0)


def endless() -> Request:
    """A short action, then one that runs for minutes."""
    builder = RequestBuilder()
    for number, (size, runs) in enumerate([(8, 1), (4_000_000, 100_000)], 1):
        tensors = (tensor(size, TensorSource.RANDOM, 1), tensor(size))
        model = builder.add_model(packer.unary(packer.RELU, 1, size), [])
        segment = SegmentSpec(Engine.CPU, model, (0,), (1,))
        timing = actions.Timing(min_runs=runs, max_runs=runs, timeout_ms=120_000)
        builder.add_action(ActionSpec(number, tensors, (segment,), timing))
    return builder.request()


def test_a_request_from_end_to_end(client):
    builder, expected = product(1000)
    request = builder.request()
    hello, start, result, end = client.run(request)
    simulated, info = client.serial != "local", client.info()
    assert info is client.info() and "nnapi-reference" in {a.name for a in info.nnapi.accelerators}
    assert (info.phone, info.abi) == ("npu-phone" if simulated else None, "x86_64")
    assert isinstance(hello, Hello) and (hello.actions, hello.simulated) == (1, simulated)
    assert (start, end) == (Start(5), End(1, 1, 0))
    assert isinstance(result, ActionResult) and result.ok, result
    assert result.clock == ("simulated" if simulated else "monotonic")
    assert [len(s.samples_ns) for s in result.segments] == [4, 4]
    assert len(result.total_ns) == 4
    (output,) = result.outputs
    assert output.n_bytes == 4000
    actual = np.frombuffer(client.pull_output(output), np.float32)
    np.testing.assert_array_equal(actual, expected)
    with pytest.raises(AgentError, match=r"with other bytes than .* \(4000 bytes, 4000 stated\)"):
        client.pull_output(replace(output, sha256="0" * 64))

    # The blobs are there now: a host that has none left can run it again.
    again = [e for e in client.run(replace(request, blobs={})) if isinstance(e, ActionResult)]
    assert [e.status for e in again] == [Status.OK]
    assert client.pull_output(again[0].outputs[0].file) == actual.tobytes()

    store = client.installed.store
    names = client.transport.shell(["ls", store]).output.split()
    assert sorted(names) == sorted(builder.blobs)
    # A damaged blob is sent anew.
    name = next(iter(builder.blobs))
    client.transport.push(b"damaged", f"{store}/{name}")
    assert list(client.run(request))[-1] == End(1, 1, 0)


def test_closing_leaves_only_agent_and_blobs(phone):
    client, daemon = phone
    with client:
        run_product(client)
        installed = client.installed
        assert client.transport.shell(["ls", installed.work]).output.split()
    look = connect_tcp("127.0.0.1", daemon.port)
    assert look.shell(["ls", installed.work]) == (0, "")
    assert len(look.shell(["ls", installed.store]).output.split()) == 2
    assert sorted(look.shell(["ls", daemon.remote_dir]).output.split())[1:] == ["store", "work"]
    look.close()


def test_what_lies_on_a_phone_is_nobody_elses(phone):
    """adbd's umask is 000, and apps may read what the shell writes; older versions let them."""
    client, daemon = phone
    old, shell = f"{daemon.remote_dir}/store/{'0' * 64}", client.transport.shell
    script = 'umask 000; mkdir -p "$0/store" "$0/work"; echo weights > "$1"'
    assert shell(["sh", "-c", script, daemon.remote_dir, old]).exit_code == 0
    run_product(client)
    everything = shell(["find", daemon.remote_dir]).output.split()
    assert len(everything) > 8 and old in everything
    assert shell(["find", daemon.remote_dir, "-perm", "/077"]) == (0, "")


def until_2_runs(client: AgentClient, then) -> None:
    """Runs what is endless, and does something when its second action has begun: what was measured
    by then has been told."""
    results = []
    try:
        for event in client.run(endless()):
            if isinstance(event, ActionResult):
                results.append(event.action)
            if event == Start(2):
                then()
    finally:
        assert results == [1]


@pytest.mark.parametrize("way", ["sim", TCP, SERVER])
def test_an_agent_killed_midway_leaves_what_it_measured(way, reach):
    def kill():
        script = 'kill -9 "$(cat "$0"/*/pid)"'
        done = client.transport.shell(["sh", "-c", script, client.installed.work])
        assert done.exit_code == 0, done

    words = "the agent was killed by signal 9 during action 2"
    with reach(way) as client, pytest.raises(AgentError, match=f"{client.serial}: {words}"):
        until_2_runs(client, kill)


def test_a_phone_lost_midway_leaves_what_it_measured(phone):
    client, daemon = phone
    with pytest.raises(DeviceOffline, match="during action 2") as caught:
        until_2_runs(client, daemon.kill)
    assert caught.value.serial == daemon.serial


def test_leaving_early_stops_the_agent(phone):
    client, _ = phone
    run = client.run(endless())
    assert Start(2) in run  # up to that
    work = client.installed.work
    pid = int(client.transport.shell(["sh", "-c", 'cat "$0"/*/pid', work]).output)
    assert is_running(pid)  # the device is this machine
    run.close()
    wait_until(lambda: not is_running(pid))
    run_product(client)


def test_full_storage_on_install_and_on_weights(on_adbd, built_host):
    small, _ = on_adbd(storage="64k")
    words = "the storage that holds /data/local/tmp/nnapi-prof.* is full"
    with pytest.raises(DeviceStorageError, match=words):
        install_agent(small.transport, small.folder)
    assert on_phone(small, 'find "$0" -type f') == []  # nor half an agent

    agent_kb = built_host.agent.stat().st_size // 1024
    roomy, _ = on_adbd(storage=f"{agent_kb + 2000}k")
    builder, _ = product(1_000_000)
    with pytest.raises(DeviceStorageError, match="is full"):
        list(roomy.run(builder.request()))
    # What did not fit is gone again, so that smaller things fit.
    run_product(roomy, 1000)


def test_the_agent_is_pushed_once_and_mended(phone, built_host):
    client, daemon = phone
    transport, text = client.transport, list[str]()
    first = install_agent(transport, client.folder, text.append)
    assert install_agent(transport, client.folder, text.append) == first
    assert text == [f"pushing the agent to {daemon.serial}"]
    transport.push(b"#!/bin/sh\necho broken\n", first.path, 0o755)
    assert install_agent(transport, client.folder, text.append) == first
    assert len(text) == 2
    assert transport.pull(first.path) == built_host.agent.read_bytes()


def test_a_phone_of_another_abi_is_named(on_adbd):
    client, _ = on_adbd(properties={"ro.product.cpu.abi": "mips"})
    assert device_platform(client.transport) == ("mips", "linux")
    with pytest.raises(BuildError, match="the device is linux on mips: agents exist for"):
        install_agent(client.transport, client.folder)


def test_what_the_host_lacks_and_what_nobody_understands(client):
    builder, _ = product(16)
    with pytest.raises(AgentError, match=r"blob [0-9a-f]{64}, which the host does not have"):
        list(client.run(replace(builder.request(), blobs={})))
    sections = read_container(builder.build(), 1)
    sections["HEAD"] = struct.pack("<II", 99, 0)
    with pytest.raises(AgentError, match=r"the agent failed \(exit code 1\) before the first act"):
        list(client.run(Request(write_container(1, sections), builder.blobs, 60.0)))
    with pytest.raises(AgentError, match=r"left no output '../x'"):
        client.pull_output("../x")


def fake_agent(script):
    """A client whose agent is a shell script: for answers that ours never gives."""
    transport = LocalTransport("local", "test", {})
    transport.push(f"#!/bin/sh\n{script}\n".encode(), f"{transport.folder}/agent", 0o755)
    for name in ("store", "work"):
        (transport.folder / name).mkdir()
    places = [f"{transport.folder}/{name}" for name in ("agent", "store", "work")]
    return AgentClient(transport, InstalledAgent(*places))


ABSENT = "a" * 64


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo vendor noise; exit 0", "ended before the request did before the first action"),
        ("echo vendor noise >&2; exit 4", r"failed \(exit code 4\).*: vendor noise"),
        ("""echo '{"type":"error","message":"no such model"}'; exit 1""", "no such model"),
        ("""echo '{"type":"start","action":9}'; exit 0""", "ended before .* during action 9"),
        ("""echo '{"type":"missing","blobs":[]}'; exit 3""", r"exit code 3"),
        (
            f"""echo '{{"type":"missing","blobs":["{ABSENT}"]}}'; exit 3""",
            "1 blobs were pushed and are missing still",
        ),
    ],
)
def test_an_agent_that_misbehaves(script, words):
    with fake_agent(script) as client, pytest.raises(AgentError, match=words):
        list(client.run(replace(endless(), blobs={ABSENT: b"x"})))


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ("work", r"cannot make \S+/work/[0-9a-f]{12}: "),
        ("store", r"cannot write to \S+/store: "),
        ("", "the storage that holds .*/store is full"),
    ],
)
def test_folders_that_cannot_be_used(broken, words):
    missing = f"""echo '{{"type":"missing","blobs":["{ABSENT}"]}}'; exit 3"""
    script = missing if broken else "echo No space left on device >&2; exit 1"
    with fake_agent(script) as client:
        if broken:
            (client.transport.folder / broken).rmdir()
            (client.transport.folder / broken).touch()
        with pytest.raises(errors.DeviceError, match=words):
            list(client.run(replace(endless(), blobs={ABSENT: b"x"})))


OLD = (
    '{"type":"info","protocol":9,"agent":"9","abi":"x","os":"linux","properties":{},'
    '"cpus":1,"simulated":false,"nnapi":{}}'
)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo oops; exit 1", r"tells nothing .* \(exit code 1\): oops"),
        (f"echo '{OLD}'", "speaks protocol 9, 5 is required"),
        ("""echo '{"type":"info"}'""", "local: "),
        ("""echo '{"type":"error","message":"lost"}'; exit 2""", r"\(exit code 2\): lost"),
    ],
)
def test_an_agent_that_tells_nothing_or_speaks_another_protocol(script, words):
    with fake_agent(script) as client, pytest.raises(AgentError, match=words):
        client.info()


# ---- cleaning up ---------------------------------------------------------------------------------

OTHER_AGENT = "0123456789abcdef"


@pytest.fixture
def used(phone):
    """A client whose phone ran a request, has another version's agent and a stranger's file."""
    client, _ = phone
    run_product(client)
    on_phone(client, f'cd "$0" && mkdir {OTHER_AGENT} photos && echo old >{OTHER_AGENT}/agent')
    on_phone(client, 'echo precious >"$0/photos/agent"')
    return client


def test_other_agents_and_blobs_go(used):
    assert on_phone(used, 'ls "$0/store"')
    removed = clean(used)
    assert removed.n_agents == 1 and removed.n_files >= 2 and removed.n_bytes > 4
    assert on_phone(used, 'ls "$0/store"') == []
    assert OTHER_AGENT not in on_phone(used, 'ls "$0"')
    assert on_phone(used, 'cat "$0/photos/agent"') == ["precious"]
    run_product(used)  # and all goes on


def test_an_agent_that_does_not_clean():
    script = """echo '{"type":"error","message":"it is mine"}'; exit 1"""
    words = r"local: the agent does not clean \(exit code 1\): it is mine"
    with fake_agent(script) as client, pytest.raises(AgentError, match=words):
        clean(client)


def test_what_is_young_stays(used):
    old, *listing = on_phone(used, 'ls "$0/store"')
    on_phone(used, f'touch -d 2020-01-01 "$0/store/{old}"')
    removed = clean(used, older_than_days=5)
    assert (removed.n_agents, removed.n_files) == (0, 1)
    assert on_phone(used, 'ls "$0/store"') == listing
    assert OTHER_AGENT in on_phone(used, 'ls "$0"')
    on_phone(used, f'touch -d 2020-01-01 "$0/{OTHER_AGENT}/agent"')
    assert clean(used, older_than_days=5).n_agents == 1


def test_everything_goes_and_nothing_is_pushed_for_it(used):
    fresh = AgentClient(used.transport, remote_dir=used.folder)
    removed = clean_all(fresh)
    assert removed.n_agents == 2 and removed.n_bytes > 1000
    assert on_phone(used, 'ls "$0"') == ["photos"]


def test_a_simulated_phone_loses_no_build(built_host):
    with open_simulated("npu-phone") as client:
        clean(client)
        assert clean_all(client).n_agents == 0
    assert built_host.agent.exists()


def test_what_is_left_of_a_push_goes(used):
    """A folder where the agent was to be, and the drafts of hosts that were killed."""
    on_phone(used, f'touch "$0/{OTHER_AGENT}/agent.0a1b2c3d"')
    on_phone(used, 'mkdir -p "$0/fedcba9876543210/agent"')
    assert clean(used).n_agents == 2
    ours = used.installed.path.split("/")[-2]
    assert set(on_phone(used, 'ls "$0"')) == {"photos", "store", "work", ours}
    # A folder in the agent's place is replaced.
    path = used.installed.path
    on_phone(used, f'rm "{path}" && mkdir -p "{path}/deep"')
    on_phone(used, f'touch -d 2020-01-01 "{path}.0a1b2c3d"')
    assert install_agent(used.transport, used.folder).path == path
    assert on_phone(used, f'ls "$(dirname "{path}")"') == ["agent", "agent.0a1b2c3d"]
    install_agent(used.transport, used.folder)
    assert on_phone(used, f'ls "$(dirname "{path}")"') == ["agent"]


@pytest.mark.parametrize("folder", ["/", "//", "/data", "tmp/ours", "/data/local/tmp/../.."])
def test_a_folder_that_is_not_ours_alone(monkeypatch, folder):
    monkeypatch.setenv("NNAPI_PROF_REMOTE_DIR", folder)
    with pytest.raises(UsageError, match="name a folder of the device for nnapi-prof alone"):
        remote_dir()
    monkeypatch.setenv("NNAPI_PROF_REMOTE_DIR", "/data/local/tmp/mine/")
    assert remote_dir() == "/data/local/tmp/mine"
