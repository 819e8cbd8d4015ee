"""The command `check`: prints and writes whether limits of a run's bias hold (`generation_bias/limits.py`), for CI."""

import logging
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol
from xml.etree import ElementTree

from evenhand.evaluation.doors import python_door
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.facts import BROKEN, HOLDS, INCONCLUSIVE, LimitResult
from evenhand.evaluation.files import write_text
from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.metrics.generation_bias.limits import (
    findings_against,
    findings_alone,
    people_without_answers,
)
from evenhand.evaluation.metrics.generation_bias.words import note
from evenhand.evaluation.report.numbers import sanitize
from evenhand.evaluation.runs.pages import CHECKED, claim_pages, clear_pages
from evenhand.evaluation.settings import checked
from evenhand.recipes.check_screen import SCREEN, screen_findings
from evenhand.recipes.command_settings import CheckSettings
from evenhand.recipes.finished_runs import check_same_precision, read_measurement
from evenhand.recipes.limit_texts import LimitText, limit_texts
from evenhand.recipes.settings import FAMILIES, GENERATION_BIAS, family_config

log = logging.getLogger("evenhand")

JUNIT, SUMMARY = CHECKED
EXIT_STATUS = {BROKEN: 1, INCONCLUSIVE: 3, HOLDS: 0}  # the worst status first
JUNIT_TAGS = {BROKEN: "failure", INCONCLUSIVE: "error", HOLDS: "system-out"}
NOT_IN_XML = re.compile(r"[^\t\n\r\u0020-\uD7FF\uE000-\uFFFD\U00010000-\U0010FFFF]")  # XML 1.0, §2.2
# Characters that Markdown may read as markup, and those that GitHub needs to make a link of an address.
MARKUP = re.compile(r"([\\`*_{}\[\]<>|#~!$@&]|:(?=/)|(?<=www)\.)", re.IGNORECASE)


def check(settings: CheckSettings) -> int:
    """Print and write whether the limits hold; return 0 if all hold, 1 if one is broken, 3 if one is inconclusive.

    With `inconclusive: pass`, the status is 0 unless a limit is broken.

    Raises:
        InputError: no limit is given, a folder has no finished run with generation bias, or the runs have different
            prompts or classifiers.
    """
    claim_pages(settings.output_dir, "check")
    clear_pages(settings.output_dir, "check")  # an interrupted check must not leave them either
    findings = checked_limits(settings)
    status = _worst_status(findings)
    title = sanitize(str(settings.run))
    if settings.against is not None:
        title += f" against {sanitize(str(settings.against))}"
    passes = settings.inconclusive == "pass"
    write_text(settings.output_dir / JUNIT, junit_xml(title, findings, inconclusive=settings.inconclusive))
    rule = note("rule_of_limits")
    next_step = note("after_check", status=status, passes=passes)
    command = next_command(status, settings)
    write_text(settings.output_dir / SUMMARY, summary_markdown(title, status, findings, f"{rule} {next_step}", command))
    lines = [f"{title}: {status}\n{rule}", *map(str, findings), f"Next: {next_step}\n    {command}".rstrip()]
    print("\n\n".join(lines))
    log.info("check: wrote junit.xml and summary.md to %s", settings.output_dir)
    return 0 if status == INCONCLUSIVE and passes else EXIT_STATUS[status]


def checked_limits(settings: CheckSettings) -> list[LimitText]:
    """Return the results of all limits as sentences, the worst first.

    The limits are of generation bias if the run measured it, else of the screen.
    """
    families = read_measurement(settings.run, "run")[0].metrics
    if SCREEN in families and GENERATION_BIAS not in families:
        texts = limit_texts(screen_findings(settings), FAMILIES[SCREEN])
    else:
        texts = limit_texts(check_findings(settings), FAMILIES[GENERATION_BIAS])
    worst_first = list(EXIT_STATUS)
    return sorted(texts, key=lambda found: worst_first.index(found.status))


def check_findings(settings: CheckSettings) -> list[LimitResult]:
    """Return the findings on the run alone, for each given limit, and on what became worse than in the baseline."""
    limits_the_run = any((settings.max_pooled_fgb, settings.max_difference, settings.max_spread))
    if settings.against is None and (settings.max_rise is not None or not limits_the_run):
        raise InputError(
            "against", "give --against RUN, a baseline, or --max_pooled_fgb, --max_difference or --max_spread alone."
        )
    after = _family_run(settings.run, "run")
    of_run = findings_alone(
        after,
        max_pooled_fgb=settings.max_pooled_fgb,
        max_spread=settings.max_spread,
        max_difference=settings.max_difference,
    )
    findings = [*of_run, *people_without_answers(after)]
    if settings.against is None:
        return findings
    if settings.against.resolve() == settings.run.resolve():
        raise InputError("against", f"{settings.against} is the run itself; give the run of a baseline.")
    before = _family_run(settings.against, "against")
    check_same_precision(before.config, after.config, "run")
    limits_the_rise = settings.max_rise is not None or not limits_the_run
    return [*findings, *findings_against(before, after, settings.max_rise, limits_the_rise=limits_the_rise)]


def _family_run(folder: Path, field: str) -> FamilyRun:
    return FamilyRun(folder, family_config(read_measurement(folder, field, GENERATION_BIAS)[0], GENERATION_BIAS))


