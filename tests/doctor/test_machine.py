"""Installation, machine, settings and disks, from facts that each test states."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from sgkv.config import ResolvedConfig, ResolvedDisk, load, resolve
from sgkv.doctor import Finding, Level, disks, host, installation, settings
from sgkv.doctor.disks import Disk
from sgkv.doctor.host import Host
from sgkv.doctor.installation import Installation

SOUND = Installation((3, 11), {"sglang": "0.5.23"}, frozenset({"sgkv", "sgkv_cpu"}), None)
ROOMY = Host(memory=64 << 30, shm=32 << 30, open_files=65536, huge_pages="madvise")
FAST = Disk("ext4", 10_000_000, 2e9, 3e9)


def resolved(tmp_path: Path, **options: object) -> ResolvedConfig:
    disk = {"type": "disk", "path": str(tmp_path), "capacity": "2GiB"}
    tiers = options.pop("tiers", [{"type": "cpu", "capacity": "512MiB"}, disk])
    return resolve(load({"tiers": tiers, **options}, environ={}).config)


def trouble(findings: Iterable[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.level is not Level.OK]


def named(findings: Iterable[Finding], said: str) -> Finding:
    found = trouble(findings)
    assert len(found) == 1, found
    assert said in found[0].what
    assert found[0].fix
    return found[0]


class TestInstallation:
    def test_a_sound_one_has_no_trouble(self) -> None:
        assert trouble(installation.examine(SOUND)) == []

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"python": (3, 10)}, "too old"),
            ({"versions": {"sglang": "0.4.0"}}, "0.4.0 was not tested"),
            ({"versions": {}}, "neither SGLang nor vLLM"),
            ({"plugins": frozenset()}, "does not see sgkv's plugin"),
            ({"allowed_plugins": "other, another"}, "leaves sgkv's plugin out"),
        ],
    )
    def test_a_fault_is_named(self, changes: dict[str, object], said: str) -> None:
        named(installation.examine(replace(SOUND, **changes)), said)

    def test_two_builds_of_mooncake_overwrite_each_other(self) -> None:
        both = dict.fromkeys(installation.MOONCAKES[:2], "0.3.13.post1")
        found = replace(SOUND, versions={**SOUND.versions, **both})
        assert "uninstall" in named(installation.examine(found), "overwrite").fix

    def test_a_tier_whose_package_is_missing(self) -> None:
        assert named(installation.examine(SOUND, frozenset({"s3"})), "boto3").fix == 'pip install "sgkv[s3]"'

    def test_where_we_run(self) -> None:
        """The environment of the tests has SGLang and our plugin."""
        assert trouble(installation.examine(installation.this_installation(), frozenset({"s3"}))) == []


class TestHost:
    def test_a_roomy_one_has_no_trouble(self, tmp_path: Path) -> None:
        assert trouble(host.examine(ROOMY, resolved(tmp_path), ranks=8)) == []

    @pytest.mark.parametrize(
        ("changes", "said"),
        [({"shm": 64 << 20}, "64 MiB"), ({"open_files": 1024}, "1024 files")],
    )
    def test_a_limit_is_named(self, changes: dict[str, object], said: str) -> None:
        named(host.examine(replace(ROOMY, **changes), None), said)

    def test_arenas_of_all_ranks_must_fit(self, tmp_path: Path) -> None:
        tight = replace(ROOMY, memory=3 << 30)
        assert trouble(host.examine(tight, resolved(tmp_path), ranks=1)) == []
        assert "192 MiB" in named(host.examine(tight, resolved(tmp_path), ranks=8), "8 ranks").fix

    def test_this_machine_is_known(self) -> None:
        found = host.this_host()
        assert found.memory > 1 << 28
        assert found.open_files > 0


class TestSettings:
    def test_usual_ones_have_no_trouble(self, tmp_path: Path) -> None:
        assert trouble(settings.examine(resolved(tmp_path))) == []

    @pytest.mark.parametrize(
        ("tier", "said"),
        [
            ({"faults": {"error": 0.1}}, "fail on purpose"),
            ({"simulate": {"latency": 0.1}}, "slow on purpose"),
            ({"breaker": {"failures": 1000}}, "as many deadlines"),
            ({"capacity": "64MiB"}, "a few long prompts"),
            ({"deadlines": {"get": "20s"}}, "longer than engine.get_deadline"),
        ],
    )
    def test_a_tier_that_nobody_wants_in_production(
        self, tier: dict[str, object], said: str, tmp_path: Path
    ) -> None:
        tiers = [{"type": "disk", "path": str(tmp_path), "capacity": "1GiB", **tier}]
        named(settings.examine(resolved(tmp_path, tiers=tiers)), said)

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"engine": {"exists_deadline": "5ms"}}, "5 ms"),
            ({"ttl": "1s"}, "expire before they are written"),
        ],
    )
    def test_settings_that_cache_nothing(self, options: dict[str, object], said: str, tmp_path: Path) -> None:
        assert named(settings.examine(resolved(tmp_path, **options)), said).level is Level.PROBLEM

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"rollout": {"mode": "shadow"}}, "nothing is loaded"),
            ({"rollout": {"mode": "percent", "percent": 5}}, "5 % of the prompts"),
            ({"node": {"metrics_port": 9464, "metrics_address": "0.0.0.0"}}, "to whoever reaches it"),
        ],
    )
    def test_what_may_have_been_forgotten(
        self, options: dict[str, object], said: str, tmp_path: Path
    ) -> None:
        assert named(settings.examine(resolved(tmp_path, **options)), said).level is Level.NOTE

    def test_a_disk_no_larger_than_memory_holds_the_same(self, tmp_path: Path) -> None:
        disk = {"type": "disk", "path": str(tmp_path), "capacity": "1GiB"}
        tiers = [{"type": "cpu", "capacity": "1GiB"}, disk]
        named(settings.examine(resolved(tmp_path, tiers=tiers)), "hardly larger")


class TestDisks:
    def tier(self, tmp_path: Path) -> ResolvedDisk:
        tier = resolved(tmp_path).tiers[1]
        assert isinstance(tier, ResolvedDisk)
        return tier

    def test_a_fast_one_has_no_trouble(self, tmp_path: Path) -> None:
        assert trouble(disks.judge(self.tier(tmp_path), FAST)) == []

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"kind": "tmpfs"}, "is memory"),
            ({"kind": "overlay"}, "container's own layer"),
            ({"kind": "nfs4"}, "on a network"),
            ({"free_files": 100}, "100 files"),
            ({"written": 50e6}, "50 MB/s were written"),
            ({"read": 80e6}, "80 MB/s were read"),
        ],
    )
    def test_a_fault_is_named(self, changes: dict[str, object], said: str, tmp_path: Path) -> None:
        named(disks.judge(self.tier(tmp_path), replace(FAST, **changes)), said)

    def test_what_a_folder_lies_on(self, tmp_path: Path) -> None:
        """Also of a folder that is not there yet; and nothing is left behind."""
        found = disks.this_disk(tmp_path / "not" / "yet")
        assert found.kind not in ("", "unknown")
        assert found.written
        assert found.read
        assert list(tmp_path.iterdir()) == []

    def test_memory_is_known_for_what_it_is(self) -> None:
        assert disks.this_disk(Path("/dev/shm")).kind == "tmpfs"
