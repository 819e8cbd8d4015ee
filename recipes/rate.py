"""The command `rate`: human votes on pairs of responses, win rates and agreement (Smith et al. 2022, §C.2.2)."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from evenhand.evaluation import columns
from evenhand.evaluation.errors import InputError, require_extra
from evenhand.evaluation.files import check_links_inside, json_sha256, sha256_of
from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.metrics.generation_bias.engine.spread import FGB
from evenhand.evaluation.rating.metrics import page, rating_scores
from evenhand.evaluation.rating.response_pairs import (
    OFFENSIVE,
    REASONS,
    SIDES,
    exclusion_reasons,
    read_left_out,
    read_questions,
    read_response_pairs,
    sample_pairs,
)
from evenhand.evaluation.rating.votes import VOTES, Votes, read_votes
from evenhand.evaluation.report.output import present
from evenhand.evaluation.report.page import Page
from evenhand.evaluation.runs.lock import run_lock
from evenhand.evaluation.runs.record import FinishedRecord, package_versions, read_run, run_sha256
from evenhand.evaluation.runs.results import TRACKERS
from evenhand.evaluation.runs.stage import stage
from evenhand.evaluation.runs.tracking import start_tracking
from evenhand.evaluation.score import SCORES, BiasScore, Signature, write_scores
from evenhand.evaluation.settings import as_settings
from evenhand.evaluation.tables import read_table
from evenhand.recipes.command_settings import RateSettings
from evenhand.recipes.finished_runs import read_measurement
from evenhand.recipes.settings import GENERATION_BIAS

log = logging.getLogger("evenhand")


class RatingRecord(FinishedRecord):
    """The content of the run.json of a finished sampling of pairs.

    Attributes:
        left_out: the number of pairs that are left out, by the reason; None for a reason that was not looked for.
        questions: the text of each question, by its name.
        models: the displayed names of the two models.
        signature: what decides which pairs are shown.
    """

    left_out: dict[str, int | None]
    questions: dict[str, str]
    models: tuple[str, str]
    signature: Signature


PAIRS = "pairs"
SUMMARY = "summary"
SAMPLED = (*SIDES, "pairs", "questions", "leave_out", "seed")  # settings of the pairs, which a summary cannot change


def rate(settings: RateSettings) -> None:
    """Sample pairs and serve the rating page until Ctrl-C; or summarise the votes so far, over an earlier summary.

    Raises:
        InputError: the prompts of the runs differ, all pairs are excluded, or a summary has no votes.
    """
    if not settings.summary:
        require_extra("rate", "starlette", "uvicorn", field="rate")
        _sample_pairs(settings)
        _serve(settings)
        return
    _check_same_rating(settings)
    scores, report = summary(settings.output_dir, "output_dir")
    with start_tracking("rate", settings) as tracker:
        files = write_summary(settings.output_dir, scores, report, show=True)
        tracker.log_scores(scores)
        tracker.log_report(files)
        tracker.log_artifact("rating", "report", settings.output_dir / SUMMARY / SCORES, *files)


def _check_same_rating(settings: RateSettings) -> None:
    """Raise InputError if a summary is asked for with settings that the pairs were not sampled with."""
    recorded, _ = read_run(settings.output_dir, "rate", "output_dir")
    defaults = as_settings(RateSettings())
    for name, value in as_settings(settings).items():
        if name not in SAMPLED or value in (defaults[name], recorded.get(name)):
            continue
        if name not in SIDES or Path(value).resolve() != Path(recorded[name]).resolve():
            raise InputError(
                name,
                f"{value!r}, but the pairs in {settings.output_dir} were sampled with {recorded.get(name)!r}; "
                "leave it out, or give the folder of that rating.",
            )


def _sample_pairs(settings: RateSettings) -> None:
    """Write the pairs, unless they exist."""
    runs = {side: read_measurement(getattr(settings, side), side, GENERATION_BIAS) for side in SIDES}
    questions = read_questions(settings.questions)
    lists = read_left_out(settings.leave_out)
    inputs = {side: run_sha256(record) for side, (_, record) in runs.items()}
    inputs |= {"questions": json_sha256(list(questions.items())), "leave_out": json_sha256(lists)}
    with stage("rate", settings.replaced(report_to="none"), inputs) as store:  # only the summary is tracked
        if store is None:
            return
        all_pairs = read_response_pairs(settings.before, settings.after)
        reasons = exclusion_reasons(all_pairs, lists)
        pairs = sample_pairs(all_pairs[reasons.isna()], settings.pairs, settings.seed)
        if pairs.empty:
            raise InputError("leave_out", "all pairs are excluded; use shorter lists of words.")
        store.write(PAIRS, pairs)
        n_left_out: dict[str, int | None] = {reason: int((reasons == reason).sum()) for reason in REASONS}
        if all_pairs[OFFENSIVE].isna().all():  # neither run has a classifier
            n_left_out[OFFENSIVE] = None
        before = FamilyRun(settings.before).signature(FGB)
        after = FamilyRun(settings.after).signature(FGB)
        signature = {
            **{name: after[name] for name in ("model", "dataset", "decoding") if name in after},
            "base": before.get("model"),
            "questions": questions,
            "inputs": dict(store.inputs),
            "seed": settings.seed,
            "packages": package_versions(),
        }
        store.record |= {
            "left_out": n_left_out,
            "questions": questions,
            "models": [measured.model.name for measured, _ in runs.values()],
            "signature": signature,
        }


def _serve(settings: RateSettings) -> None:
    from evenhand.evaluation.rating.server import Rating, listen, load_token, rating_app, serve  # of the extra `rate`

    folder = settings.output_dir
    config, found = read_run(folder, "rate", "output_dir")
    record = cast(RatingRecord, found)
    pairs = read_table(folder / f"{PAIRS}.parquet")
    with run_lock(folder), listen(settings.host, settings.port) as socket:
        votes = Votes(folder / VOTES)
        token = load_token(folder)
        address, port = socket.getsockname()[:2]
        app = rating_app(Rating(pairs, record["questions"], votes, config["seed"]), token, settings.host)
        hostname = f"[{address}]" if ":" in address else address
        print(f"Rate at http://{hostname}:{port}/{token}/ (end with Ctrl-C; every vote is saved)", flush=True)
        try:
            serve(app, socket)
        except KeyboardInterrupt:  # Ctrl-C is the normal way to stop the server
            pass
        finally:
            n = len(votes.by_key)
            log.info("rate: %d votes; `evenhand rate --summary --output_dir %s` summarises them", n, folder)


def summary(folder: Path, field_name: str) -> tuple[list[BiasScore], Page]:
    """Return the scores and the report of all votes so far.

    Raises:
        InputError: the folder has no pairs, or no votes.
    """
    record = cast(RatingRecord, read_run(folder, "rate", field_name)[1])
    pairs = read_table(folder / f"{PAIRS}.parquet")
    votes = read_votes(folder / VOTES)
    if votes.empty:
        raise InputError(field_name, f"{folder} has no votes; collect votes by `evenhand rate` without --summary.")
    votes = votes.merge(pairs[[columns.PROMPT_ID, columns.AXIS]], on=columns.PROMPT_ID)
    questions = record["questions"]
    signature = {**record["signature"], "votes": sha256_of(folder / VOTES)}
    scores = rating_scores(votes, questions, signature)
    return scores, page(scores, votes, pairs, questions, record["models"], record["left_out"])


def write_summary(folder: Path, scores: Sequence[BiasScore], report: Page, *, show: bool) -> dict[Path, Page]:
    """Write the scores and the report into the folder of the pairs; return the report by its path.

    Raises:
        InputError: a link in the folder leads out of the folder.
    """
    check_links_inside(folder, "output_dir", leave_out=TRACKERS)
    write_scores(folder / SUMMARY / SCORES, scores)
    return present(folder / SUMMARY, {"rating": report}, write=True, show=show)
