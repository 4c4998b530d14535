"""The HTML report in a real browser: Chromium without a window, by Playwright."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import Cli
from tests.test_trials_views import EXAMPLE, TRIALS, record

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        pytest.skip("needs playwright (the extra 'browser')")
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    path = next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.skip("needs Chromium on the PATH (Debian: apt-get install chromium)")
    with sync_playwright() as playwright:
        # The sandbox of the browser needs rights that a container seldom has.
        found = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("report") / "report.html"


@pytest.fixture
def page(browser: Browser, report: Path, cli: Cli) -> Iterator[Page]:
    """The campaign's report, at the width of a desk; any request but the first is noted."""
    if not report.exists():
        cli(
            *("trial", "report", "--format", "html", "--output", report),
            *("--trials", TRIALS, "--facts", EXAMPLE / "facts.json"),
        )
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    found = context.new_page()
    found.goto(report.as_uri())
    yield found
    context.close()


def _names(page: Page) -> list[str]:
    found = page.locator("tbody th").evaluate_all("cells => cells.map(c => c.firstChild.data)")
    return [str(name) for name in found]


def test_the_page_asks_for_nothing_and_logs_nothing(
    browser: Browser, report: Path, page: Page
) -> None:
    context = browser.new_context()
    fresh = context.new_page()
    asked: list[str] = []
    said: list[str] = []
    fresh.on("request", lambda request: asked.append(request.url))
    fresh.on("console", lambda message: said.append(message.text))
    fresh.on("pageerror", lambda error: said.append(str(error)))
    fresh.goto(report.as_uri())
    fresh.get_by_role("button", name="verdict").click()
    fresh.wait_for_load_state("networkidle")
    context.close()
    assert asked == [report.as_uri()]
    assert said == []


def test_the_chart_is_drawn_with_a_name_and_every_run_has_its_own(page: Page) -> None:
    chart = page.get_by_role("img", name="Every run against the baseline")
    assert chart.count() == 1  # the one of the other width is hidden
    box = chart.bounding_box()
    assert box is not None and box["width"] > 900 and box["height"] > 150
    titles = chart.locator("g.mark > title").all_text_contents()
    assert "cuda-graph-max-bs-128, win: 89.5 tok/s, +9.1 % against 82, 1 run" in titles
    assert len(titles) == 5
    assert "pcie-custom-allreduce, dead-end: 38 tok/s" in (
        chart.locator("desc").text_content() or ""
    )
    # What is better stands to the right of what is worse.
    places = {
        title.split(",")[0]: mark.locator("use").first.bounding_box()
        for title, mark in zip(titles, chart.locator("g.mark").all(), strict=True)
    }
    across = {name: box["x"] for name, box in places.items() if box is not None}
    assert across["cuda-graph-max-bs-128"] > across["baseline"] > across["eagle-3"]
    assert across["eagle-3"] > across["eagle-3-on-bs-128"] > across["pcie-custom-allreduce"]


@pytest.mark.parametrize("key", ["Enter", "Space"])
def test_the_table_sorts_by_the_keyboard_alone(page: Page, key: str) -> None:
    first = _names(page)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "#"
    for _ in range(3):
        page.keyboard.press("Tab")
    page.keyboard.press(key)
    rising = _names(page)
    assert rising[:5] == [
        *("pcie-custom-allreduce", "eagle-3-on-bs-128", "eagle-3", "baseline"),
        "cuda-graph-max-bs-128",
    ]
    # Those without a figure stay last, in both directions.
    assert set(rising[5:]) == set(first) - set(rising[:5])
    heading = page.get_by_role("columnheader", name="throughput [tok/s]")
    assert heading.get_attribute("aria-sort") == "ascending"
    page.keyboard.press(key)
    assert _names(page)[:2] == ["cuda-graph-max-bs-128", "baseline"]
    assert heading.get_attribute("aria-sort") == "descending"
    for _ in range(3):
        page.keyboard.press("Shift+Tab")
    page.keyboard.press(key)
    assert _names(page) == first


def test_everything_has_a_role_and_a_name(page: Page) -> None:
    assert page.get_by_role("heading", level=1).inner_text() == "What was tried: 14 trials"
    assert [h.inner_text() for h in page.get_by_role("heading", level=2).all()] == [
        *("Every run against the baseline", "In the order tried"),
        *("What would reopen a trial", "Left to try"),
    ]
    assert page.get_by_role("table", name="A heading sorts by its column.").count() == 1
    assert page.get_by_role("columnheader").count() == 6
    assert page.get_by_role("rowheader").count() == 14
    for button in page.get_by_role("button").all():
        assert (button.text_content() or "").strip()
    assert page.locator("html").get_attribute("lang") == "en"


