"""The rating pages: a small web server that shows a pair and a question, and keeps each answer before the next.

It listens on one machine's own address unless told otherwise. Whoever has the link may rate: a token in its path is
asked for everything, there are no cookies. Answers from pages of other sites are refused, as is a Host that is not
this machine's where it listens to itself alone (a name on the Web can be made to point here).
"""

import asyncio
import secrets
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pandas as pd
import uvicorn
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.rating.pairs import left_side, other_side
from evenhand.evaluation.rating.votes import Item, Vote, Votes, rater_name
from evenhand.evaluation.report.html import style_sheet
from evenhand.evaluation.report.numbers import sanitize
from evenhand.evaluation.results import PROMPT_ID, TEXT
from evenhand.evaluation.runs.files import atomic_write, disk_full_message, is_disk_full

TOKEN = "token"  # file of a rating's folder: the link stays the same when the server is started again
LOOPBACK = ("127.0.0.1", "localhost", "::1")
MAX_BODY_BYTES = 1 << 14  # bytes of an answer
CLOSE_SECONDS = 3  # for what a browser keeps open
BODY_SECONDS = 10  # until an answer has arrived whole; uvicorn has no such limit
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",  # the token is in the address; without any, an answer would say no Origin
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True)
class Rating:
    """What is judged, by which questions, and where the votes go."""

    pairs: pd.DataFrame
    questions: dict[str, str]
    votes: Votes
    seed: int

    def items(self) -> Sequence[Item]:
        """Return all that a rater is asked, pair by pair."""
        return [(prompt_id, question) for prompt_id in self.pairs[PROMPT_ID] for question in self.questions]

    def next_item(self, rater: str) -> Item | None:
        """Return the first thing that a rater has not judged or skipped; None at the end."""
        judged = self.votes.items(rater)
        return next((item for item in self.items() if item not in judged), None)

    def vote(self, rater: str, item: Item, button: str) -> Vote:
        """Return the vote that a button means: "left", "right" or "skip"."""
        left = left_side(rater, item[0], self.seed)
        choice = {"left": left, "right": other_side(left), "skip": None}[button]
        return Vote(rater, *item, choice, left, _now())


def rating_app(rating: Rating, token: str, host: str) -> Starlette:
    """Return the pages under /token/, for requests to a server that listens on `host`."""

    async def welcome(request: Request) -> Response:
        return _page("welcome.html.j2", questions=list(rating.questions.values()), n=len(rating.pairs))

    async def rate(request: Request) -> Response:
        rater = rater_name(request.query_params.get("rater", ""))
        if not rater:
            return RedirectResponse(f"/{token}/", status_code=303)
        return _pair_page(rating, rater)

    async def vote(request: Request) -> Response:
        form = await _read_form(request)
        # The name is used as the page wrote it into its form: the page and the vote draw the left side from one string.
        rater, item = form.get("rater", ""), (form.get(PROMPT_ID, ""), form.get("question", ""))
        button = form.get("choice")
        if button not in ("left", "right", "skip", "undo") or not rater or rater != rater_name(rater):
            return PlainTextResponse("This is no vote.", 400)
        try:
            if button == "undo":
                rating.votes.undo(rater, _now())
            elif item != rating.next_item(rater):  # a second vote, or a page that was left open
                return PlainTextResponse("This was answered before; the first answer counts.", 409)
            else:
                rating.votes.add(rating.vote(rater, item, button))
        except OSError as error:
            text = (
                disk_full_message(Path("the vote")) if is_disk_full(error) else f"The vote cannot be written: {error}"
            )
            return PlainTextResponse(text, 507)
        return RedirectResponse(f"/{token}/rate?{urlencode({'rater': rater})}", status_code=303)

    async def guard(request: Request, go_on: Callable[[Request], Awaitable[Response]]) -> Response:
        refusal = _refusal(request, token, host)
        response = await go_on(request) if refusal is None else PlainTextResponse(*refusal)
        for name, value in HEADERS.items():
            response.headers[name] = value
        response.headers.setdefault("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
        return response

    pages = [Route("/", welcome), Route("/rate", rate), Route("/vote", vote, methods=["POST"])]
    return Starlette(
        routes=[Mount(f"/{token}", routes=pages)], middleware=[Middleware(BaseHTTPMiddleware, dispatch=guard)]
    )


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 is any free one.

    Raises:
        InputError: the address cannot be listened on.
    """
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, OverflowError) as error:
        raise InputError(f"port: {host}:{port} cannot be listened on ({error}); --port 0 takes a free one.") from None


def load_token(folder: Path) -> str:
    """Return the token of a rating's link, made once and readable by the user alone."""
    path = folder / TOKEN
    if not path.exists():
        with atomic_write(path) as temporary:
            temporary.touch(mode=0o600)
            temporary.write_text(secrets.token_urlsafe(24), encoding="ascii")
    return path.read_text(encoding="ascii")


def serve(app: Starlette, listening: socket.socket) -> None:
    """Answer requests until the process is told to end."""
    uvicorn.Server(server_config(app)).run(sockets=[listening])


def server_config(app: Starlette) -> uvicorn.Config:
    """Return the settings of the web server: HTTP/1.1 alone, and no log of requests."""
    return uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,  # paths have the token
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=CLOSE_SECONDS,
    )


