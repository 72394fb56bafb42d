"""A store that cannot work is refused before a server comes up, with the field and what to change."""

import json
from pathlib import Path

import pytest

from sgkv.sglang.launch import DYNAMIC
from tests.e2e.served import MakeServer

pytestmark = pytest.mark.server

BAD = """
tiers:
  - {type: cpu, capacity: 1PiB}
  - {type: disk, path: kv, capcity: 1GiB}
write_behind: {tail_delay: soon}
"""


def refusal(make_server: MakeServer, **options: object) -> str:
    """What a server prints that must not come up."""
    server = make_server("llama", **options)
    with pytest.raises(RuntimeError, match="the process ended"), server:
        pass
    assert not server.alive
    return server.log_text()


def test_every_mistake_in_a_file_is_named_with_its_field(make_server: MakeServer, tmp_path: Path):
    (tmp_path / "bad.yaml").write_text(BAD)
    said = refusal(
        make_server, extra_args=["--hicache-storage-backend-extra-config", f"@{tmp_path / 'bad.yaml'}"]
    )
    assert "tiers.1.path" in said
    assert "write an absolute path" in said
    assert "tiers.1.capcity" in said
    assert 'did you mean "capacity"?' in said
    assert "write_behind.tail_delay" in said


def test_what_this_machine_cannot_hold_is_refused(make_server: MakeServer, tmp_path: Path):
    tiers = [{"type": "cpu", "capacity": "1PiB"}, {"type": "disk", "path": str(tmp_path / "kv")}]
    said = refusal(make_server, storage_config={"tiers": tiers})
    assert "tiers.0.capacity" in said
    assert "is more than this machine's memory has" in said


def test_the_explicit_form_refuses_too(make_server: MakeServer):
    said = refusal(
        make_server,
        storage="dynamic",
        storage_config={**DYNAMIC, "tiers": [{"type": "tape"}]},
        env={"SGLANG_PLUGINS": "sgkv_cpu"},
    )
    assert "tiers.0.type" in said
    assert "'tape' is not a kind of tier; known: cpu, disk" in said


def test_text_that_is_no_json_is_refused(make_server: MakeServer):
    text = json.dumps({"tiers": []})[:-1]
    said = refusal(make_server, extra_args=["--hicache-storage-backend-extra-config", text])
    assert "--hicache-storage-backend-extra-config" in said