#: The ratio of WCAG 2.2 (1.4.3) for what is read, of every element with text of its own.
_CONTRAST = """
() => {
  const part = (v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  const light = (c) => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number);
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b); };
  const paper = light(getComputedStyle(document.body).backgroundColor);
  const found = {};
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!own || element.closest("script, title, desc, style")) continue;
    const style = getComputedStyle(element);
    const ink = light(element.namespaceURI.endsWith("svg") ? style.fill : style.color);
    const ratio = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    if (ratio < 4.5) found[element.tagName + ": " + element.textContent.trim()] = ratio;
  }
  return found;
}
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 390])
def test_it_is_legible_in_light_and_dark_on_a_desk_and_a_telephone(
    page: Page, scheme: Any, width: int
) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 800})
    assert page.evaluate(_CONTRAST) == {}
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 23, 27)")
    # Nothing is wider than the screen, and no text of the chart is too small to read.
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    chart = page.get_by_role("img", name="Every run against the baseline")
    assert chart.count() == 1
    heights = chart.locator("text").evaluate_all(
        "all => all.map(t => t.getBoundingClientRect().height)"
    )
    assert min(heights) >= 9
    box, edges = (
        chart.bounding_box(),
        chart.locator("text").evaluate_all(
            "all => all.map(t => [t.getBoundingClientRect().left, t.getBoundingClientRect().right])"
        ),
    )
    assert box is not None
    assert all(
        box["x"] - 1 <= left and right <= box["x"] + box["width"] + 1 for left, right in edges
    )


def test_on_a_telephone_the_table_is_still_one(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.get_by_role("columnheader").count() == 6
    assert page.get_by_role("rowheader", name="sm120-fusion").is_visible()
    page.get_by_role("button", name="verdict").click()
    assert _names(page)[0] == "baseline"


def test_it_prints(page: Page) -> None:
    page.emulate_media(media="print")
    assert page.get_by_role("img", name="Every run against the baseline").count() == 1
    pdf = page.pdf(format="A4")
    assert pdf.startswith(b"%PDF") and len(pdf) > 10_000


def test_a_chart_of_many_trials_is_columns_of_dots(
    browser: Browser, cli: Cli, tmp_path: Path
) -> None:
    folder = tmp_path / "trials"
    folder.mkdir()
    for number in range(80):
        one = record(
            f"trial-{number}",
            number,
            figures=(100.0 + number, 101.0 + number),
            base=(100.0,),
            verdict="win" if number % 2 else "loss",
        )
        (folder / f"{one['id']}.json").write_text(json.dumps(one))
    file = tmp_path / "report.html"
    cli("trial", "report", "--format", "html", "-o", file, "--trials", folder)
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    shown = context.new_page()
    shown.goto(file.as_uri())
    chart = shown.get_by_role("img", name="Every run against the baseline")
    assert chart.locator("g.mark > title").all_text_contents() == [
        "loss: 40 trials",
        "win: 40 trials",
    ]
    assert chart.locator("g.mark use").count() == 160
    context.close()


@pytest.mark.parametrize("unit", ["$", "$^$", "tok/$_{", "ms\x1b[31m\n\0", "毫秒"])
def test_a_chart_is_drawn_whatever_a_unit_is(cli: Cli, tmp_path: Path, unit: str) -> None:
    one = record("one", verdict="win", figures=(2.0, 3.0), base=(1.0,))
    one["metrics"] = {"throughput": {"unit": unit, "better": "higher"}}
    # Compared, and without a run that has the figure.
    bare = record("bare", 2, verdict="loss", base=(1.0,))
    compared = {"baseline": 1.0, "candidate": 2.0, "ratio": 2.0, "interval": None, "n": [1, 1]}
    compared |= {"confidence": 0.95, "beyond_noise": False}
    bare["comparison"] = {"throughput": compared}
    for each in (one, bare):
        (tmp_path / f"{each['id']}.json").write_text(json.dumps(each))
    out = tmp_path / "report.html"
    given = ("--trials", tmp_path, "--facts", EXAMPLE / "facts.json")
    done = cli("trial", "report", "--format", "html", "--output", out, *given)
    assert "<title>one, win: 2.5" in out.read_text() and "Glyph" not in done.stderr
