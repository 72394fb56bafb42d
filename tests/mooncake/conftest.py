"""Every module here runs in a child that is alone in a network with nothing but loopback.

Mooncake's clients listen on all interfaces, and several mistakes that these tests are about end the
process. The child runs the same tests with the same pytest and writes its reports to a file; they become
ours, each when its test has its turn here: a worker of pytest-xdist may not speak of another test than its
current one. When the child dies, the test under way has failed, and another child goes on with the next one.
"""

import json
import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from sgkv.testing.loopback import alone, in_loopback
from tests.mooncake.pool import Pool

_REPORTS = "SGKV_TEST_REPORTS"
"""In a child: the file for its reports."""
_HERE = Path(__file__).parent
_MODULE_SECONDS = 900
_REPORTED = pytest.StashKey[dict[str, list[pytest.TestReport]]]()
"""What is known of each test that has run."""


class Reporter:
    """In the child: writes every report down."""

    def __init__(self, config: pytest.Config, path: str):
        self._config = config
        self._path = Path(path)

    def pytest_runtest_logreport(self, report: pytest.TestReport):
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        with self._path.open("a") as file:
            file.write(json.dumps(data) + "\n")


def pytest_configure(config: pytest.Config):
    if _REPORTS in os.environ:
        config.pluginmanager.register(Reporter(config, os.environ.pop(_REPORTS)))


def pytest_collection_modifyitems(items: list[pytest.Item]):
    for item in items:
        if _HERE in item.path.parents and not alone():
            item.add_marker(pytest.mark.timeout(0))  # the child has the time limits


def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    """In the parent: with the first test of a module run all that were chosen of it."""
    if alone() or _HERE not in item.path.parents:
        return None
    reported = item.session.stash.setdefault(_REPORTED, {})
    if item.nodeid not in reported:
        _run_away([other for other in item.session.items if other.path == item.path], reported)
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in reported[item.nodeid]:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def _run_away(items: Sequence[pytest.Item], reported: dict[str, list[pytest.TestReport]]):
    """Run tests in children until each has reports."""
    try:
        command = in_loopback([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"])
    except PermissionError as error:
        for item in items:
            reported[item.nodeid] = [_report(item, "skipped", (str(item.path), 0, f"Skipped: {error}"))]
        return
    while left := [item for item in items if item.nodeid not in reported]:
        ended = _one_child(command, left)
        reported |= ended.complete
        unreported = next((item for item in left if item.nodeid not in reported), None)
        if unreported is not None:
            reported[unreported.nodeid] = [_report(unreported, "failed", ended.how)]


class Ended(NamedTuple):
    """A child that is no more."""

    complete: dict[str, list[pytest.TestReport]]
    """Reports of the tests it came to the end of."""
    how: str


def _one_child(command: Sequence[str], items: Sequence[pytest.Item]) -> Ended:
    config = items[0].config
    folder = config._tmp_path_factory.mktemp("child")
    reports, log = folder / "reports", folder / "log"
    reports.touch()
    with log.open("wb") as output:
        try:
            code = subprocess.run(
                [*command, *(str(config.rootpath / item.nodeid) for item in items)],
                cwd=config.rootpath,
                env={**os.environ, _REPORTS: str(reports)},
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
                timeout=_MODULE_SECONDS,
            ).returncode
        except subprocess.TimeoutExpired:
            code = -signal.SIGKILL
    told = defaultdict[str, list[pytest.TestReport]](list)
    for line in reports.read_text().splitlines():
        report = config.hook.pytest_report_from_serializable(config=config, data=json.loads(line))
        told[report.nodeid].append(report)
    complete = {name: parts for name, parts in told.items() if parts[-1].when == "teardown"}
    how = signal.Signals(-code).name if code < 0 else str(code)
    return Ended(complete, f"the child ended with {how}\n{log.read_text(errors='replace')[-6000:]}")


def _report(item: pytest.Item, outcome: str, why: object) -> pytest.TestReport:
    return pytest.TestReport(item.nodeid, item.location, {}, outcome, why, "call")


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """A master and one storage node, shared by the tests of a module."""
    with closing(Pool(tmp_path_factory.mktemp("pool"))) as pool:
        pool.start()
        yield pool


@pytest.fixture
def own_pool(tmp_path: Path) -> Iterator[Pool]:
    """A pool for one test, which may kill it; nothing is started yet."""
    with closing(Pool(tmp_path)) as pool:
        yield pool
