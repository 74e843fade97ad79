"""A page in headless Chromium at several widths: what is cut off, overlaps, is too small, or fails in its console."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["WIDTHS", "chromium", "faults_of", "missing_browser"]

WIDTHS = (390, 768, 1280)  # pixels: a phone, a tablet, a desk

LOOK = (Path(__file__).parent / "look.js").read_text()
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
