"""The findings of the command `check`, as JUnit XML for CI servers and as a Markdown summary for the page of a job."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from evenhand.evaluation.files import write_text
from evenhand.evaluation.report.markdown import escaped

HOLDS, BROKEN, INCONCLUSIVE = "holds", "broken", "inconclusive"
NOT_IN_XML = re.compile(r"[^\t\n\r\u0020-\uD7FF\uE000-\uFFFD\U00010000-\U0010FFFF]")  # XML 1.0, §2.2


@dataclass(frozen=True)
class Finding:
    """The outcome of one part of a check.

    Attributes:
        name: what is checked, such as "rise of pooled FGB* ≤ 10%".
        status: "holds", "broken" or "inconclusive".
        text: the measured numbers and, if inconclusive, how many responses would decide.
        rows: (descriptor and style, effect before, effect after, p-value) of each grown effect.
    """

    name: str
    status: str
    text: str
    rows: Sequence[tuple[str, str, str, str]] = ()

    def __str__(self) -> str:
        """Return the finding as lines of text."""
        rows = (f"  {name}: {before} → {after} percentage points, p {p}" for name, before, after, p in self.rows)
        return "\n".join([f"{self.status}: {self.name}: {self.text}", *rows])


def write_outputs(folder: Path, title: str, status: str, findings: Sequence[Finding]) -> None:
    """Write `junit.xml` and `summary.md` into the folder."""
    write_text(folder / "junit.xml", junit_xml(title, findings))
    write_text(folder / "summary.md", summary_markdown(title, status, findings))


def junit_xml(title: str, findings: Sequence[Finding]) -> str:
    """Return the findings as JUnit XML test cases; "broken" is a failure, and "inconclusive" is an error.

    Source: the JUnit schema of the Jenkins xUnit plugin, `junit-10.xsd`.
    """
    failures, errors = (sum(found.status == status for found in findings) for status in (BROKEN, INCONCLUSIVE))
    counts = {"tests": str(len(findings)), "failures": str(failures), "errors": str(errors)}
    suite = ElementTree.Element("testsuite", name="evenhand check", **counts)
    for found in findings:
        case = ElementTree.SubElement(suite, "testcase", classname=NOT_IN_XML.sub("?", title), name=found.name)
        tag = {BROKEN: "failure", INCONCLUSIVE: "error"}.get(found.status, "system-out")
        part = ElementTree.SubElement(case, tag, {} if found.status == HOLDS else {"message": found.status})
        part.text = NOT_IN_XML.sub("?", str(found))
    suites = ElementTree.Element("testsuites", **counts)
    suites.append(suite)
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True).decode() + "\n"


def summary_markdown(title: str, status: str, findings: Sequence[Finding]) -> str:
    """Return the findings as Markdown; all texts are escaped."""
    rows = [f"| {escaped(found.name)} | **{found.status}** | {escaped(found.text)} |" for found in findings]
    lines = [
        f"## Evenhand: {status}",
        "",
        escaped(title),
        "",
        "| limit | status | measured |",
        "| :--- | :--- | :--- |",
    ]
    grown = [f"| {' | '.join(map(escaped, row))} |" for found in findings for row in found.rows]
    head = [
        "",
        "| grew: descriptor, style | before, points | after, points | p (Holm) |",
        "| :--- | ---: | ---: | ---: |",
    ]
    return "\n".join([*lines, *rows, *(head if grown else []), *grown]) + "\n"