async def _read_form(request: Request) -> dict[str, str]:
    """Return the fields of a form; of a field with several values, the first.

    Raises:
        HTTPException: the body is not UTF-8 or incomplete (400), or does not arrive in time (408).
    """
    try:
        async with asyncio.timeout(BODY_SECONDS):
            body = await request.body()
        return {name: values[0] for name, values in parse_qs(body.decode(), errors="strict").items()}
    except UnicodeDecodeError:
        raise HTTPException(400, "This is no vote: it is not UTF-8.") from None
    except ClientDisconnect:
        raise HTTPException(400, "This is no vote: the connection was closed before its end.") from None
    except TimeoutError:
        text = f"This is no vote: it did not arrive whole in {BODY_SECONDS} seconds."
        raise HTTPException(408, text, headers={"Connection": "close"}) from None


def _refusal(request: Request, token: str, host: str) -> tuple[str, int] | None:
    """Return why a request is refused and by which status; None if it is not."""
    headers = request.headers
    if host in LOOPBACK and request.url.hostname not in LOOPBACK:
        return "This server answers to its own machine.", 403
    if not secrets.compare_digest(request.url.path.split("/")[1].encode(), token.encode()):
        return "This link is not valid; ask for the one that `evenhand rate` printed.", 403
    if request.method == "POST":
        if urlsplit(headers.get("origin", "")).netloc != headers.get("host"):
            return "Answers from other sites are refused.", 403
        if not headers.get("content-length", "").isdigit() or int(headers["content-length"]) > MAX_BODY_BYTES:
            return "This is no vote.", 413
    return None


def _pair_page(rating: Rating, rater: str) -> Response:
    """Return the page of what a rater judges next, which does not say whose responses they are; or the last page."""
    done, total = len(rating.votes.items(rater)), len(rating.items())
    context: dict[str, Any] = {"rater": rater, "done": done, "total": total}
    item = rating.next_item(rater)
    if item is None:
        return _page("done.html.j2", **context)
    prompt_id, question = item
    place = rating.pairs.index[rating.pairs[PROMPT_ID] == prompt_id][0]
    row, names = rating.pairs.loc[place], list(rating.questions)
    left = left_side(rater, prompt_id, rating.seed)
    context |= {"prompt_id": prompt_id, "question": question, "prompt": row[TEXT]}
    context |= {"left": row[left], "right": row[other_side(left)], "text": rating.questions[question]}
    numbers = {"pair": place + 1, "pairs": len(rating.pairs), "asked": names.index(question) + 1, "asks": len(names)}
    return _page("pair.html.j2", **context, **numbers)


def _page(template: str, **context: Any) -> Response:
    """Return a page whose one script and style are allowed by a nonce, and nothing else is."""
    nonce = secrets.token_urlsafe(16)
    html = _environment().get_template(template).render(nonce=nonce, css=style_sheet(), **context)
    policy = (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; "
        "img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
    return HTMLResponse(html, headers={"Content-Security-Policy": policy})


@cache
def _environment() -> Environment:
    """Return what templates are filled in with: everything escaped, a name that is not there an error."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("pages")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["readable"] = _readable
    return environment


def _readable(text: str) -> str:
    """Return all of a text with its lines, and with nothing hidden in them."""
    return "\n".join(sanitize(line, max(len(line), 1)) for line in text.strip().splitlines())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
