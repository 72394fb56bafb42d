"""Stores that come and go under a running server, through SGLang's admin API."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from sgkv.cli.app import app
from sgkv.testing.server import HOST
from tests.e2e.rig import Folder, assert_same, prompt, settings, usage
from tests.e2e.served import STORAGE, Served

pytestmark = pytest.mark.server


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "kv")


def test_without_a_store_nothing_is_found_and_with_it_again_everything(llama: Served, folder: Folder):
    ids = prompt(40)
    llama.attach(settings(folder))
    cold = llama.cold(ids, folder)
    assert_same(llama.plain(ids), cold)
    llama.attach(settings(folder))
    llama.assert_restored(llama.again(ids), cold, ids)


def test_what_was_cleared_is_gone(llama: Served, folder: Folder):
    ids = prompt(41)
    llama.attach(settings(folder))
    cold = llama.cold(ids, folder)
    llama.server.flush()
    llama.server.admin("POST", f"{STORAGE}/clear")
    answer = llama.cold(ids, folder)
    assert_same(answer, cold)
    llama.assert_restored(llama.again(ids), cold, ids)


def test_the_generic_interface_stores_flat_pages(llama: Served, folder: Folder):
    ids = prompt(42)
    llama.attach(settings(folder), interface_v1=0)
    cold = llama.cold(ids, folder)
    llama.assert_restored(llama.again(ids), cold, ids)
    llama.attach(settings(folder, cpu=False), interface_v1=0)
    llama.assert_restored(llama.again(ids), cold, ids)


def test_without_prefix_keys_pages_are_stored_one_by_one_and_it_is_said_once(llama: Served, folder: Folder):
    said = llama.server.log_text().count("SGLang does not pass the hashes before a batch")
    llama.attach(settings(folder), hicache_storage_pass_prefix_keys=False)
    for ids in (prompt(43), prompt(44)):
        cold = llama.cold(ids, folder)
        llama.assert_restored(llama.again(ids), cold, ids)
    assert len(folder.blobs()) == 2 * 31
    assert llama.server.log_text().count("SGLang does not pass the hashes before a batch") == said + 1


def test_attaching_again_and_again_leaks_neither_files_nor_threads(llama: Served, folder: Folder):
    ids = prompt(45)
    llama.attach(settings(folder))
    llama.cold(ids, folder)
    seen = []
    for _ in range(4):
        llama.attach(settings(folder))
        llama.generate(ids)
        llama.detach()
        seen.append(usage(llama.server.tree.pid))
    assert seen[-1].files <= seen[0].files
    assert seen[-1].threads <= seen[0].threads


def test_a_store_that_cannot_work_is_refused_and_the_server_goes_on(llama: Served, folder: Folder):
    bad = {"tiers": [{"type": "disk", "path": "kv", "capcity": "1GiB"}]}
    with pytest.raises(RuntimeError) as refused:
        llama.attach(bad)
    assert "tiers.0.path" in str(refused.value)
    assert "write an absolute path" in str(refused.value)
    assert 'tiers.0.capcity (the extra config): unknown key; did you mean "capacity"?' in str(refused.value)
    with pytest.raises(RuntimeError, match=r"model\.head_group: .* do not divide the 2 of this rank"):
        llama.attach({**settings(folder), "model": {"head_group": 4}})
    assert llama.server.healthy()
    llama.attach(settings(llama.folder))
    llama.assert_restored(llama.again(llama.first_ids), llama.first, llama.first_ids)


def test_the_doctor_knows_a_running_server_and_why_it_missed(llama: Served, folder: Folder):
    llama.attach(settings(folder))
    llama.cold(prompt(46), folder)
    told = CliRunner().invoke(app, ["doctor", "sglang", "--server", f"http://{HOST}:{llama.server.port}"])
    assert "the configuration is valid: cpu, disk" in told.stdout
    assert "pages were served" in told.stdout
    assert "pages absent: no tier had them" in told.stdout
    assert "BAD  a page is one token" not in told.stdout
