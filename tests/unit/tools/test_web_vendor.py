"""The libraries of the page are what the lock says, with their licences, and reach the wheel."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from reprise.controller.web.errors import WebError
from tools import web_vendor as vendor

STATIC = vendor.ROOT / "controller" / "web" / "static"


def test_files_are_as_they_were_fetched() -> None:
    assert vendor.differences(vendor.read_lock()) == []


def test_every_package_is_pinned_with_its_licence() -> None:
    for package in vendor.read_lock()["packages"]:
        assert package["integrity"].startswith("sha512-") and package["version"][0].isdigit()
        assert package["license"] in ("MIT", "MPL-2.0")
        assert any(target.endswith(".LICENSE.txt") for target in package["files"].values())


def test_a_changed_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vendor, "ROOT", tmp_path)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "a.js").write_text("changed")
    (tmp_path / "lib" / "stranger.js").write_text("")
    lock = {"packages": [{"folder": "lib"}], "sha256": {"lib/a.js": "0", "lib/gone.js": "0"}}
    assert vendor.differences(lock) == ["lib/a.js", "lib/gone.js", "lib/stranger.js"]


def test_a_package_with_other_content_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p.tgz").write_bytes(b"other")
    with pytest.raises(WebError, match=r"p\.tgz: its sha512 is .*, the lock says AAAA"):
        vendor._check(tmp_path / "p.tgz", "sha512-AAAA")


def test_no_page_names_another_server_or_holds_code_or_styles_of_its_own() -> None:
    for path in STATIC.glob("*"):
        if path.suffix in (".html", ".js", ".css"):
            text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
            assert "://" not in text and "innerHTML" not in text, path.name
        if path.suffix == ".html":
            assert (
                "style=" not in text
                and "<style" not in text
                and text.count("<script")
                == text.count("<script src") + (text.count('<script type="module" src'))
            )


def test_every_static_file_is_package_data() -> None:
    project = tomllib.loads((vendor.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["reprise.controller.web"]
    package = STATIC.parent
    packed = {file for pattern in patterns for file in package.glob(pattern) if file.is_file()}
    assert packed == {file for file in STATIC.rglob("*") if file.is_file()}
