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
def headless(folder: Path, width: int = 1280, height: int = 1000) -> Iterator[Browser]:
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
        *(f"user-data-dir={folder / 'profile'}", f"window-size={width},{height}"),
    ):
        options.add_argument(f"--{flag}")
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    try:
        opened.get("about:blank")
        opened.get_log("performance")  # what the browser's own first page asked for
        yield Browser(opened, downloads)
    finally:
        opened.quit()
