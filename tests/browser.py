"""A page in headless Chromium at several widths: what is cut off, overlaps, is too small, or fails in its console."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["WIDTHS", "chromium", "faults_of", "missing_browser"]

WIDTHS = (390, 768, 1280)  # pixels: a phone, a tablet, a desk

# What a reader would stumble over, as sentences. Boxes that scroll must show that they do: a shadow at the edge, and a
# first column that stays, of at most three fifths of the box. Figures keep their words inside, apart and legible.
LOOK = r"""
const faults = [], page = document.documentElement;
const name = (el) => `<${el.tagName.toLowerCase()}${el.getAttribute("class") ? " ." + el.getAttribute("class") : ""}> ` +
  (el.textContent || "").trim().replace(/\s+/g, " ").slice(0, 50);
const seen = (el) => el.getClientRects().length > 0 && getComputedStyle(el).visibility !== "hidden";
document.querySelectorAll("details").forEach((d) => { d.open = true; });
if (page.scrollWidth > page.clientWidth) faults.push(`the page scrolls sideways: ${page.scrollWidth} > ${page.clientWidth}`);
for (const el of document.querySelectorAll("body *")) {
  if (el.closest("svg") || el.closest(".unseen") || !seen(el)) continue;
  const style = getComputedStyle(el), box = el.getBoundingClientRect(), wider = el.scrollWidth > el.clientWidth + 1;
  const inside = el.closest(".scroll") !== null;
  if (!inside && (box.right > page.clientWidth + 1 || box.left < -1)) faults.push(`outside the page: ${name(el)}`);
  if (!wider || style.display.startsWith("inline")) continue;
  if (["hidden", "clip"].includes(style.overflowX)) faults.push(`cut off: ${name(el)}`);
  if (["auto", "scroll"].includes(style.overflowX)) {
    const first = el.querySelector("tbody tr > :first-child");
    if (!style.backgroundImage.includes("gradient")) faults.push(`scrolls without a hint: ${name(el)}`);
    else if (!first || getComputedStyle(first).position !== "sticky") faults.push(`first column moves: ${name(el)}`);
    else if (first.offsetWidth > 0.6 * el.clientWidth) faults.push(`first column hides the rest: ${name(el)}`);
  }
}
for (const svg of document.querySelectorAll("svg")) {
  if (!seen(svg)) continue;
  const frame = svg.getBoundingClientRect(), scale = svg.getScreenCTM().a, words = [];
  for (const t of svg.querySelectorAll("text")) {
    const box = t.getBoundingClientRect();
    if (!t.textContent.trim() || box.width === 0) continue;
    const over = Math.max(frame.left - box.left, box.right - frame.right, frame.top - box.top, box.bottom - frame.bottom);
    if (over > 2) faults.push(`outside its figure by ${over.toFixed(0)}: ${name(t)}`);
    const size = parseFloat(getComputedStyle(t).fontSize) * scale;
    if (size < SMALLEST) faults.push(`letters of ${size.toFixed(1)} px: ${name(t)}`);
    if (t.getCTM().b === 0) words.push([t, box]);  // turned words have larger boxes than letters
  }
  for (let i = 0; i < words.length; i++) for (let j = i + 1; j < words.length; j++) {
    const [a, b] = [words[i][1], words[j][1]];
    const w = Math.min(a.right, b.right) - Math.max(a.left, b.left), h = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (w > 2 && h > 0.45 * Math.min(a.height, b.height)) faults.push(`words overlap: ${name(words[i][0])} | ${name(words[j][0])}`);
  }
}
return [...new Set(faults)];
"""
SMALLEST = 8.5  # pixels of a letter's height, as fonts count it


def missing_browser() -> str:
    """Why no browser can be asked, or nothing."""
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "selenium is not installed: pip install 'headcount[dev]'"
    lacking = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"no {' and no '.join(lacking)}: apt-get install chromium chromium-driver" if lacking else ""


@contextlib.contextmanager
def chromium(profile: Path) -> Iterator[Any]:
    """A browser with a profile of its own that reaches no network."""
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    options = ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    quiet = "headless=new no-sandbox disable-gpu disable-dev-shm-usage no-first-run disable-background-networking"
    for word in (*quiet.split(), "hide-scrollbars", f"user-data-dir={profile}", "host-resolver-rules=MAP * ~NOTFOUND"):
        options.add_argument(f"--{word}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options, Service(str(shutil.which("chromedriver"))))
    try:
        yield driver
    finally:
        driver.quit()


def faults_of(driver: Any, page: Path, width: int) -> list[str]:
    """What is wrong with a page at a width, in sentences; nothing where nothing is."""
    sizes = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", sizes)
    driver.get_log("browser")
    driver.get(page.resolve().as_uri())
    found = driver.execute_script(LOOK.replace("SMALLEST", str(SMALLEST)))
    return [*found, *(f"console: {entry['message']}" for entry in driver.get_log("browser"))]
