"""Web server of the rating pages. A page shows a pair of responses and a question to a rater.

An answer is saved before the next page is shown. By default the server listens on the loopback address. All paths
contain a secret token, so that only people with the link can rate; the server sets no cookies. Requests from other
sites are rejected (CSRF). A server on the loopback address also rejects other host names, since a public name can
resolve to the loopback address (DNS rebinding).
"""

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
from evenhand.evaluation.files import atomic_write
from evenhand.evaluation.rating.pairs import left_side, other_side
from evenhand.evaluation.rating.votes import Item, Vote, Votes, rater_name
from evenhand.evaluation.report.html import style_sheet
from evenhand.evaluation.report.numbers import sanitize
from evenhand.evaluation.score import PROMPT_ID, TEXT

TOKEN = "token"  # file in the folder of a rating, so that a restarted server has the same link
LOOPBACK = ("127.0.0.1", "localhost", "::1")
MAX_BODY_BYTES = 1 << 14  # maximum size of an answer
CLOSE_SECONDS = 3  # time that open connections have when the server stops
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",  # hides the token; "no-referrer" would remove Origin
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True)
class Rating:
    """A rating: pairs, questions by name, raters' votes, and the seed that decides which response is on the left."""

    pairs: pd.DataFrame
    questions: dict[str, str]
    votes: Votes
    seed: int

    def items(self) -> Sequence[Item]:
        """Return all items, which are a prompt_id and the name of a question, in the order in which raters see them."""
        return [(prompt_id, question) for prompt_id in self.pairs[PROMPT_ID] for question in self.questions]

    def next_item(self, rater: str) -> Item | None:
        """Return the first item that a rater has neither answered nor skipped; None if no item is left."""
        answered = self.votes.items(rater)
        return next((item for item in self.items() if item not in answered), None)

    def vote(self, rater: str, item: Item, button: str) -> Vote:
        """Return the vote of a rater who presses the button "left", "right" or "skip" for an item."""
        left = left_side(rater, item[0], self.seed)
        choice = {"left": left, "right": other_side(left), "skip": None}[button]
        return Vote(rater, *item, choice, left, _now())


def rating_app(rating: Rating, token: str, host: str) -> Starlette:
    """Return the web app of a rating, with its pages under /token/, for a server that listens on `host`."""

    async def welcome(request: Request) -> Response:
        return _page("welcome.html.j2", questions=list(rating.questions.values()), n=len(rating.pairs))

    async def rate(request: Request) -> Response:
        rater = rater_name(request.query_params.get("rater", ""))
        if not rater:
            return RedirectResponse(f"/{token}/", status_code=303)
        return _pair_page(rating, rater)

    async def vote(request: Request) -> Response:
        form = await _read_form(request)
        # The rater's name must be in normal form, because the side on the left depends on the name.
        rater, item = form.get("rater", ""), (form.get(PROMPT_ID, ""), form.get("question", ""))
        button = form.get("choice")
        if button not in ("left", "right", "skip", "undo") or not rater or rater != rater_name(rater):
            return PlainTextResponse("This is not a vote.", 400)
        try:
            if button == "undo":
                rating.votes.undo(rater, _now())
            elif item != rating.next_item(rater):  # a second vote, or an old page
                return PlainTextResponse("This question has an answer already; the first answer counts.", 409)
            else:
                rating.votes.add(rating.vote(rater, item, button))
        except OSError as error:
            return PlainTextResponse(f"The vote cannot be written: {error}", 507)
        return RedirectResponse(f"/{token}/rate?{urlencode({'rater': rater})}", status_code=303)

    async def guard(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        rejection = _check_request(request, token, host)
        response = await call_next(request) if rejection is None else PlainTextResponse(*rejection)
        for name, value in HEADERS.items():
            response.headers[name] = value
        response.headers.setdefault("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
        return response

    pages = [Route("/", welcome), Route("/rate", rate), Route("/vote", vote, methods=["POST"])]
    return Starlette(
        routes=[Mount(f"/{token}", routes=pages)], middleware=[Middleware(BaseHTTPMiddleware, dispatch=guard)]
    )


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on `host` and `port`; port 0 selects a free port.

    Raises:
        InputError: the address is in use or invalid.
    """
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, OverflowError) as error:
        raise InputError(f"port: cannot listen on {host}:{port} ({error}); --port 0 uses a free port.") from None


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
    options = {"http": "h11", "ws": "none", "lifespan": "off", "log_level": "warning", "access_log": False}
    options |= {"proxy_headers": False, "server_header": False, "timeout_graceful_shutdown": CLOSE_SECONDS}
    uvicorn.Server(uvicorn.Config(app, **options)).run(sockets=[listening])


async def _read_form(request: Request) -> dict[str, str]:
    """Return the fields of a submitted form, each with its first value; HTTPException if it is not complete UTF-8."""
    try:
        body = (await request.body()).decode()
        return {name: values[0] for name, values in parse_qs(body, errors="strict").items()}
    except (UnicodeDecodeError, ClientDisconnect):
        raise HTTPException(400, "This is not a vote: it is incomplete or not UTF-8.") from None


def _check_request(request: Request, token: str, host: str) -> tuple[str, int] | None:
    """Return the error message and the HTTP status if a request is rejected, None if it is accepted."""
    headers = request.headers
    if host in LOOPBACK and request.url.hostname not in LOOPBACK:
        return "This server is for its own machine only.", 403
    if not secrets.compare_digest(request.url.path.split("/")[1].encode(), token.encode()):
        return "This link is not valid; use the link that `evenhand rate` prints.", 403
    if request.method == "POST":
        if urlsplit(headers.get("origin", "")).netloc != headers.get("host"):
            return "Answers from other sites are rejected.", 403
        if not headers.get("content-length", "").isdigit() or int(headers["content-length"]) > MAX_BODY_BYTES:
            return "This is not a vote: it is too long.", 413
    return None


def _pair_page(rating: Rating, rater: str) -> Response:
    """Return the page of a rater's next pair and question, without the models' names; the last page if none is left."""
    done, total = len(rating.votes.items(rater)), len(rating.items())
    context: dict[str, Any] = {"rater": rater, "done": done, "total": total}
    item = rating.next_item(rater)
    if item is None:
        return _page("done.html.j2", **context)
    prompt_id, question = item
    index = rating.pairs.index[rating.pairs[PROMPT_ID] == prompt_id][0]
    row, names = rating.pairs.loc[index], list(rating.questions)
    left = left_side(rater, prompt_id, rating.seed)
    context |= {"prompt_id": prompt_id, "question": question, "prompt": row[TEXT]}
    context |= {"left": row[left], "right": row[other_side(left)], "text": rating.questions[question]}
    context |= {"pair": index + 1, "n_pairs": len(rating.pairs)}
    context |= {"question_number": names.index(question) + 1, "n_questions": len(names)}
    return _page("pair.html.j2", **context)


def _page(template: str, **context: Any) -> Response:
    """Return the HTML page of a template; the content security policy allows only the page's script and style."""
    nonce = secrets.token_urlsafe(16)
    html = _environment().get_template(template).render(nonce=nonce, css=style_sheet(), **context)
    policy = (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; "
        "img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
    return HTMLResponse(html, headers={"Content-Security-Policy": policy})


@cache
def _environment() -> Environment:
    """Return the Jinja environment of the page templates, which escapes all values and rejects undefined names."""
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
    return "\n".join(sanitize(line, max(len(line), 1)) for line in text.strip().splitlines())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
