"""The HTML report in a real browser: drawn, filtered, reached by keyboard, nothing loaded."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bench_samples import fill_bench
from report_samples import PARAMETERS, many_trials
from store_samples import H100, fill, new_store
from waiting import PATIENCE_S

from autogemm.insight.analysis import RunTrials
from autogemm.insight.explain import Missing

pytest.importorskip("pygments", reason="Pygments is not installed")
selenium = pytest.importorskip("selenium", reason="Selenium is not installed")

from selenium import webdriver  # noqa: E402
from selenium.common.exceptions import WebDriverException  # noqa: E402
from selenium.webdriver.chrome.options import Options  # noqa: E402
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.wait import WebDriverWait  # noqa: E402

from autogemm.catalogue.palette import DARK, LIGHT  # noqa: E402
from autogemm.insight.report import (  # noqa: E402
    bench_report,
    database_report,
    render_page,
    run_report,
)
from autogemm.insight.report.run import run_page  # noqa: E402
from autogemm.store import BestQuery  # noqa: E402

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
HOSTILE = "<script>window.taken=1</script><img src=x onerror='window.taken=1'><b>$x"
RUN_PLOTS = ["history", "distribution", "importance", "parameter", "heatmap"]

Browser = webdriver.Chrome


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    driver = shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("no Chromium with a chromedriver is installed")
    options = Options()
    options.binary_location = program
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # A home of its own, and sockets whose paths are short.
    home = str(tmp_path_factory.mktemp("home"))
    surroundings = {**os.environ, "HOME": home, "TMPDIR": "/tmp"}
    try:
        opened = webdriver.Chrome(options=options, service=Service(driver, env=surroundings))
    except WebDriverException as error:
        # Not the report's doing: no page has been opened.
        pytest.skip(f"Chromium does not start: {(error.msg or '').splitlines()[:1]}")
    yield opened
    opened.quit()


@pytest.fixture(autouse=True)
def desktop(browser: Browser) -> None:
    look_from(browser, 1200, 900)
    emulate(browser, "light")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reports")


def write(folder: Path, name: str, trials: RunTrials) -> str:
    path = folder / f"{name}.html"
    if not path.exists():
        path.write_bytes(render_page(run_page(trials, None, Missing("not asked for"))))
    return path.as_uri()


@pytest.fixture(scope="module")
def run_url(folder: Path) -> str:
    return write(folder, "run", many_trials(300, replace(H100, name=HOSTILE), HOSTILE))


@pytest.fixture(scope="module")
def bench_url(folder: Path) -> str:
    path = folder / "bench.html"
    with new_store(folder) as store:
        path.write_bytes(render_page(bench_report(store, fill_bench(store))))
    return path.as_uri()


def look_from(browser: Browser, width: int, height: int) -> None:
    facts = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", facts)


def emulate(browser: Browser, scheme: str) -> None:
    # Without motion nothing is on its way when it is clicked.
    wanted = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
    features = [{"name": name, "value": value} for name, value in wanted.items()]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def draw_all(browser: Browser) -> list[str]:
    """Scroll through the page; the names of the plots, each of which is drawn."""
    figures = browser.find_elements(By.CSS_SELECTOR, "figure.plot")
    for figure in figures:
        browser.execute_script("arguments[0].scrollIntoView({behavior: 'instant'})", figure)
        WebDriverWait(browser, PATIENCE_S, poll_frequency=0.05).until(
            lambda _, figure=figure: figure.find_elements(
                By.CSS_SELECTOR, ".drawing svg[role=img][aria-label]"
            )
        )
    return [str(figure.get_attribute("data-plot")) for figure in figures]


def num_dots(browser: Browser) -> int:
    """How many configs the history shows; without its tooltips."""
    script = "return document.querySelectorAll('[data-plot=history] g[aria-label=dot] > *').length"
    return int(browser.execute_script(script))


def cells(browser: Browser, plot: str, row: int = 1) -> list[str]:
    """A row of the table below a plot."""
    script = (
        f"return [...document.querySelectorAll('[data-plot={plot}] details tbody "
        f"tr:nth-child({row}) td')].map((cell) => cell.textContent)"
    )
    found: list[str] = browser.execute_script(script)
    return found


def shown(browser: Browser, plot: str) -> str:
    """The texts in a drawing."""
    script = f"return document.querySelector('[data-plot={plot}] .drawing svg').textContent"
    return str(browser.execute_script(script))


def errors(browser: Browser) -> list[dict[str, Any]]:
    return [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]


def test_a_run_is_drawn_without_an_error_or_a_request(browser: Browser, run_url: str) -> None:
    browser.get(run_url)
    assert draw_all(browser) == RUN_PLOTS
    assert errors(browser) == []
    assert browser.execute_script("return performance.getEntriesByType('resource')") == []
    for plot in RUN_PLOTS:
        rows = f"[data-plot={plot}] details tbody tr"
        assert browser.find_elements(By.CSS_SELECTOR, rows), plot
    assert num_dots(browser) == 297
    label = browser.find_element(By.CSS_SELECTOR, "[data-plot=history] svg").get_attribute(
        "aria-label"
    )
    assert label is not None
    assert label.startswith("297 configs; the best so far rises in ")


def test_hostile_names_stay_text(browser: Browser, run_url: str) -> None:
    browser.get(run_url)
    draw_all(browser)
    assert browser.title == f"4096 nn f32 on {HOSTILE}"
    assert HOSTILE in browser.find_element(By.TAG_NAME, "h1").text
    assert browser.execute_script("return window.taken") is None
    assert not browser.find_elements(By.CSS_SELECTOR, "img, main b, main script")
    box = browser.find_element(By.CSS_SELECTOR, "[data-plot=parameter] select")
    box.send_keys(Keys.HOME, Keys.ARROW_DOWN)
    assert HOSTILE[:19] in shown(browser, "parameter")


def test_the_filter_narrows_every_plot(browser: Browser, run_url: str) -> None:
    browser.get(run_url)
    draw_all(browser)
    browser.find_element(By.CSS_SELECTOR, "#filter summary").click()
    place = list(PARAMETERS).index("P00")
    box = browser.find_element(By.CSS_SELECTOR, f"#filter input[name='{place}'][value='0']")
    assert box.is_selected()
    box.click()
    ran = [trial.outcome.config["P00"] for trial, _ in many_trials(300).measured()]
    kept = len(ran) - ran.count(PARAMETERS["P00"][0])
    assert 0 < kept < len(ran)
    status = browser.find_element(By.ID, "matching").text
    assert status.startswith(f"{kept} of 297 configs that ran match; the best of them: ")
    assert num_dots(browser) == kept
    browser.find_element(By.ID, "reset").click()
    assert box.is_selected()
    assert num_dots(browser) == 297


def test_choices_of_a_plot(browser: Browser, run_url: str) -> None:
    browser.get(run_url)
    draw_all(browser)
    box = browser.find_element(By.CSS_SELECTOR, "[data-plot=history] select")
    box.send_keys(Keys.ARROW_DOWN)
    assert "seconds since the run began" in shown(browser, "history")
    box = browser.find_element(By.CSS_SELECTOR, "[data-plot=heatmap] select[name=x]")
    before = shown(browser, "heatmap")
    box.send_keys(Keys.ARROW_DOWN)
    assert shown(browser, "heatmap") != before


def test_the_keyboard_reaches_all_and_all_has_a_name(browser: Browser, run_url: str) -> None:
    browser.get(run_url)
    draw_all(browser)
    browser.get(run_url)
    browser.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB)
    skip = browser.switch_to.active_element
    assert skip.text == "Skip to the report"
    assert skip.rect["x"] >= 0
    assert "solid" in skip.value_of_css_property("outline-style")
    skip.send_keys(Keys.ENTER)
    assert browser.switch_to.active_element.tag_name == "main"
    draw_all(browser)
    script = "return [...document.querySelectorAll('input, select')].map(e => e.labels.length)"
    assert set(browser.execute_script(script)) == {1}
    tree = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    nodes = [node for node in tree if not node["ignored"]]
    roles = {node["role"]["value"] for node in nodes}
    assert {"banner", "navigation", "main", "contentinfo", "table", "status", "figure"} <= roles
    nameless = [
        node
        for node in nodes
        if node["role"]["value"] in ("image", "button", "combobox", "checkbox", "region", "link")
        and not node["name"]["value"]
    ]
    assert nameless == []


@pytest.mark.parametrize("kind", ["run", "bench"])
def test_a_phone_shows_all_of_it(browser: Browser, run_url: str, bench_url: str, kind: str) -> None:
    look_from(browser, 360, 740)
    browser.get(run_url if kind == "run" else bench_url)
    draw_all(browser)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 360
    assert errors(browser) == []


def test_dark_and_light(browser: Browser, run_url: str) -> None:
    browser.get(run_url)
    draw_all(browser)

    def colours() -> tuple[str, str]:
        script = "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]"
        dot = "[data-plot=history] g[aria-label=line] path"
        page = browser.execute_script(script, "body", "backgroundColor")
        return str(page), str(browser.execute_script(script, dot, "stroke"))

    def written(*names: str) -> tuple[str, ...]:
        return tuple(f"rgb{tuple(bytes.fromhex(name[1:]))}" for name in names)

    assert colours() == written(LIGHT.ground, LIGHT.own)
    emulate(browser, "dark")
    WebDriverWait(browser, PATIENCE_S).until(lambda _: colours() == written(DARK.ground, DARK.own))
    # Paper is light, and as wide as it is.
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    browser.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert colours() == written(LIGHT.ground, LIGHT.own)
    widths = (
        "return [...document.querySelectorAll('.drawing svg')]"
        ".map((one) => one.width.baseVal.value)"
    )
    assert set(browser.execute_script(widths)) == {680}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_meanings_by_keyboard_and_a_copy_of_the_source(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with new_store(tmp_path) as store:
        fill(store)
        page = run_report(store, BestQuery(run_id=1), None)
    (tmp_path / "meant.html").write_bytes(render_page(page))
    browser.get((tmp_path / "meant.html").as_uri())
    note = browser.find_element(By.ID, "meaning")
    assert not note.is_displayed()
    term = browser.find_element(By.CSS_SELECTOR, "#finals ~ div .term")
    browser.execute_script("arguments[0].focus()", term)
    assert note.text == f"{term.text}: {term.get_attribute('title')}"
    assert len(note.text) > 15
    term.send_keys(Keys.ESCAPE)
    assert not note.is_displayed()
    origin = {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    browser.execute_cdp_cmd("Browser.grantPermissions", origin)
    button = browser.find_element(By.CSS_SELECTOR, "button.copy")
    button.click()
    WebDriverWait(browser, PATIENCE_S).until(lambda _: button.text == "Copied")
    copied = browser.execute_async_script("navigator.clipboard.readText().then(arguments[0])")
    source = browser.find_element(By.ID, "code").get_attribute("textContent")
    assert (copied, len(copied) > 10) == (source, True)


def test_a_benchmark_is_drawn(browser: Browser, bench_url: str) -> None:
    browser.get(bench_url)
    assert draw_all(browser) == ["ladder", "shares", "sizes", "roofline"]
    assert errors(browser) == []
    assert cells(browser, "ladder", 3)[:3] == ["kernel 1", "80", "26,840"]
    assert all(size in shown(browser, "sizes") for size in ("512x256x64", "1024"))
    # A panel a kernel, with its name; a number a kernel and size.
    panels = "[data-plot=sizes] g[aria-label=text]"
    names = browser.find_elements(By.CSS_SELECTOR, f"{panels} text")
    assert [name.text for name in names] == ["naive", "tiled", "kernel 1", "cublas_f32"]
    numbers = browser.find_elements(By.CSS_SELECTOR, "[data-plot=shares] g[aria-label=text] text")
    assert len(numbers) == 8


def test_speeds_within_one_decade_have_numbers_beside_them(
    browser: Browser, tmp_path: Path
) -> None:
    with new_store(tmp_path) as store:
        fill(store)
        page = database_report(store, BestQuery(gpu="h100"))
    (tmp_path / "winners.html").write_bytes(render_page(page))
    browser.get((tmp_path / "winners.html").as_uri())
    draw_all(browser)
    box = browser.find_element(By.CSS_SELECTOR, "[data-plot=sizes] select")
    box.send_keys(Keys.END)
    script = (
        "return new Set([...document.querySelectorAll('[data-plot=sizes] "
        "[aria-label^=y-axis] text')].map((one) => one.textContent)).size"
    )
    assert browser.execute_script(script) > 2


def busy_s(browser: Browser) -> float:
    metrics = browser.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    found: dict[str, float] = {metric["name"]: metric["value"] for metric in metrics}
    return found["TaskDuration"]


def test_ten_thousand_trials_open_soon(browser: Browser, folder: Path) -> None:
    url = write(folder, "many", many_trials(10_000))
    # The time of the page's thread on a core, whatever else runs.
    browser.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
    before_s = busy_s(browser)
    browser.get(url)
    script = "return performance.getEntriesByName('first-contentful-paint').length"
    WebDriverWait(browser, PATIENCE_S).until(lambda _: browser.execute_script(script))
    # About 0.2 s, and the libraries.
    assert busy_s(browser) - before_s < 4
    assert "9900 of 9900 configs" in browser.find_element(By.ID, "matching").text
    assert draw_all(browser) == RUN_PLOTS
    assert errors(browser) == []
    assert num_dots(browser) == 9900
