"""The page's style, and the text that it shows when the server is gone."""

import json

CSS = """
:root { --ink: #1f2933; --soft: #667380; --line: #e3e8ee; --paper: #f6f8fa; --accent: #0072B2; }
body { background: var(--paper); color: var(--ink); font: 14px/1.45 system-ui, "Segoe UI", Roboto, sans-serif; }
.nicegui-content { padding: 0; gap: 0; align-items: stretch; }
.top { background: #fff; border-bottom: 1px solid var(--line); padding: 10px 24px 0; }
.bar { display: flex; align-items: baseline; gap: 14px; flex-wrap: wrap; }
.bar h1 { font-size: 18px; line-height: 1.4; font-weight: 650; margin: 0; letter-spacing: 0; }
.bar .where { color: var(--soft); font-size: 12.5px; overflow-wrap: anywhere; }
.chip { border-radius: 999px; padding: 1px 11px; font-size: 12.5px; font-weight: 600; background: #e8edf2; }
.chip.good { background: #d9f0e7; color: #00664a; }
.chip.doubtful { background: #fdeecb; color: #7a5200; }
.chip.bad { background: #fbdcd0; color: #8f3300; }
.q-tab { min-height: 38px; padding: 0 14px; text-transform: none; }
.q-tab__label { font-size: 14px; font-weight: 550; }
.q-tab-panels { background: transparent; }
.q-tab-panel { padding: 16px 24px 28px; }
.grid { display: grid; grid-template-columns: repeat(12, minmax(0, 1fr)); gap: 14px; width: 100%; }
.card { background: #fff; border: 1px solid var(--line); border-radius: 10px; padding: 14px 16px; min-width: 0; }
h2 { font-size: 14px; line-height: 1.4; font-weight: 650; margin: 0 0 8px; letter-spacing: 0; }
.s4 { grid-column: span 4; } .s5 { grid-column: span 5; } .s6 { grid-column: span 6; }
.s7 { grid-column: span 7; } .s8 { grid-column: span 8; } .s12 { grid-column: span 12; }
@media (max-width: 900px) { .s4, .s5, .s6, .s7, .s8 { grid-column: span 12; } }
table.plain { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
table.plain td { padding: 4px 12px 4px 0; border-top: 1px solid var(--line); vertical-align: top; }
table.plain tr:first-child td { border-top: 0; }
table.plain td:first-child { white-space: nowrap; }
table.plain td.number { white-space: nowrap; font-weight: 600; }
table.plain td.soft, .soft { color: var(--soft); font-size: 12.5px; }
p { margin: 0 0 8px; }
.lead { font-size: 15px; }
.finding { border-left: 3px solid #E69F00; padding: 2px 0 2px 10px; margin: 6px 0; }
.finding.blocking { border-color: #D55E00; }
.finding.note { border-color: #999999; }
.figure img { max-width: 100%; height: auto; display: block; margin: 0 auto; }
.wait { color: var(--soft); padding: 24px 0; text-align: center; max-width: 80ch; margin: 0 auto; }
.wait::first-letter { text-transform: uppercase; }
.notice { background: #fbdcd0; border: 1px solid #e9a98e; color: #6b2600; border-radius: 8px; padding: 8px 14px;
  margin: 12px 24px 0; }
.scene img { image-rendering: pixelated; border-radius: 6px; background: #30343f; }
.scene { width: 100%; touch-action: none; }
.plane { width: 100%; border-radius: 6px; display: block; }
.stage .scene { cursor: grab; } .stage .scene:active { cursor: grabbing; }
.controls { display: flex; align-items: center; gap: 10px; width: 100%; flex-wrap: wrap; }
.controls .slider { flex: 1; min-width: 180px; }
.rows { display: flex; flex-wrap: wrap; gap: 6px; align-items: center; }
.rows button { border: 1px solid var(--accent); border-radius: 4px; color: var(--accent); background: none;
  font-size: 11px; line-height: 1.7; padding: 0 8px; cursor: pointer; font-variant-numeric: tabular-nums; }
.rows button:hover { background: #e6f1f8; }
.q-btn { padding: 3px 12px; }
.settings table.plain td.number { white-space: normal; overflow-wrap: break-word; }
code { background: #eef2f6; border-radius: 5px; padding: 2px 6px; font-size: 12.5px; overflow-wrap: anywhere; }
.legend { display: flex; gap: 14px; flex-wrap: wrap; color: var(--soft); font-size: 12.5px; align-items: center; }
.dot { display: inline-block; width: 10px; height: 10px; border-radius: 50%; border: 1px solid #000;
  margin-right: 5px; }
.ring { background: #30343f; border: 2px solid #fff; outline: 1px solid #000; }
#popup { inset: 0 0 auto 0; margin: 0; padding: 12px 24px; border: 0; border-radius: 0; background: #8f3300 !important;
  color: #fff; gap: 2px; }
#popup[aria-hidden="false"] { transition-delay: 300ms; }
"""

GONE = ("The server of this page has ended.", "What is shown stays as it is. To start it again: ")


def head(command: str) -> str:
    """For the page's head: the style, and the text of the banner that appears when the connection is lost."""
    lines = json.dumps([GONE[0], GONE[1] + command]).replace("<", "\\u003c")
    script = (
        "addEventListener('DOMContentLoaded', () => document.querySelectorAll('#popup span')"
        f".forEach((span, i) => span.textContent = {lines}[i]))"
    )
    return f"<style>{CSS}</style><script>{script}</script>"
