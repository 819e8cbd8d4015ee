"""A page as tags, attributes and text."""

import re
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "img", "hr", "input"}
OURS = {
    "a", "bdi", "body", "caption", "circle", "dd", "details", "div", "dl", "dt", "em", "figcaption", "figure", "h1", "h2",
    "h3", "head", "header", "html", "li", "line", "link", "main", "mark", "meta", "nav", "ol", "p", "polygon", "polyline",
    "rect", "section", "span", "strong", "style", "summary", "svg", "table", "tbody", "td", "text", "th", "thead",
    "title", "tr", "ul",
}  # fmt: skip


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
        if self.open and self.open[-1] != "style":
            self.texts.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.texts))