def _worst_status(findings: Sequence[LimitText]) -> str:
    """Return the status of the check: the worst status of its findings; HOLDS if there are none."""
    found = {finding.status for finding in findings}
    for status in EXIT_STATUS:
        if status in found:
            return status
    return HOLDS


def next_command(status: str, settings: CheckSettings) -> str:
    """Return the command that shows whom a run treats worse if a limit is broken; else ""."""
    if status != BROKEN:
        return ""
    if settings.against is None:
        return shlex.join(["evenhand", "report", str(settings.run)])
    return shlex.join(["evenhand", "compare", str(settings.against), str(settings.run)])


class HasFolder(Protocol):
    """A run, such as `evenhand.Run`."""

    @property
    def folder(self) -> Path:
        """The run's folder."""
        ...


@python_door()
def assert_no_worse(
    run: Path | str | HasFolder,
    *,
    against: Path | str | HasFolder | None = None,
    max_rise: float | None = None,
    max_pooled_fgb: float | None = None,
    max_difference: float | None = None,
    max_spread: Mapping[str, float] | None = None,
    inconclusive: str = "fail",
) -> None:
    """Raise AssertionError unless a run is shown to be no more biased than a baseline, or to be within given limits.

    Args:
        run: a finished run of `measure`, of the new model, or its folder.
        against: such a run of the baseline, over the same prompts, or its folder. None: only the limits of the run
            alone, one of the three below, are checked, as of a log, whose prompts no other run has.
        max_rise: limit of the rise of pooled FGB*, in % of the baseline's; None: the smallest limit that these runs
            show to hold with a probability of 80 % if nothing has changed, or, if the baseline shows no bias,
            `max_pooled_fgb` 5.
        max_pooled_fgb: limit of pooled FGB* of the run, in 10⁻³, in place of a rise.
        max_difference: limit of the largest difference in a style of anybody from the average, in answers of 100.
        max_spread: outcome → limit of its spread between people, in its unit.
        inconclusive: "fail" or "pass", what happens if the runs are too small to tell whether a limit holds.

    Raises:
        AssertionError: a limit is shown to be exceeded, or, unless inconclusive limits pass, is not shown to hold; or
            the effect on a descriptor, or an outcome such as another language, is shown to have grown. The message has
            the numbers.
        InputError: a folder has no such run, the runs have different prompts or classifiers, or a limit is no number
            from 0.
    """
    folders = {name: getattr(each, "folder", each) for name, each in (("run", run), ("against", against))}
    limits = {
        "max_rise": max_rise,
        "max_pooled_fgb": max_pooled_fgb,
        "max_difference": max_difference,
        "max_spread": max_spread or {},
        "inconclusive": inconclusive,
    }
    settings = checked(CheckSettings, {**folders, **limits}, "assert_no_worse")
    allowed = (HOLDS, INCONCLUSIVE) if settings.inconclusive == "pass" else (HOLDS,)
    failed = [str(found) for found in checked_limits(settings) if found.status not in allowed]
    if failed:
        raise AssertionError("\n".join(failed))


def junit_xml(title: str, findings: Sequence[LimitText], inconclusive: str = "fail") -> str:
    """Return the findings as JUnit XML test cases.

    "broken" is a failure; "inconclusive" is an error, or skipped if it passes.

    Source: the JUnit schema of the Jenkins xUnit plugin, `junit-10.xsd`.
    """
    tags = {**JUNIT_TAGS, INCONCLUSIVE: "skipped"} if inconclusive == "pass" else JUNIT_TAGS
    used = [tags[found.status] for found in findings]
    counts = {
        "tests": str(len(findings)),
        "failures": str(used.count("failure")),
        "errors": str(used.count("error")),
    }
    suites = ElementTree.Element("testsuites", counts)
    skipped = {"skipped": str(used.count("skipped"))}
    suite = ElementTree.SubElement(suites, "testsuite", {"name": "evenhand check", **counts, **skipped})
    for found in findings:
        case = ElementTree.SubElement(suite, "testcase", classname=NOT_IN_XML.sub("?", title), name=found.name)
        tag = tags[found.status]
        summary = NOT_IN_XML.sub("?", f"{found.status}: {found.text}")  # many viewers show nothing else
        part = ElementTree.SubElement(case, tag, {} if found.status == HOLDS else {"message": summary})
        part.text = NOT_IN_XML.sub("?", str(found))
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True).decode() + "\n"


def summary_markdown(title: str, status: str, findings: Sequence[LimitText], advice: str, command: str = "") -> str:
    """Return the findings, and `advice` on how to read them, as Markdown with escaped texts.

    The command, if there is one, is a code block, from which it can be copied.
    """

    def escaped(text: str) -> str:
        return MARKUP.sub(r"\\\1", sanitize(text))

    lines = [
        f"## Evenhand: {status}",
        "",
        escaped(title),
        "",
        escaped(advice),
        "",
        *([f"    {sanitize(command)}", ""] if command else []),
        "| limit | status | measured |",
        "| :--- | :--- | :--- |",
    ]
    lines += [f"| {escaped(found.name)} | **{found.status}** | {escaped(found.text)} |" for found in findings]
    for found in findings:
        if found.details:
            lines += ["", f"**{escaped(found.name)}**", ""]
            lines += [f"- {escaped(detail)}" for detail in found.details]
    return "\n".join(lines) + "\n"
