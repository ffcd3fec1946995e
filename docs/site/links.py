"""Whether every link of a built site leads to a file and an anchor, and nothing is loaded from elsewhere."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADING = {"script": "src", "img": "src", "iframe": "src", "link": "href", "source": "src"}
"""Elements whose address a browser loads by itself."""
UNLOADED = {"canonical", "next", "prev", "index", "search", "author", "license"}
"""Kinds of `<link>` that name a page and load none."""


class Page(HTMLParser):
    """The anchors of a page, where its links lead, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes what one element names."""
        has = {name: value for name, value in attrs if value is not None}
        self.anchors |= {has[name] for name in ("id", "name") if name in has}
        address = has.get(LOADING.get(tag, ""), "")
        if address and not (tag == "link" and has.get("rel") in UNLOADED):
            self.loaded.append(address)
        if tag == "a" and "href" in has:
            self.links.append(has["href"])


def check_site(folder: Path) -> list[str]:
    """Returns one line for each link that leads nowhere and each address that would be fetched."""
    texts = {path.resolve(): path.read_text() for path in sorted(folder.rglob("*.html"))}
    pages = {path: Page(text) for path, text in texts.items()}
    wrong = []
    for path, page in pages.items():
        shown = path.relative_to(folder.resolve())
        fetched = [url for url in page.loaded if urlsplit(url).scheme in {"http", "https"}]
        fetched += [url for url in page.loaded if url.startswith("//")]
        wrong += [f"{shown}: loads {url} from the network" for url in fetched]
        dead = [link for link in [*page.links, *page.loaded] if not _leads(link, path, pages)]
        wrong += [f"{shown}: {link} leads nowhere" for link in dict.fromkeys(dead)]
    return wrong


def _leads(link: str, path: Path, pages: dict[Path, Page]) -> bool:
    parts = urlsplit(link)
    if parts.scheme or link.startswith("//"):
        return True
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return False
    return (
        not parts.fragment
        or target not in pages
        or unquote(parts.fragment) in pages[target].anchors
    )
