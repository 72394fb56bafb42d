"""What operators deploy: dashboard, alerts, images, manifests.

No cluster and no image builder run here. So images are linted, and their one step that is ours (pip, from a
wheel) is what tests/packaging does in an environment of its own; the chart is rendered by the few rules of
Helm's that it uses, and what comes out is held against the schemas of Kubernetes.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from sgkv.backends.deadline import Deadline
from sgkv.config import load, resolve
from sgkv.metrics import HELP, Metrics
from sgkv.store.build import build_store
from sgkv.store.span import Span
from tests.model.world import LAYOUT, NAMESPACE, blank, filled, sequence

PACKAGING = Path(__file__).parents[2] / "packaging"
CHART = PACKAGING / "helm" / "sgkv"
METRIC = re.compile(r"\bsgkv_[a-z0-9_]+")


@pytest.fixture(scope="module")
def exposed(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """What a store shows once it has stored and served, and counters that stay away until they count."""
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    disk = {"type": "disk", "path": str(tmp_path_factory.mktemp("kv")), "capacity": "4MiB", "min_free": 0}
    tiers = [{"type": "cpu", "capacity": "1MiB"}, disk]
    store = build_store(resolve(load({"chunk_tokens": 16, "tiers": tiers}, environ={}).config), metrics)
    session = store.open(NAMESPACE, LAYOUT, "test")
    for seed in range(3):
        hashes = sequence(seed, 16)
        assert all(session.set(Span(hashes, ()), filled(hashes), Deadline(20)))
        assert session.lookup(Span(hashes, ()), Deadline(20)).pages == 16
        session.get(Span(hashes, ()), blank(16), Deadline(20))
    store.counters.lookup(5, 3, None)
    assert store.flush(20)
    metrics.update(store.stats())
    store.close()
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {sample.name for family in families for sample in family.samples} | {
        f"sgkv_{name}_total" for name in HELP
    }


def expressions() -> Iterator[tuple[str, str]]:
    board = json.loads((PACKAGING / "grafana" / "sgkv.json").read_text())
    for panel in board["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    rules = yaml.safe_load((PACKAGING / "prometheus" / "alerts.yaml").read_text())
    for rule in rules["groups"][0]["rules"]:
        yield rule["alert"], rule["expr"]


@pytest.mark.parametrize(("where", "expression"), list(expressions()), ids=lambda text: str(text)[:30])
def test_every_metric_that_is_asked_for_is_one_that_is_shown(
    exposed: set[str], where: str, expression: str
) -> None:
    assert set(METRIC.findall(expression)) <= exposed


def test_panels_of_the_dashboard_do_not_lie_on_each_other() -> None:
    panels = json.loads((PACKAGING / "grafana" / "sgkv.json").read_text())["panels"]
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
    assert len({panel["id"] for panel in panels}) == len(panels)


@pytest.mark.parametrize(
    "arguments", [("check", "rules", "alerts.yaml"), ("test", "rules", "alerts_test.yaml")]
)
def test_promtool_is_content(arguments: tuple[str, ...]) -> None:
    promtool = shutil.which("promtool")
    assert promtool, "this needs promtool: apt-get install prometheus (`make test-tools` does)"
    done = subprocess.run(
        [promtool, *arguments],
        cwd=PACKAGING / "prometheus",
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("file", sorted((PACKAGING / "docker").iterdir()), ids=lambda file: file.name)
def test_hadolint_is_content(file: Path) -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, file], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout


def rendered(**changes: Any) -> list[dict[str, Any]]:
    """The chart's objects, with values laid over its own, by section."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    for section, change in changes.items():
        values[section] = {**values[section], **change}
    return [
        found
        for file in sorted((CHART / "templates").iterdir())
        for found in _objects(file.read_text(), values)
    ]


def _objects(text: str, values: dict[str, Any]) -> Iterator[dict[str, Any]]:
    def value(path: str) -> Any:
        found: Any = {"Values": values, "Release": {"Name": "kv", "Namespace": "inference"}}
        for part in path.strip(".").split("."):
            found = found[part]
        return found

    def kept(match: re.Match[str]) -> str:
        return match[2] if value(match[1]) else ""

    text = re.sub(r"\n\{\{- if (\S+) \}\}(.*?)\n\{\{- end \}\}", kept, text, flags=re.DOTALL)
    text = re.sub(r"\{\{ (\.\S+) \}\}", lambda match: str(value(match[1])), text)
    assert "{{" not in text
    yield from yaml.safe_load_all(text)


@pytest.mark.parametrize("bucket", ["", "kv--use1-az4--x-s3"])
def test_what_the_chart_makes_is_what_kubernetes_takes(bucket: str) -> None:
    objects = rendered(bucket={"name": bucket})
    kinds = [one["kind"] for one in objects]
    assert sorted(kinds) == sorted(
        ["ConfigMap", "DaemonSet", "Deployment", "Service", "PodDisruptionBudget"] + 2 * ["NetworkPolicy"]
    )
    for one in objects:
        kubernetes_validate.validate(one, "1.31", strict=True)
    config = next(one for one in objects if one["kind"] == "ConfigMap")["data"]["sgkv.yaml"]
    environment = {"SGKV__CONTROL__TOKEN": "a token of the controller's"}
    loaded = load(yaml.safe_load(config), environ=environment).config
    assert [tier.type for tier in loaded.tiers] == ["cpu", "disk"] + (["s3"] if bucket else [])


def test_the_plain_manifests_are_what_the_chart_makes_of_its_defaults() -> None:
    plain = (PACKAGING / "kubernetes" / "sgkv.yaml").read_text()
    assert list(yaml.safe_load_all(plain)) == rendered()


def test_no_container_of_the_chart_may_do_more_than_it_must() -> None:
    for one in rendered():
        if one["kind"] not in ("DaemonSet", "Deployment"):
            continue
        pod = one["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"]
        rights = [init.get("securityContext", {}) for init in pod["initContainers"]]
        assert all(own.get("runAsNonRoot", True) or own["capabilities"]["drop"] == ["ALL"] for own in rights)
        for container in pod["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"]
            assert container["resources"]["limits"]["memory"]


def test_the_unit_is_the_one_that_the_documentation_shows() -> None:
    unit = (PACKAGING / "systemd" / "sgkv-node.service").read_text()
    assert unit.strip() in (PACKAGING.parent / "docs" / "node.md").read_text()
