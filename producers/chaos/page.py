"""The report as a page: one file, nothing loaded from anywhere, everything escaped."""

from html import escape
from typing import Any

from .report import AttackReport, closing, said, shown_in, words

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; margin: 1rem 0; }
th, td { text-align: left; padding: .35rem .6rem; vertical-align: top; }
tr { border-bottom: 1px solid #8884; }
code { font: 13px ui-monospace, monospace; overflow-wrap: anywhere; }
.safe { color: #18794e; } .bad { color: #c62a2f; font-weight: 600; }
details { border: 1px solid #8884; border-radius: 6px; margin: .5rem 0; padding: .4rem .8rem; }
summary { cursor: pointer; }
.bar { position: relative; height: 26px; margin: .6rem 0; border-bottom: 1px solid #8886; }
.bar i { position: absolute; bottom: 0; width: 3px; height: 14px; background: #8888; }
.bar i.kill { background: #c62a2f; height: 26px; }
.bar i.takeover { background: #18794e; height: 26px; }
.bar i.call { background: #d9730d; height: 20px; }
.bar i.effect { background: #0b68cb; height: 20px; }
ol { list-style: none; padding: 0; } li { display: flex; gap: .8rem; }
li span { flex: 0 0 5.5rem; text-align: right; font-variant-numeric: tabular-nums; opacity: .7; }
li b { flex: 0 0 5rem; font-weight: 400; opacity: .7; }
li.attempt { margin-top: .5rem; font-weight: 600; } li.kill { color: #c62a2f; font-weight: 600; }
li.takeover { color: #18794e; } li.call { color: #d9730d; } li.effect { color: #0b68cb; }
"""


def page(report: AttackReport) -> str:
    """The whole page."""
    title = f"fleet chaos {report.graph}"
    blamed = {name for fault in report.verdict.faults for name in fault.runs}
    return "".join(
        (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{escape(title)}</h1>",
            *(f"<p>{escape(line)}</p>" for line in closing(report)),
            _nodes(report),
            "<h2>Killed runs</h2><p>Bars: red the kill, green the takeover, blue an effect, "
            "orange a call that no ledger knows.</p>",
            *(_run(run, run["run"] in blamed) for run in report.runs),
            "</body></html>\n",
        )
    )


def _nodes(report: AttackReport) -> str:
    rows = []
    for node in report.verdict.nodes:
        faults = report.verdict.of(node)
        if not faults:
            word = words(report.verdict, node)
            rows.append(_row(node, f'<span class="{word[:4]}">{word}</span>', "", "", ""))
        for fault in faults:
            kind = f'<span class="bad">{escape(words(report.verdict, node))}</span>'
            rows.append(_row(node, kind, said(fault), fault.where, shown_in(fault)))
    heads = "".join(f"<th>{name}</th>" for name in ("node", "verdict", "what", "where", "in"))
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _row(node: str, verdict: str, what: str, where: str, runs: str) -> str:
    """``verdict`` is HTML, the others are text."""
    return (
        f"<tr><td><code>{escape(node)}</code></td><td>{verdict}</td><td>{escape(what)}</td>"
        f"<td><code>{escape(where)}</code></td><td>{escape(runs)}</td></tr>"
    )


def _run(run: dict[str, Any], blamed: bool) -> str:
    events = run["timeline"]
    mark = '<span class="bad">shows a fault</span>' if blamed else ""
    hit = "" if run["hit"] else " (it did not come to that place)"
    status = f"{run['status']}: {run['error']}" if run["error"] else run["status"]
    items = "".join(
        f'<li class="{escape(e["what"])}"><span>{e["at_ms"]} ms</span>'
        f"<b>{escape(e['what'])}</b><div>{escape(e['text'])}</div></li>"
        for e in events
    )
    return (
        f"<details{' open' if blamed else ''}><summary><code>{escape(run['run'])}</code>, killed "
        f"{escape(run['kill']['words'])}{hit}: {escape(status)} {mark}</summary>"
        f"{_bar(events)}<ol>{items}</ol></details>"
    )


def _bar(events: list[dict[str, Any]]) -> str:
    last = max((e["at_ms"] for e in events), default=0) or 1
    marks = "".join(
        f'<i class="{escape(e["what"])}" style="left:{100 * e["at_ms"] / last:.2f}%" '
        f'title="{escape(e["text"])}"></i>'
        for e in events
    )
    return f'<div class="bar">{marks}</div>'
