"""What a written page holds: its texts by tag, and its links."""

from html.parser import HTMLParser


class Outline(HTMLParser):
    """Open tags, and the text of cells, head cells, list items and paragraphs."""

    def __init__(self):
        super().__init__()
        self.open, self.texts, self.links = [], [], []

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.links += [values[name] for name in ("src", "href", "xlink:href") if name in values]
        if tag not in ("meta", "br", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in ("meta", "br", "img"):
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and data.strip():
            self.texts.append((self.open[-1], " ".join(data.split())))


def outline(path):
    found = Outline()
    found.feed(path.read_text(encoding="utf-8"))
    assert found.open == []
    return found
