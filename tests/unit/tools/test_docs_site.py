"""The site is made of all pages without a warning, its links lead somewhere, and it loads nothing from elsewhere."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.unit.docs.test_decisions import pages
from tools.docs_site import (
    NAVIGATION,
    ROOT,
    SiteError,
    _there,
    broken_links,
    build,
    loaded_from_elsewhere,
)

pytestmark = pytest.mark.filterwarnings("ignore:'myst_parser.*deprecated")
"""What MyST uses of Sphinx is there until Sphinx 11; pyproject.toml keeps to those before."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("site") / "out").parent


@pytest.mark.slow
@pytest.mark.wide
def test_each_page_is_in_it_and_the_front_page_is_the_readme(site: Path) -> None:
    made = {path.relative_to(site).with_suffix("") for path in site.rglob("*.html")}
    assert {page.relative_to(ROOT).with_suffix("") for page in pages()} <= made
    assert (site / "index.html").read_bytes() == (site / "README.html").read_bytes()
    assert (site / "searchindex.js").stat().st_size > 100_000


@pytest.mark.slow
@pytest.mark.wide
def test_links_and_anchors_lead_somewhere_and_nothing_comes_from_elsewhere(site: Path) -> None:
    assert broken_links(site) == []
    assert loaded_from_elsewhere(site) == []
    scripts = [path.read_text() for path in site.rglob("*.js") if path.name != "searchindex.js"]
    literals = {url for script in scripts for url in re.findall(r"""["'`](https?:[^"'`]*)""", script)}
    assert literals <= {"http://www.w3.org/2000/svg"}  # a name, and nothing that is loaded
    text = (site / "README.html").read_text()
    assert 'href="docs/cli.html#the-demo"' in text
    assert (site / "docs" / "cli.html").read_text().count('id="the-demo"') == 1
    for caption in NAVIGATION:
        assert f'<span class="caption-text">{caption}</span>' in text


@pytest.mark.slow
@pytest.mark.wide
@pytest.mark.parametrize(
    ("page", "text", "wrong"),
    [
        ("README.md", "[a](docs/new.md)", r"README\.md:3: WARNING: .*docs/new"),
        ("README.md", "[a](docs/cli.md#none)", r"README\.md:3: WARNING: .*none"),
        ("SECURITY.md", "![a](docs/images/new.png)", r"SECURITY\.md:3: WARNING: image file not readable"),
        ("docs/new.md", "nobody lists it", r"docs/new\.md: WARNING: document isn't included in any toctree"),
        ("SECURITY.md", "<img src='https://example.com/a.png'>", r"SECURITY\.html loads https://example"),
        ("SECURITY.md", "<a href='nowhere.html'>a</a>", r"SECURITY\.html links to nowhere\.html"),
    ],
)
def test_what_is_wrong_with_a_page_is_said_and_nothing_is_written(
    tmp_path: Path, page: str, text: str, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.docs_site.NAVIGATION", {"All": ("self", "docs/cli", "SECURITY")})
    root = tmp_path / "root"
    (root / "docs").mkdir(parents=True)
    shutil.copy(ROOT / "pyproject.toml", root)
    for name in ("README.md", "SECURITY.md", "docs/cli.md"):
        (root / name).write_text("# A title\n")
    if page == "README.md":
        assert build(tmp_path / "well", root).is_file()
    (root / page).write_text(f"# A title\n\n{text}\n")
    with pytest.raises(SiteError, match=wrong):
        build(tmp_path / "out", root)
    assert not (tmp_path / "out").exists()


def written(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".css" if name == "style" else ".html").write_text(text)
    return folder


@pytest.mark.parametrize(
    "html",
    [
        "<script src='https://example.com/a.js'></script>",
        "<img src='//example.com/a.png'>",
        "<img srcset='a.png 1x, http://example.com/a.png 2x'>",
        "<link rel='stylesheet' href='https://example.com/a.css'>",
        "<link rel='preconnect' href='https://example.com'>",
        "<style>@import 'https://example.com/a.css';</style>",
        "<p style='background: url(https://example.com/a.png)'>",
        "<iframe src='https://example.com'></iframe>",
    ],
)
def test_what_a_browser_would_load_from_elsewhere_is_found(tmp_path: Path, html: str) -> None:
    assert [page for page, _ in loaded_from_elsewhere(written(tmp_path, a=html))] == ["a.html"]


def test_a_style_sheet_that_loads_from_elsewhere_is_found(tmp_path: Path) -> None:
    written(tmp_path, style="@font-face { src: url(https://example.com/f.woff) }")
    assert loaded_from_elsewhere(tmp_path) == [("style.css", "https://example.com/f.woff")]


def test_a_folder_that_is_not_a_site_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("kept")
    with pytest.raises(SiteError, match=r"--out: .* has files that are not a site's"):
        build(tmp_path)
    assert (tmp_path / "mine").read_text() == "kept"


def test_every_page_that_is_listed_is_there_once() -> None:
    listed = [page for entries in NAVIGATION.values() for page in _there(ROOT, entries) if page != "self"]
    assert len(listed) == len(set(listed))
    assert [page for page in listed if not (ROOT / f"{page}.md").is_file()] == []
