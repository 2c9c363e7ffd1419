"""Where a net's definition stands, for errors: "net.prototxt:41"."""

from __future__ import annotations

from pathlib import Path

from .proto_text import layer_lines


class NetSource:
    """The file of a net's definition; path "" for a net that came from a message. Read only when asked."""

    def __init__(self, path: str = ""):
        self.path = path

    def locate(self, layer_name: str) -> str:
        """File and line of the layer of that name; just the file's name when the text has no such layer."""
        if not self.path:
            return ""
        name = Path(self.path).name
        try:
            text = Path(self.path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return name
        lines = [str(line) for line, layer in layer_lines(text) if layer == layer_name]
        return f"{name}:{' or '.join(lines)}" if lines else name
