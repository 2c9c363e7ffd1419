"""Tables as notebooks show them."""

from __future__ import annotations

from collections.abc import Sequence


def html_table(rows: Sequence[Sequence[str]], caption: str = "") -> str:
    """Rows of text as an HTML table, the first as its heading, all but the first column to the right."""
    import html  # only notebooks need it

    def cells(row: Sequence[str], tag: str) -> str:
        return "".join(
            f'<{tag} style="text-align:{"left" if k == 0 else "right"}">{html.escape(text)}</{tag}>'
            for k, text in enumerate(row)
        )

    head, *body = rows
    lines = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in body)
    above = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    return f"<table>{above}<thead><tr>{cells(head, 'th')}</tr></thead><tbody>{lines}</tbody></table>"
