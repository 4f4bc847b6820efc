"""The page in a real browser: opened from a file, read, used by mouse and keyboard, in both themes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from doctor.browser import Browser, Page, find_chromium
from doctor.example_records import EXAMPLES, PATCH, long_run
from stoker.doctor.report import render_page

CHROMIUM = find_chromium()
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="needs Chromium: apt-get install chromium, or any Chrome on the path"
)
DARK_PAGE = "rgb(13, 16, 21)"
LIGHT_PAGE = "rgb(244, 245, 248)"
GROUND = "getComputedStyle(document.body).backgroundColor"
STEPS = "document.querySelector('#track-steps')"

POOR_CONTRAST = """
(() => {
  const linear = (part) => (part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  const luminance = (colour) => {
    const [r, g, b] = colour.slice(0, 3).map((channel) => linear(channel / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const read = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const colour = read(getComputedStyle(node).backgroundColor);
      if (colour[3] > 250) return colour;
    }
    return read("white");
  };
  const poor = [];
  for (const node of document.querySelectorAll("main *, header *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!own || node.closest("svg, canvas, [hidden]") || !node.checkVisibility()) continue;
    const colours = [read(getComputedStyle(node).color), ground(node)];
    const [dark, bright] = colours.map(luminance).sort((a, b) => a - b);
    const contrast = (bright + 0.05) / (dark + 0.05);
    if (contrast < 4.5) poor.push([node.className || node.tagName, node.textContent, contrast]);
  }
  return poor;
})()
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert CHROMIUM is not None
    with Browser(CHROMIUM, tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    found = {}
    for name, make in {**EXAMPLES, "long": long_run}.items():
        record, diagnosis, comparison = make()
        found[name] = folder / f"{name}.html"
        found[name].write_text(render_page(record, diagnosis, comparison=comparison))
    return found


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with browser.page() as page:
        page.prefer(color_scheme="light", reduced_motion="reduce")
        yield page


def seen_range(page: Page) -> tuple[int, int]:
    begin, end = page.run(
        "['begin', 'end'].map(key => Number(document.querySelector('#tracks').dataset[key]))"
    )
    return begin, end


@pytest.mark.parametrize("name", [*sorted(EXAMPLES), "long"])
def test_it_opens_without_complaint_asks_for_nothing_and_fits_a_phone(
    page: Page, files: dict[str, Path], name: str
) -> None:
    page.open(files[name])
    assert page.run("document.querySelector('h1').innerText.length") > 20
    page.run("document.querySelectorAll('details').forEach(each => { each.open = true })")
    page.resize(width=360, height=780)
    page.settle()
    assert page.run("[innerWidth, document.documentElement.scrollWidth]") == [360, 360]
    assert page.complaints() == []
    assert {url for url in page.requests() if not url.startswith("data:")} == {files[name].as_uri()}


def test_hostile_strings_run_nothing(page: Page, files: dict[str, Path]) -> None:
    page.open(files["hostile"])
    page.run("document.querySelectorAll('details').forEach(each => { each.open = true })")
    page.run(f"{STEPS}.focus()")
    page.press("ArrowRight", "s")
    lanes = page.box("#track-lanes")
    page.run("document.querySelector('#track-lanes').scrollIntoView({block: 'center'})")
    page.move(*page.box("#track-lanes").at(0.4, 30 / lanes.height))
    page.settle()
    assert page.run("document.querySelectorAll('img').length") == 0
    assert page.run("document.scripts.length") == 2
    assert page.complaints() == []


def test_the_theme_follows_the_system_until_the_button_says_otherwise(
    page: Page, files: dict[str, Path]
) -> None:
    page.prefer(color_scheme="dark")
    page.open(files["input-bound"])
    assert page.run(GROUND) == DARK_PAGE
    assert page.run("document.querySelector('#theme').getAttribute('aria-pressed')") == "true"
    before = page.run(f"{STEPS}.toDataURL()")
    page.click("#theme")
    assert page.run(GROUND) == LIGHT_PAGE
    assert page.run(f"{STEPS}.toDataURL()") != before
    page.click("#theme")
    assert page.run(GROUND) == DARK_PAGE
    assert page.complaints() == []


def test_the_timeline_goes_by_keyboard(page: Page, files: dict[str, Path]) -> None:
    page.open(files["input-bound"])
    value = f"{STEPS}.getAttribute('aria-valuetext')"
    page.run(f"{STEPS}.focus({{focusVisible: true}})")
    assert page.run(f"getComputedStyle({STEPS}).outlineStyle") == "solid"
    page.press("ArrowRight")
    assert page.run(value).startswith("Step 1, ")
    page.press("ArrowRight", "ArrowRight", "ArrowLeft")
    assert page.run(value).startswith("Step 2, ")
    assert page.run("document.querySelector('#tooltip').hidden") is False
    page.press("End")
    assert page.run(value).startswith("Step 94, ")
    page.press("Home", "s")
    assert page.run(value).startswith("Step 23, ")
    assert "a stall" in page.run(value)
    whole = seen_range(page)
    page.press("+")
    begin, end = seen_range(page)
    assert end - begin == pytest.approx((whole[1] - whole[0]) / 2, rel=0.01)
    assert "Step 23: 2" in page.run("document.querySelector('#tooltip').innerText")
    page.press("0")
    assert seen_range(page)[0] == 0
    page.press("Escape")
    assert page.run("document.querySelector('#tooltip').hidden") is True


def test_the_timeline_zooms_by_dragging_and_by_its_buttons(page: Page, files: dict[str, Path]) -> None:
    page.open(files["input-bound"])
    page.run("document.querySelector('#run').scrollIntoView()")
    page.settle()
    begin, end = seen_range(page)
    box = page.box("#track-steps")
    page.drag(box.at(0.5, 0.5), box.at(0.7, 0.5))
    narrow = seen_range(page)
    assert narrow[0] > begin + (end - begin) * 0.3
    assert narrow[1] < begin + (end - begin) * 0.8
    box = page.box("#track-overview")
    page.drag(box.at(0.6, 0.5), box.at(0.3, 0.5))
    assert seen_range(page)[0] < narrow[0]
    page.click("[data-action=out]")
    assert seen_range(page)[1] - seen_range(page)[0] > narrow[1] - narrow[0]
    page.click("[data-action=all]")
    assert seen_range(page) == (begin, end)
    page.click("[data-action=stall]")
    assert "Step 23" in page.run(f"{STEPS}.getAttribute('aria-valuetext')")


def test_pointing_at_a_row_says_what_happened_there(page: Page, files: dict[str, Path]) -> None:
    page.open(files["input-bound"], height=1200)
    page.run("document.querySelector('#run').scrollIntoView()")
    page.settle()
    told = {}
    for track, down in {"steps": 0.7, "lanes": 0.5, "memory": 0.5, "cores": 0.2}.items():
        page.move(*page.box(f"#track-{track}").at(0.6, down))
        page.settle()
        told[track] = page.run("document.querySelector('#tooltip').innerText")
    assert told["steps"].startswith("Step ")
    assert "waiting for data" in told["steps"]
    assert told["lanes"].startswith("worker 0: ")
    assert told["memory"].startswith("Memory: 3.")
    assert "of 8 cores used" in told["cores"]


def test_details_open_and_a_patch_is_copied_as_it_is(page: Page, files: dict[str, Path]) -> None:
    page.open(files["input-bound"])
    page.run("document.querySelector('.advice summary').focus()")
    page.press("Enter")
    assert page.run("document.querySelector('.advice details').open") is True
    page.run("navigator.clipboard.writeText = async (text) => { globalThis.copied = text }")
    page.click(".advice button.copy")
    assert page.run("globalThis.copied") == PATCH
    assert page.run("document.querySelector('.advice button.copy').innerText") == "Copied"


def test_every_control_is_reached_in_order_and_can_be_seen(page: Page, files: dict[str, Path]) -> None:
    page.open(files["input-bound"])
    reached = []
    for _ in range(60):
        page.press("Tab")
        at = page.run(
            "(at => [at.id || at.innerText.slice(0, 20), getComputedStyle(at).outlineStyle])"
            "(document.activeElement)"
        )
        reached.append(at)
        if at[0] == "track-steps":
            break
    names = [name for name, _ in reached]
    assert names[0] == "To the verdict"
    assert names[1] == "theme"
    assert {"Before and after", "Patch", "track-steps"} <= set(names)
    assert {outline for _, outline in reached} == {"solid"}


def test_text_stands_out_from_its_ground_in_both_themes(page: Page, files: dict[str, Path]) -> None:
    page.open(files["input-bound"])
    page.run("document.querySelectorAll('details').forEach(each => { each.open = true })")
    assert page.run(POOR_CONTRAST) == []
    page.click("#theme")
    assert page.run(POOR_CONTRAST) == []


def test_every_drawing_has_a_name_and_a_table_beside_it(page: Page, files: dict[str, Path]) -> None:
    page.open(files["input-bound"])
    unnamed = "[...document.querySelectorAll('canvas, svg[role=img], button, [role=region]')]"
    assert page.run(f"{unnamed}.filter(each => !each.ariaLabel && !each.textContent).length") == 0
    captions = page.run("[...document.querySelectorAll('#run caption')].map(each => each.textContent)")
    assert captions == ["Steps by phase", "Longest steps", "Pauses between steps", "Memory and cores"]


def test_a_long_run_is_drawn_within_a_few_frames(page: Page, files: dict[str, Path]) -> None:
    page.open(files["long"])
    page.run(f"{STEPS}.focus()")
    page.press("End", "+", "+", "ArrowLeft")
    assert page.run(f"{STEPS}.getAttribute('aria-valuetext')").startswith("Step")
    # how long painting takes is no test; that it stays little is what thinning is for
    assert page.run("JSON.parse(document.querySelector('#over-time').textContent).steps.first.length") < 3500
    assert page.complaints() == []


def test_without_a_script_the_tables_are_there(browser: Browser, tmp_path: Path) -> None:
    record, diagnosis, _ = EXAMPLES["input-bound"]()
    text = render_page(record, diagnosis)
    file = tmp_path / "page.html"
    file.write_text(text.replace("script-src 'sha256-", "script-src 'sha256-X"))  # the policy now refuses it
    with browser.page() as page:
        page.open(file)
        assert page.run("getComputedStyle(document.querySelector('#tracks')).display") == "none"
        assert page.run("document.querySelector('.without-script').checkVisibility()") is True
        assert page.run("document.querySelector('#run table').rows.length") == 5
