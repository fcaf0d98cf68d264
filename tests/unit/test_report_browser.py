"""The HTML report in a real browser: drawn, filtered, reached by keyboard, nothing loaded."""

import os
import re
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

pytest.importorskip("plotly", reason="Plotly is not installed")
pytest.importorskip("pygments", reason="Pygments is not installed")
selenium = pytest.importorskip("selenium", reason="Selenium is not installed")

from selenium import webdriver  # noqa: E402
from selenium.common.exceptions import WebDriverException  # noqa: E402
from selenium.webdriver.chrome.options import Options  # noqa: E402
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.wait import WebDriverWait  # noqa: E402

from autogemm.insight.report import bench_report, database_report, render_page  # noqa: E402
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
                By.CSS_SELECTOR, ".main-svg[aria-hidden] .xtitle"
            )
        )
    return [str(figure.get_attribute("data-plot")) for figure in figures]


def drawn_points(browser: Browser, plot: str, trace: int = 0) -> list[float]:
    script = f"return document.querySelector('[data-plot={plot}] .drawing').data[{trace}].x"
    points: list[float] = browser.execute_script(script)
    return points


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
    assert len(drawn_points(browser, "history")) == 297


def test_hostile_names_stay_text(browser: Browser, run_url: str) -> None:
    browser.get(run_url)
    draw_all(browser)
    assert browser.title == f"4096 nn f32 on {HOSTILE}"
    assert HOSTILE in browser.find_element(By.TAG_NAME, "h1").text
    assert browser.execute_script("return window.taken") is None
    assert not browser.find_elements(By.CSS_SELECTOR, "img, main b, main script")
    box = browser.find_element(By.CSS_SELECTOR, "[data-plot=parameter] select")
    box.send_keys(Keys.HOME, Keys.ARROW_DOWN)
    ticks = browser.find_elements(By.CSS_SELECTOR, "[data-plot=parameter] .xtick text")
    assert HOSTILE in [tick.get_attribute("textContent") for tick in ticks]


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
    assert len(drawn_points(browser, "history")) == kept
    assert len(drawn_points(browser, "distribution")) == kept
    browser.find_element(By.ID, "reset").click()
    assert box.is_selected()
    assert len(drawn_points(browser, "history")) == 297


def test_choices_of_a_plot(browser: Browser, run_url: str) -> None:
    browser.get(run_url)
    draw_all(browser)
    box = browser.find_element(By.CSS_SELECTOR, "[data-plot=history] select")
    box.send_keys(Keys.ARROW_DOWN)
    assert max(drawn_points(browser, "history")) == pytest.approx(0.07 * 298, abs=0.01)
    box = browser.find_element(By.CSS_SELECTOR, "[data-plot=heatmap] select[name=x]")
    before = browser.find_element(By.CSS_SELECTOR, "[data-plot=heatmap] .xtitle").text
    box.send_keys(Keys.ARROW_DOWN)
    after = browser.find_element(By.CSS_SELECTOR, "[data-plot=heatmap] .xtitle").text
    assert before != after


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

    def brightness() -> tuple[int, int]:
        page = browser.find_element(By.TAG_NAME, "body").value_of_css_property("background-color")
        script = (
            "return document.querySelector('[data-plot=history] .drawing').layout.paper_bgcolor"
        )
        plot = str(browser.execute_script(script))
        red = re.findall(r"\d+", page)[0]
        return int(red), int(plot.lstrip("#")[:2], 16)

    assert brightness() == (255, 255)
    emulate(browser, "dark")
    WebDriverWait(browser, PATIENCE_S).until(lambda _: max(brightness()) < 60)


def test_a_benchmark_is_drawn(browser: Browser, bench_url: str) -> None:
    browser.get(bench_url)
    assert draw_all(browser) == ["ladder", "sizes", "roofline"]
    assert errors(browser) == []
    assert drawn_points(browser, "ladder")[::-1][2] == pytest.approx(2 * 1024**3 / 80 * 1e-3, 1e-3)
    assert drawn_points(browser, "sizes") == ["512x256x64", "1024"]


def test_speeds_within_one_decade_have_numbers_beside_them(
    browser: Browser, tmp_path: Path
) -> None:
    with new_store(tmp_path) as store:
        fill(store)
        page = database_report(store, BestQuery(gpu="h100"))
    (tmp_path / "winners.html").write_bytes(render_page(page))
    browser.get((tmp_path / "winners.html").as_uri())
    draw_all(browser)
    numbers = browser.find_elements(By.CSS_SELECTOR, "[data-plot=sizes] .ytick text")
    assert len(numbers) > 2


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
    # About 0.2 s, and 0.9 s more where Plotly has to be compiled.
    assert busy_s(browser) - before_s < 4
    assert "9900 of 9900 configs" in browser.find_element(By.ID, "matching").text
    assert draw_all(browser) == RUN_PLOTS
    assert errors(browser) == []
    assert len(drawn_points(browser, "history")) == 9900
