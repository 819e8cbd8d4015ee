"""A headless Chromium that keeps what went wrong: errors of its console, and what it asked for from elsewhere."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.forked_commands import PATIENCE

WIDTH, PHONE, HEIGHT = 1280, 390, 1000  # pixels of the window
DRIVER = "chromedriver"
LOCAL_SCHEMES = ("file", "data", "blob", "about", "chrome", "chrome-untrusted")
LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")


@dataclass
class Browser:
    """A browser at work: its `driver` (selenium's), and where files that it saves go.

    `errors` are the console's messages of level SEVERE, `requests` the addresses of everything it asked for; both
    grow with each call of `look`.
    """

    driver: Any
    downloads: Path
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def open(self, file: Path, width: int = WIDTH, scheme: str = "light") -> Any:
        """Show a file at a width in pixels, in light or in dark, and return the driver."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        self.driver.set_window_size(width, HEIGHT)
        self.driver.get(file.as_uri())
        return self.driver

    def faults(self, html: str, scheme: str = "light") -> list[str]:
        """Show a page with all that is folded in it, in light or in dark; return what is wrong.

        That is axe's serious and critical findings, what runs out of the page on a screen or a phone, errors, and what
        left the machine.
        """
        file = self.downloads.with_name("page.html")
        file.write_text(html, encoding="utf-8")
        driver = self.open(file, WIDTH, scheme)
        driver.execute_script("for (const it of document.querySelectorAll('details')) it.open = true")
        findings = self.serious()
        for width in (WIDTH, PHONE):
            driver.set_window_size(width, HEIGHT)
            if driver.execute_script("return document.documentElement.scrollWidth > innerWidth"):
                findings.append(f"wider than {width} pixels")
        return findings + self.look().errors + self.left_the_machine

    def serious(self) -> list[str]:
        """Return what axe finds in the page that is open and that keeps people from using it."""
        axe = pytest.importorskip("axe_core_python.base", reason="needs axe-core-python (pip install '.[test]')")
        self.driver.execute_script(axe.AXE_SCRIPT)
        options = {"resultTypes": ["violations"], "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}
        findings = self.driver.execute_async_script("axe.run(arguments[0]).then(arguments[1])", options)
        return [
            f"{it['id']}: {node['html'][:200]}"
            for it in findings["violations"]
            if it["impact"] in ("serious", "critical")
            for node in it["nodes"]
        ]

    def forget(self) -> "Browser":
        """Forget what the logs have so far, and return itself."""
        self.look()
        self.errors.clear()
        self.requests.clear()
        return self

    def look(self) -> "Browser":
        """Read the logs, and return itself."""
        self.errors += [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]
        for entry in self.driver.get_log("performance"):
            event = json.loads(entry["message"])["message"]
            if event["method"] == "Network.requestWillBeSent":
                self.requests.append(event["params"]["request"]["url"])
        return self

    @property
    def left_the_machine(self) -> list[str]:
        """The addresses that it asked for, of those read so far, that are not of this machine."""
        return [
            url
            for url in self.requests
            if urlsplit(url).scheme not in LOCAL_SCHEMES and urlsplit(url).hostname not in LOCAL_HOSTS
        ]


@contextmanager
def headless(folder: Path) -> Iterator[Browser]:
    """Yield a browser that saves into `folder`/downloads; skip the test where there is no browser or no driver."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium (pip install '.[test]')")
    binary = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which(DRIVER)
    if not binary or not driver:
        pytest.skip("needs Chromium and its driver (Debian: apt-get install chromium chromium-driver)")
    downloads = folder / "downloads"
    downloads.mkdir()
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (
        *("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "disable-quic", "no-first-run"),
        *("disable-background-networking", "disable-component-update", "disable-sync"),
        *(f"user-data-dir={folder / 'profile'}", f"window-size={WIDTH},{HEIGHT}"),
    ):
        options.add_argument(f"--{flag}")
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    opened.set_script_timeout(PATIENCE)
    opened.set_page_load_timeout(PATIENCE)
    try:
        opened.get("about:blank")
        opened.get_log("performance")  # what the browser's own first page asked for
        yield Browser(opened, downloads)
    finally:
        opened.quit()
