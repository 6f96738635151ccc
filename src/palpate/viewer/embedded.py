"""A PNG file as text inside the page. Nothing slow is imported: a report is shown before torch is loaded."""

import base64


def encoded(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")
