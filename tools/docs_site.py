"""The documentation as a web site: `make docs`, or `python -m tools.docs_site --out DIR`.

Readers of a repository follow links between its pages; readers of a site want to see what there is, in the order of what
they want to do, and to search.  So the pages stay as they are, and Sphinx makes the site of them: with MyST it reads them
by CommonMark, and headings have the anchors that repositories show.  What the site adds, the order in which pages are
listed, is in this module, as no page shall have marks in it that only one generator understands.

A page that is not listed, a link that leads nowhere and an anchor that is not there are errors.  Nothing is loaded from
another host when a page is viewed.  The search works from files, too: it lists pages there, and a server is needed only for
the lines of text below each.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace, patch_docutils

ROOT = Path(__file__).parents[1]
FRONT = "README"
MARK = "objects.inv"
"""A file that only a site of Sphinx has."""
PAGES = ("*.md", "docs/**/*.md", "charts/*/README.md")
PICTURES = ("docs/images/*",)

NAVIGATION: Mapping[str, Sequence[str]] = {
    "What it is": (
        "self", "docs/what-it-is", "docs/when-not-to-use-it", "docs/beside-others", "docs/compatibility", "docs/stability",
        "CHANGELOG",
    ),
    "Ten minutes to the first recovery": ("docs/first-recovery",),
    "Write your own": (
        "docs/topology", "docs/changes", "docs/operators", "docs/kafka", "docs/checkpoints", "docs/savepoints",
        "docs/storage", "docs/nexmark", "docs/your-code",
    ),
    "Operate": (
        "docs/kubernetes", "charts/*/README", "docs/embedded", "docs/security", "docs/alerts", "docs/web",
    ),
    "Reference": (
        "docs/cli", "docs/reference", "docs/status-document", "docs/metrics", "docs/logs", "docs/glossary",
    ),
    "Design": (
        "docs/architecture", "docs/recovery", "docs/planning", "docs/messages", "docs/simulated-world",
        "docs/decisions/README",
    ),
    "Measurements": ("docs/benchmarks", "docs/mutants", "docs/figures"),
    "Take part": ("CONTRIBUTING", "docs/releasing", "SECURITY", "CODE_OF_CONDUCT"),
}  # fmt: skip
"""Pages without their ending, by what a reader wants.  `self` is the front page; a pattern may match nothing."""
BELOW: Mapping[str, str] = {
    "docs/alerts": "docs/runbooks/*",
    "docs/decisions/README": "docs/decisions/[0-9]*",
}
"""Pages that are listed on another one."""

LOADED = {
    "script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "audio": "src", "embed": "src",
    "object": "data", "link": "href",
}  # fmt: skip
"""Attributes by which a browser loads something without being asked."""
NOT_LOADED = {"canonical", "prev", "next", "index", "search", "author", "copyright"}
"""Relations of a `link` that name a page and load nothing."""
IN_STYLES = re.compile(r"""url\(\s*['"]?([^'")]+)|@import\s+['"]([^'"]+)""")


class SiteError(Exception):
    """What is wrong with the pages, a line each."""


def build(out: Path, root: Path = ROOT) -> Path:
    """Write the site into a folder and return its front page; a site that is there is replaced.  Raises SiteError."""
    if out.exists() and any(out.iterdir()) and not (out / MARK).is_file():
        raise SiteError(f"--out: {out} has files that are not a site's")
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    with tempfile.TemporaryDirectory(prefix="site-") as folder:
        source, made = Path(folder) / "source", Path(folder) / "site"
        copy_pages(root, source)
        _sphinx(source, made, Path(folder) / "trees", str(project["version"]))
        shutil.copy(made / f"{FRONT}.html", made / "index.html")
        wrong = [*broken_links(made), *(f"{page} loads {url}" for page, url in loaded_from_elsewhere(made))]
        if wrong:
            raise SiteError("\n".join(wrong))
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(made, out, ignore=shutil.ignore_patterns(".buildinfo*"))
    return out / "index.html"


def copy_pages(root: Path, to: Path) -> None:
    """The pages and their pictures alone: Sphinx looks through all that is below its source, links included."""
    for pattern in (*PAGES, *PICTURES):
        for path in root.glob(pattern):
            target = to / path.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)


def _sphinx(source: Path, out: Path, trees: Path, version: str) -> None:
    settings = {
        "project": "Reprise",
        "version": version,
        "release": version,
        "extensions": ["myst_parser"],
        "root_doc": FRONT,
        "myst_heading_anchors": 6,
        "highlight_language": "none",  # blocks are commands, output and YAML, and no page says which
        "html_theme": "furo",
        "html_title": f"Reprise {version}",
        "html_copy_source": False,
        "html_show_sourcelink": False,
        "html_show_copyright": False,
        "html_use_index": False,
        "html_theme_options": {"top_of_page_buttons": []},
    }
    warnings = io.StringIO()
    # a second site of the same process would find the marks of the first
    with patch_docutils(), docutils_namespace():
        app = Sphinx(
            source, None, out, trees, "html", settings,
            status=None, warning=warnings, freshenv=True, warningiserror=True,
        )  # fmt: skip
        app.connect("source-read", _listed)
        app.build(force_all=True)
    if app.statuscode != 0:
        raise SiteError(re.sub(r"\x1b\[[\d;]*m", "", warnings.getvalue()).replace(f"{source}/", "").strip())


def _listed(app: Sphinx, page: str, text: list[str]) -> None:
    """Add what is listed on a page, where the page itself ends."""
    if page == FRONT:
        for caption, entries in NAVIGATION.items():
            text[0] += toctree(_there(app.srcdir, entries), f":caption: {caption}\n:hidden:")
    if page in BELOW:
        text[0] += toctree(_there(app.srcdir, [BELOW[page]]), ":maxdepth: 1")


def toctree(entries: Iterable[str], options: str) -> str:
    """A list of pages in the words of MyST."""
    lines = "\n".join("Overview <self>" if entry == "self" else f"/{entry}" for entry in entries)
    return f"\n\n```{{toctree}}\n{options}\n\n{lines}\n```\n"


def _there(source: Path, entries: Iterable[str]) -> Iterator[str]:
    for entry in entries:
        if "*" not in entry:
            yield entry
        for path in sorted(source.glob(f"{entry}.md")) if "*" in entry else ():
            yield str(path.relative_to(source).with_suffix(""))


class _Page(HTMLParser):
    """What a page links to, loads, and can be jumped to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.anchors: set[str] = set()
        self._style = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what the element refers to, and its name."""
        found = {name: value for name, value in attrs if value}
        self._style = tag == "style"
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if tag in LOADED and LOADED[tag] in found and found.get("rel") not in NOT_LOADED:
            self.loads.append(found[LOADED[tag]])
        self.loads += [part.split()[0] for part in found.get("srcset", "").split(",") if part.strip()]
        self.loads += in_style(found.get("style", ""))

    def handle_data(self, data: str) -> None:
        """Note what a style loads."""
        if self._style:
            self.loads += in_style(data)


def in_style(text: str) -> list[str]:
    """What a style sheet loads."""
    return [one or other for one, other in IN_STYLES.findall(text)]


def _pages(folder: Path) -> dict[Path, _Page]:
    return {path: _Page(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.html"))}


def broken_links(folder: Path) -> list[str]:
    """Links within a site, and what its pages load, that lead to no file or no anchor of it."""
    pages, found = _pages(folder.resolve()), []
    for path, page in pages.items():
        for link in (*page.links, *page.loads):
            url = urlsplit(link)
            if url.scheme or url.netloc:
                continue
            target = Path(os.path.normpath(path.parent / unquote(url.path))) if url.path else path
            anchors = pages[target].anchors if target in pages else set()
            if not target.is_file() or (url.fragment and unquote(url.fragment) not in anchors):
                found.append(f"{path.relative_to(folder.resolve())} links to {link}, which is not there")
    return found


def loaded_from_elsewhere(folder: Path) -> list[tuple[str, str]]:
    """(file of the site, address on another host that a browser would load with it)"""
    loads = [(path, url) for path, page in _pages(folder).items() for url in page.loads]
    loads += [
        (path, url)
        for path in sorted(folder.rglob("*.css"))
        for url in in_style(path.read_text(encoding="utf-8"))
    ]
    return [
        (str(path.relative_to(folder)), url)
        for path, url in loads
        if urlsplit(url).netloc or urlsplit(url).scheme not in ("", "data")
    ]


def main() -> int:
    """Write the site and print the path of its front page; exit code 1 with what is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tools.docs_site", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "site", help="folder; by default out/site")
    try:
        print(build(parser.parse_args().out))
    except SiteError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
