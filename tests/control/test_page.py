"""The controller's page in a real browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Page, sync_playwright

from sgkv.control.models import Lookup
from tests.control.conftest import DIGEST_A, HASHES, Controller, came, report, token_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser_page() -> Iterator[Page]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert chromium, "this needs a Chromium: apt-get install chromium (`make test-tools` does)"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.set_default_timeout(15_000)
        yield page
        browser.close()


def test_the_fleet_is_shown_to_who_has_a_token(browser_page: Page, fleet: Controller) -> None:
    page, complaints = browser_page, []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    counts = {
        "hit_pages": {"memory": 75},
        "miss_pages": {"absent": 25},
        "usage": {"memory": (1 << 30, 4 << 30)},
    }
    fleet.report(report("one", 1, **counts))
    for _ in range(3):
        fleet["reader"].lookup(Lookup(namespace=DIGEST_A, hashes=tuple(HASHES)))
    page.goto(fleet.url)
    assert page.locator("main").is_hidden()
    page.get_by_label("Token").fill(token_of("reader"))
    page.get_by_role("button", name="Show").click()
    row = page.locator("#fleet tr", has_text="one")
    row.wait_for()
    assert row.locator("td").all_inner_texts()[2:5] == ["75.0 %", "75", "absent 25"]
    tier = page.locator("#tiers tr", has_text="memory").first.locator("td").all_inner_texts()
    assert tier[3:6] == ["1.0 GiB", "4.0 GiB", "25.0 %"]
    assert page.locator("#prefixes td").all_inner_texts() == [DIGEST_A, HASHES[-1], "128", "3"]
    assert page.locator("#namespaces tr").count() == 3
    assert complaints == []


def test_a_wrong_token_is_told_so_and_shows_nothing(browser_page: Page, fleet: Controller) -> None:
    browser_page.goto(fleet.url)
    browser_page.get_by_label("Token").fill("a token that nobody has")
    browser_page.get_by_role("button", name="Show").click()
    browser_page.get_by_text("show a token").wait_for()
    assert browser_page.locator("main").is_hidden()


def test_names_are_text_whatever_they_look_like(browser_page: Page, controller: Controller) -> None:
    evil = "<img src=x onerror=alert(1)>"
    controller.report(report(evil, changes=[came(DIGEST_A, 1)]))
    browser_page.goto(controller.url)
    browser_page.get_by_label("Token").fill(token_of("reader"))
    browser_page.get_by_role("button", name="Show").click()
    browser_page.get_by_role("cell", name=evil).first.wait_for()
    assert browser_page.locator("img").count() == 0


def test_the_page_may_load_nothing_from_elsewhere(controller: Controller) -> None:
    for path in ("/", "/page.js", "/page.css"):
        answer = httpx.get(controller.url + path)
        assert answer.status_code == 200
        assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert httpx.get(f"{controller.url}/page/../api.py").status_code == 401
