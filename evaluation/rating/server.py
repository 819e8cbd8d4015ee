"""Web server of the rating page, which shows a pair of responses and a question to a rater.

An answer is on the disk before the next question is shown. By default the server listens on the loopback address. All
paths contain a secret token, so that only people with the link can rate, and no other site can send an answer. The page
is three static files; its script shows all texts as text, and loads nothing from elsewhere.
"""

import secrets
import socket
import unicodedata
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

import pandas as pd
import uvicorn
from pydantic import AfterValidator, BaseModel, StringConstraints, ValidationError
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from evenhand.evaluation import columns
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import atomic_write
from evenhand.evaluation.json_values import Json
from evenhand.evaluation.rating.response_pairs import left_side, other_side
from evenhand.evaluation.rating.votes import Vote, Votes
from evenhand.evaluation.untrusted_text import escape_hidden

MAX_ANSWER_BYTES = 10_000  # of a request to the server
TOKEN = "token"  # file in the folder of a rating, so that a restarted server has the same link
LOOPBACK = ["127.0.0.1", "localhost"]
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'; img-src data:; base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",  # hides the token
    "X-Content-Type-Options": "nosniff",
}


def _readable(text: str) -> str:
    """Return a text without outer white space, with composed letters, and with hidden characters made visible."""
    lines = unicodedata.normalize("NFC", text).strip().splitlines()
    return "\n".join(escape_hidden(line) for line in lines)


class RaterAnswer(BaseModel):
    """A rater's answer to a question about a pair; without a choice, only the next question is asked for."""

    rater: Annotated[str, AfterValidator(_readable), StringConstraints(min_length=1, max_length=60)]
    choice: Literal["left", "right", "skip", "undo"] | None = None
    prompt_id: str = ""
    question: str = ""


@dataclass(frozen=True)
class Rating:
    """A rating: pairs, questions by name, raters' votes, and the seed that decides which response is on the left."""

    pairs: pd.DataFrame
    questions: dict[str, str]
    votes: Votes
    seed: int

    def items(self, rater: str) -> list[tuple[str, str]]:
        """Return the items (prompt_id, question) that a rater has neither answered nor skipped, in their order."""
        items = []
        for prompt_id in self.pairs[columns.PROMPT_ID]:
            for question in self.questions:
                if (rater, prompt_id, question) not in self.votes.by_key:
                    items.append((prompt_id, question))
        return items

    def record(self, answer: RaterAnswer) -> None:
        """Save an answer to the rater's next question, or undo the last one; ignore a second answer or an old page."""
        if answer.choice is None:
            return
        if answer.choice == "undo":
            votes = self.votes.by_rater(answer.rater)
            if votes:
                self.votes.add(votes[-1], undo=True)
            return
        items = self.items(answer.rater)
        if not items or items[0] != (answer.prompt_id, answer.question):
            return
        left = left_side(answer.rater, answer.prompt_id, self.seed)
        choices = {"left": left, "right": other_side(left), "skip": None}
        vote = Vote(
            rater=answer.rater,
            prompt_id=answer.prompt_id,
            question=answer.question,
            choice=choices[answer.choice],
            left=left,
            time=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        self.votes.add(vote)

    def next_question(self, rater: str) -> dict[str, Json]:
        """Return what the page shows: a rater's next question, without the models' names; or only how many are done."""
        items = self.items(rater)
        total = len(self.pairs) * len(self.questions)
        progress = {"rater": rater, "done": total - len(items), "total": total}
        if not items:
            return progress
        prompt_id, question = items[0]
        row = self.pairs.set_index(columns.PROMPT_ID).loc[prompt_id]
        left = left_side(rater, prompt_id, self.seed)
        return {
            **progress,
            "prompt_id": prompt_id,
            "question": question,
            "text": self.questions[question],
            "prompt": _readable(str(row[columns.TEXT])),
            "left": _readable(str(row[left])),
            "right": _readable(str(row[other_side(left)])),
        }


def rating_app(rating: Rating, token: str, host: str) -> Starlette:
    """Return the web app of a rating, with its page under /token/, for a server that listens on `host`."""

    async def answer(request: Request) -> Response:
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > MAX_ANSWER_BYTES:
                return PlainTextResponse("This is not an answer: it is too long.", 413)
        try:
            given = RaterAnswer.model_validate_json(bytes(body))
            rating.record(given)
        except ValidationError as error:
            return PlainTextResponse(f"This is not an answer: {error.errors()[0]['msg']}.", 400)
        except (OSError, InputError) as error:
            return PlainTextResponse(f"The answer cannot be saved: {error}", 507)
        return JSONResponse(rating.next_question(given.rater))

    pages = StaticFiles(directory=Path(__file__).with_name("pages"), html=True)
    routes = [Mount(f"/{token}", routes=[Route("/answer", answer, methods=["POST"]), Mount("/", pages)])]
    # A public name may resolve to the loopback address (DNS rebinding).
    allowed = LOOPBACK if host in LOOPBACK else ["*"]
    return Starlette(routes=routes, middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=allowed)])


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on `host` and `port`; port 0 selects a free port."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise InputError("port", f"cannot listen on {host}:{port} ({error}); --port 0 uses a free port.") from None


def load_token(folder: Path) -> str:
    """Return the token in a rating's folder; a missing token file is created, readable by the user only."""
    path = folder / TOKEN
    if not path.exists():
        with atomic_write(path) as temporary:
            temporary.touch(mode=0o600)
            temporary.write_text(secrets.token_urlsafe(24), encoding="ascii")
    return path.read_text(encoding="ascii")


def serve(app: Starlette, listening: socket.socket) -> None:
    """Serve the app until the process is interrupted, without an access log, because paths contain the token."""
    config = uvicorn.Config(
        app,
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        headers=list(HEADERS.items()),
        server_header=False,
        timeout_graceful_shutdown=3,
    )
    uvicorn.Server(config).run(sockets=[listening])
