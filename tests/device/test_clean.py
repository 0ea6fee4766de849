"""Cleaning up on a phone behind a real adbd: what goes, and what stays."""

import pytest

from nnapi_prof.device.agent import AgentClient, clean, clean_all
from nnapi_prof.device.find import open_simulated
from nnapi_prof.device.install import install_agent, remote_dir
from nnapi_prof.device.transport.adb import connect_tcp
from nnapi_prof.errors import DeviceStorageError, UsageError
from tests.device.test_agent import run_product

OTHER_AGENT = "0123456789abcdef"


def on_phone(client: AgentClient, script: str) -> list[str]:
    """The words a script says; $0 is the folder of ours there."""
    result = client.transport.shell(["sh", "-c", script, client.folder])
    assert result.exit_code == 0, result.output
    return result.output.split()


@pytest.fixture
def used(start_daemon, built_host):
    """A client whose phone ran a request, has another version's agent and a stranger's file."""
    daemon = start_daemon("npu-phone")
    with AgentClient(connect_tcp("127.0.0.1", daemon.port), remote_dir=daemon.remote_dir) as client:
        run_product(client)
        on_phone(client, f'cd "$0" && mkdir {OTHER_AGENT} photos && echo old >{OTHER_AGENT}/agent')
        on_phone(client, 'echo precious >"$0/photos/agent"')
        yield client


def test_other_agents_and_blobs_go(used):
    assert on_phone(used, 'ls "$0/store"')
    removed = clean(used)
    assert removed.n_agents == 1 and removed.n_files >= 2 and removed.n_bytes > 4
    assert on_phone(used, 'ls "$0/store"') == []
    assert OTHER_AGENT not in on_phone(used, 'ls "$0"')
    assert on_phone(used, 'cat "$0/photos/agent"') == ["precious"]
    run_product(used)  # and all goes on


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


def test_a_folder_in_the_agents_place_is_replaced(used):
    path = used.installed.path
    on_phone(used, f'rm "{path}" && mkdir -p "{path}/deep"')
    on_phone(used, f'touch -d 2020-01-01 "{path}.0a1b2c3d"')
    assert install_agent(used.transport, used.folder).path == path
    assert on_phone(used, f'ls "$(dirname "{path}")"') == ["agent", "agent.0a1b2c3d"]
    install_agent(used.transport, used.folder)
    assert on_phone(used, f'ls "$(dirname "{path}")"') == ["agent"]


def test_half_an_agent_is_removed_at_once(start_daemon, built_host):
    daemon = start_daemon("npu-phone", storage="256k")
    with AgentClient(connect_tcp("127.0.0.1", daemon.port), remote_dir=daemon.remote_dir) as client:
        with pytest.raises(DeviceStorageError, match="is full"):
            install_agent(client.transport, daemon.remote_dir)
        assert on_phone(client, 'find "$0" -type f') == []


@pytest.mark.parametrize("folder", ["/", "//", "/data", "tmp/ours", "/data/local/tmp/../.."])
def test_a_folder_that_is_not_ours_alone(monkeypatch, folder):
    monkeypatch.setenv("NNAPI_PROF_REMOTE_DIR", folder)
    with pytest.raises(UsageError, match="name a folder of the device for nnapi-prof alone"):
        remote_dir()
    monkeypatch.setenv("NNAPI_PROF_REMOTE_DIR", "/data/local/tmp/mine/")
    assert remote_dir() == "/data/local/tmp/mine"
