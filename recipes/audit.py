"""The command `audit`: one file to hand over, which can be checked, and two pages to read and sign."""

import datetime
import getpass
import hashlib
import json
import platform
import shlex
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, UndefinedError

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import read_json, write_text
from evenhand.evaluation.report.numbers import (
    NO_NUMBER,
    UNIT,
    decimals_for_interval,
    first_of,
    interval,
    number,
    p_value,
    plain_name,
    sanitize,
    shown_interval,
)
from evenhand.evaluation.report.words import agreeing, counted
from evenhand.evaluation.runs.pages import claim_pages
from evenhand.evaluation.runs.record import read_run
from evenhand.evaluation.settings import checked
from evenhand.recipes.audit_facts import SCHEMA, Criteria, audit_facts, read_criteria
from evenhand.recipes.command_settings import AuditSettings
from evenhand.recipes.every_eval_ever import every_eval_ever
from evenhand.recipes.settings import GENERATION_BIAS

AUDIT, PAGE = "audit.json", "audit.html"
SHARED = "every_eval_ever.json"
LARGEST_RATIO = 100
MAX_COMMAND = MAX_TEXT = 100_000  # characters


def audit(settings: AuditSettings) -> int:
    """Write audit.json and audit.html about a finished run; or, with `verify`, compare such a file with the run.

    Returns:
        0; with `verify`, 1 if anything differs.

    Raises:
        InputError: the folder has no finished run of `measure`, or a file is no audit or sets no limits.
    """
    if settings.verify is not None:
        return verify(settings.verify, settings.run)
    claim_pages(settings.output_dir, "audit")
    _, record = read_run(settings.run, "measure", "run")
    if GENERATION_BIAS not in record["settings"].get("metrics", []):
        raise InputError(
            "run", f"{settings.run} has no answers: it did not measure {GENERATION_BIAS}; give a run that did."
        )
    criteria = None if settings.criteria is None else read_criteria(settings.criteria)
    facts = audit_facts(settings.run, record, criteria)
    facts["written"] = {
        "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "by": None if settings.anonymous else settings.by or getpass.getuser(),
        "host": None if settings.anonymous else platform.node(),
    }
    text = canonical(facts)
    write_text(settings.output_dir / AUDIT, text)
    written = json.loads(text)  # the page follows from the file alone, as `verify` makes it
    write_text(settings.output_dir / PAGE, audit_html(written, sha256=digest(text)))
    if settings.format == "every_eval_ever":
        write_text(settings.output_dir / SHARED, canonical(every_eval_ever(facts)))
    print(f"{settings.output_dir / AUDIT}: SHA-256 {digest(text)}")
    print(f"Page: {(settings.output_dir / PAGE).resolve()}")
    return 0


def verify(path: Path, folder: Path) -> int:
    """Print what differs between an audit and the run that it is about; return 1 if anything does, else 0.

    Raises:
        InputError: the file is no audit of this version.
    """
    given = read_json(path, "verify")
    if not isinstance(given, dict) or given.get("schema") != SCHEMA:
        raise InputError("verify", f"{path} is no audit of the schema {SCHEMA}.")
    for name in ("files", "criterion", "written"):
        if not isinstance(given.get(name), dict):
            raise InputError("verify", f"{path} has no {name!r}, or was changed there; ask for the audit again.")
    try:
        text = canonical(given)
    except ValueError:
        raise InputError(
            "verify", f"{path} has NaN or an infinite number, which no audit has; ask for the audit again."
        ) from None
    changed = changed_files(given, folder)
    if not changed:
        _, record = read_run(folder, "measure", "run")
        limits = given["criterion"].get("given")
        criteria = None if limits is None else checked(Criteria, limits, str(path))
        found = json.loads(canonical(audit_facts(folder, record, criteria)))
        changed = differences({name: value for name, value in given.items() if name != "written"}, found)
    for name in changed:
        print(f"differs: {sanitize(name)}")
    page = path.with_name(PAGE)
    if page.is_file() and not changed and not _is_page_of(given, page.read_text(encoding="utf-8")):
        changed.append(PAGE)
        print(f"differs: {PAGE} is not the page of {path.name}")
    if path.read_text(encoding="utf-8") != text:
        changed.append(path.name)
        print(f"differs: {path.name} is not in the form in which it was written")
    print(f"{path}: {'does not match' if changed else 'matches'} {folder}; SHA-256 {digest(text)}")
    return 1 if changed else 0


