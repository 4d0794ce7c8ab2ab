"""Who may see the page where it leaves the loopback: whoever has the token.

The token comes from a file (a mounted Secret), which is read anew when it has changed.  A program shows it with each
request, as `Authorization: Bearer` or, where something on the way takes that header away as the API server's proxy does,
as `X-Reprise-Token`.  A browser shows it once, in a form, and then has a cookie, which is derived from the token and is not
the token: it opens the page and nothing else, and a new token ends it.  All comparisons take the same time whatever differs.

A request that shows the token in a header may use any host name: no foreign page in a browser could have added it.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from reprise.controller.web.errors import WebError

COOKIE = "reprise-page"
HEADER = "X-Reprise-Token"
PATH = "/login"
OPEN = ("/static/", "/runbooks/")
"""What is answered without the token."""
SHORTEST = 16
_LONGEST_FORM = 4096
_PAGE = """<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <title>Reprise: sign in</title>
    <link rel="stylesheet" href="static/style.css">
  </head>
  <body>
    <main>
      <section class="panel wide" aria-label="Sign in">
        <h1>Sign in</h1>
        <p>{said}</p>
        <form method="post" action="login">
          <label>Token <input name="token" type="password" autocomplete="current-password" required autofocus></label>
          <button>Sign in</button>
        </form>
      </section>
    </main>
  </body>
</html>
"""


class Token:
    """What is in a file.  WebError at the start for one that is not there or too short to be a secret."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read: tuple[float, bytes] = (-1.0, b"")
        if len(self._value()) < SHORTEST:
            raise WebError(f"{path}: the token has fewer than {SHORTEST} characters")

    def _value(self) -> bytes:
        """The last one that could be read, when the file is away for a moment."""
        try:
            changed = self._path.stat().st_mtime
            if changed != self._read[0]:
                found = self._path.read_bytes().strip()
                if found:
                    self._read = changed, found
        except OSError as error:
            if not self._read[1]:
                raise WebError(f"{self._path}: the token cannot be read: {error}") from error
        return self._read[1]

    def cookie(self) -> str:
        """What a browser shows that has signed in."""
        return hmac.new(self._value(), b"reprise page", hashlib.sha256).hexdigest()

    def is_in(self, headers: Mapping[str, str]) -> bool:
        """Whether the token stands in one of the two headers."""
        kind, _, shown = headers.get("Authorization", "").partition(" ")
        bearer = kind.lower() == "bearer" and self.equals(shown.strip())
        return bearer or self.equals(headers.get(HEADER, ""))

    def equals(self, shown: str) -> bool:
        return hmac.compare_digest(_bytes(shown), self._value())

    def signed_in(self, request: web.Request) -> bool:
        """Whether this is a browser that has shown the token before."""
        shown = request.cookies.get(COOKIE, "")
        return hmac.compare_digest(_bytes(shown), self.cookie().encode())


def _bytes(shown: str) -> bytes:
    """Whatever came: a header may be of any bytes, and those that are no text stand in it as surrogates."""
    return shown.encode(errors="surrogatepass")


def ask_for(token: Token) -> Middleware:
    """Answers only those who have shown the token.  Files of the page itself and runbooks hold nothing of any topology; the
    form needs the former, and an alert leads to the latter."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path == PATH and request.method == "POST":
            return await _sign_in(request, token)
        if request.path.startswith(OPEN) or token.is_in(request.headers) or token.signed_in(request):
            return await handler(request)
        if request.path.startswith("/api/"):
            raise web.HTTPUnauthorized(text="show the token\n", headers={"WWW-Authenticate": "Bearer"})
        if request.path not in ("/", PATH):
            raise web.HTTPFound(_up(request.path) + "login")
        return _form(
            "The token is in the Secret that the operator was given.", 200 if request.path == PATH else 401
        )

    return check


def _up(path: str) -> str:
    """The way from a page to the root, relative, as a proxy may have put a prefix before both."""
    return "../" * (path.count("/") - 1)


async def _sign_in(request: web.Request, token: Token) -> web.StreamResponse:
    if (request.content_length or 0) > _LONGEST_FORM:
        raise web.HTTPRequestEntityTooLarge(_LONGEST_FORM, request.content_length or 0)
    try:
        shown = (await request.post()).get("token", "")
    except (ValueError, LookupError) as error:  # no text, no form, or in an encoding that nobody knows
        raise web.HTTPBadRequest(text="this is no form\n") from error
    if not isinstance(shown, str) or not token.equals(shown.strip()):
        return _form("That is not the token.", 403)
    answer = web.HTTPSeeOther("./")
    # what ends TLS before this server says so; who lies keeps the own browser from signing in
    secure = request.secure or request.headers.get("X-Forwarded-Proto", "").lower() == "https"
    answer.set_cookie(COOKIE, token.cookie(), httponly=True, samesite="Strict", secure=secure)
    raise answer


def _form(said: str, status: int) -> web.Response:
    return web.Response(
        text=_PAGE.format(said=said),
        status=status,
        content_type="text/html",
        headers={"Cache-Control": "no-store"},
    )
