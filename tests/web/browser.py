"""A headless Chromium with its driver, for the tests of the web page: the machine's own, or Debian's packages in the cache.

Packages that the machine lacks are downloaded with apt and unpacked beside it; nothing is installed and no right is needed.
Invariant: the folder in the cache is complete or not there.  The browser cannot resolve any name, so a page that needs
something from elsewhere fails here.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from reprise.controller.local.cluster.class_archive import cache_dir
from tools.testbed.cached import made_once

PACKAGES = ("chromium", "chromium-driver", "fonts-dejavu-core")
LIBRARIES = ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu/pulseaudio")
FONTS = """<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>/usr/share/fonts</dir><dir>{folder}/usr/share/fonts</dir><cachedir>{folder}/fontcache</cachedir>
<match><edit name="family" mode="append_last"><string>DejaVu Sans</string></edit></match></fontconfig>
"""
MISSING = (
    "Chromium and its driver are needed for the tests of the web page; they are not on the PATH (on Debian: "
    "apt-get install chromium chromium-driver) and their packages could not be downloaded with apt-get: "
)


class BrowserError(Exception):
    """There is no browser here; says what is missing."""


@dataclass(frozen=True, slots=True)
class Browser:
    program: Path
    driver: Path
    environment: Mapping[str, str]


def ensure() -> Browser:
    """The browser, downloaded now if need be.  Raises BrowserError."""
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program and driver:
        return Browser(Path(program), Path(driver), {})
    folder = cache_dir() / "chromium"
    if not folder.is_dir():
        _download(folder)
    environment = {"LD_LIBRARY_PATH": ":".join(str(folder / name) for name in LIBRARIES)}
    environment["FONTCONFIG_FILE"] = str(folder / "fonts.conf")
    return Browser(folder / "usr/lib/chromium/chromium", folder / "usr/bin/chromedriver", environment)


def _download(folder: Path) -> None:
    with made_once(folder) as part:
        try:
            packages = _packages(part, [])
        except BrowserError:  # no lists, or lists so old that what they name is gone
            own = [f"Dir::State::lists={part}/lists", f"Dir::Cache={part}/apt", "Debug::NoLocking=1"]
            _apt(part, own, "update")
            packages = _packages(part, own)
        for package in packages:
            subprocess.run(["dpkg", "-x", str(package), str(part)], check=True)
            package.unlink()
        (part / "fonts.conf").write_text(FONTS.format(folder=folder), encoding="utf-8")


def _packages(part: Path, options: list[str]) -> list[Path]:
    """Downloads what the machine lacks of the packages and of all that they depend on."""
    plan = _apt(part, options, "--simulate", "--no-install-recommends", "install", *PACKAGES)
    names = [line.split()[1] for line in plan.splitlines() if line.startswith("Inst ")]
    _apt(part, options, "download", *names)
    return sorted(part.glob("*.deb"))


def _apt(part: Path, options: list[str], *arguments: str) -> str:
    command = ["apt-get", "--quiet", *(word for option in options for word in ("-o", option)), *arguments]
    try:
        done = subprocess.run(command, cwd=part, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise BrowserError(MISSING + "there is no apt-get") from error
    if done.returncode != 0:
        raise BrowserError(MISSING + done.stderr[-1000:])
    return done.stdout


@contextmanager
def window(width: int = 1440, height: int = 1000, dark: bool = False) -> Iterator[webdriver.Chrome]:
    """A browser with one window; `logs` tells what it said and asked for."""
    browser = ensure()
    options = webdriver.ChromeOptions()
    options.binary_location = str(browser.program)
    with tempfile.TemporaryDirectory(prefix="reprise-browser-") as profile:
        for argument in (
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync", "--mute-audio",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", f"--user-data-dir={profile}",
            f"--window-size={width},{height}", *(["--force-dark-mode"] if dark else []),
        ):  # fmt: skip
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        service = Service(str(browser.driver), env=os.environ | dict(browser.environment))
        driver = webdriver.Chrome(options=options, service=service)
        driver.set_script_timeout(120)
        try:
            yield driver
        finally:
            driver.quit()


def complaints(driver: webdriver.Chrome) -> list[str]:
    """What the console said since the last call: errors, and everything that the content policy has refused."""
    return [
        entry["message"] for entry in driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")
    ]


def requests(driver: webdriver.Chrome) -> list[str]:
    """URLs that pages asked for since the last call; the browser's own new tab page asks for `chrome://` ones."""
    messages: list[dict[str, Any]] = [
        json.loads(entry["message"])["message"] for entry in driver.get_log("performance")
    ]
    urls = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    return [url for url in urls if not url.startswith(("chrome:", "chrome-extension:"))]