def _is_page_of(facts: dict[str, Any], page: str) -> bool:
    """Return whether a page is that of an audit; facts that lack something have no page."""
    try:
        return page == audit_html(facts, digest(canonical(facts)))
    except (UndefinedError, TypeError):
        return False


def changed_files(given: dict[str, Any], folder: Path) -> list[str]:
    """Return the names of the files that the audit lists and the folder lacks or has with another content."""
    changed = []
    for name, recorded in given["files"].items():
        path = folder / Path(name).name
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != recorded:
            changed.append(name)
    return changed


def differences(given: Any, found: Any, name: str = "") -> list[str]:
    """Return the dotted names of the values that differ."""
    if isinstance(given, dict) and isinstance(found, dict):
        names = sorted({*given, *found})
        return [
            each for key in names for each in differences(given.get(key), found.get(key), f"{name}.{key}".strip("."))
        ]
    return [] if given == found else [name]


def canonical(value: Any) -> str:
    """Return a value as JSON with sorted names and without blanks, so that equal values have equal bytes."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False) + "\n"


def digest(text: str) -> str:
    """Return the SHA-256 of a text in UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()


def audit_html(facts: dict[str, Any], sha256: str) -> str:
    """Return the facts as a page of two printed sheets; all texts are escaped."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"counted": counted, "agreeing": agreeing, "first_of": first_of}
    environment.filters |= {"p_value": p_value, "shown_interval": shown_interval}
    environment.filters["clean"] = lambda value: sanitize(str(value))
    environment.filters["clean_text"] = lambda text: sanitize(text, MAX_TEXT)
    environment.filters["group"] = _group_name
    environment.filters["typed"] = lambda words: sanitize(shlex.join(map(str, words)), MAX_COMMAND)
    environment.filters["time"] = lambda text: sanitize(str(text).replace("T", " ").replace("+00:00", " UTC"))
    environment.filters["number"] = lambda value, decimals: NO_NUMBER if value is None else number(value, decimals)
    environment.filters["share"] = lambda value: NO_NUMBER if value is None else number(100 * value, 1)
    environment.filters["score_texts"] = _score_texts
    environment.filters["ratio"] = _ratio_text
    return environment.get_template("audit_page.html.j2").render(
        facts=facts, sha256=sha256, largest_ratio=LARGEST_RATIO
    )


def _ratio_text(value: float | None, missing: str = "–") -> str:
    """Return a ratio, or a bound of one; a bound above LARGEST_RATIO says that nothing is known."""
    if value is None:
        return missing
    return f"{value:.2f}" if value <= LARGEST_RATIO else f"> {LARGEST_RATIO}"


def _group_name(name: str) -> str:
    """Return the name of an axis, or of a bucket behind its axis, as words.

    >>> _group_name("body_type: all"), _group_name("nonce")
    ('body type: all', 'made-up words')
    """
    return ": ".join(plain_name(part) for part in name.split(": "))


def _score_texts(score: dict[str, Any]) -> tuple[str, str]:
    """Return the value of a score and its interval, in the score's unit, with common decimals."""
    decimals = 2 if score["unit"] == UNIT else 1
    bounds = None
    if score["interval"] is not None:
        low, high = score["interval"]
        bounds = (score["factor"] * low, score["factor"] * high)
        decimals = decimals_for_interval(bounds, decimals)
    value = NO_NUMBER if score["value"] is None else number(score["factor"] * score["value"], decimals)
    return value, interval(bounds, decimals) or NO_NUMBER
