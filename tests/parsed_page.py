"""A page as tags, attributes and text."""

import base64
import hashlib
import re
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "img", "hr", "input"}
OURS = {
    "a", "bdi", "body", "caption", "circle", "clippath", "code", "dd", "defs", "details", "div", "dl", "dt", "em",
    "figcaption", "figure", "h1", "h2", "h3", "head", "header", "html", "img", "li", "line", "link", "main", "meta",
    "nav", "ol", "p", "script", "section", "span", "strong", "style", "summary", "svg", "table", "tbody", "td", "text",
    "th", "thead", "title", "tr", "ul",
}  # fmt: skip


STYLE = re.compile(r"((--)?[a-z-]+: ?[\w#.,%() -]*;? ?)*")  # colours, lengths and numbers


def assert_inert(source: str) -> "ParsedPage":
    """Return the parsed page after asserting that nothing in it runs but its script, or leads out of its folder."""
    page = ParsedPage(source)
    assert page.open == []
    assert set(page.tags) <= OURS
    for tag, name, value in page.attributes:
        assert not name.startswith("on"), (tag, name)
        assert name not in {"srcset", "action", "formaction", "xlink:href", "srcdoc"}, (tag, name)
        assert name != "src" or (tag == "img" and value.startswith("data:image/svg+xml;base64,")), (tag, value)
        assert name != "style" or STYLE.fullmatch(value), (tag, value)
        if name == "href":
            assert is_ours(value), (tag, value)
        elif name not in {"alt", "aria-label", "data-label", "src", "title"}:
            assert not re.search(r"url\((?!#)|javascript:|//", value), (tag, value)
    (style,) = re.findall(r"<style>(.*?)</style>", source, re.DOTALL)
    assert "url(" not in style and "@import" not in style
    assert ("meta", "http-equiv", "Content-Security-Policy") in page.attributes
    assert "<script" not in without_script(source)
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    return page


def is_ours(address: str) -> bool:
    """Return whether an address leads only into this page, or to a file of the same folder of runs."""
    return address == "data:," or address.startswith("#") or (address.startswith("./") and ":" not in address)


def without_script(source: str) -> str:
    """Return a page without its one script, which is ours: the policy names its hash and allows nothing else."""
    (script,) = re.findall(r"<script>(.*?)</script>", source, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
    assert f'http-equiv="Content-Security-Policy" content="{policy}' in source
    return source.replace(f"<script>{script}</script>", "")


class ParsedPage(HTMLParser):
    """Collects tags, attributes and text, and checks that what is opened is closed."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.texts, self.open = [], [], [], []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.texts.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.texts))
