"""A webhook that is told of an alarm once: JSON by POST, with few attempts, and nothing lost if all fail."""

from __future__ import annotations

import hashlib
import http.client
import re
import time
import urllib.error
import urllib.request
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import msgspec

from oddnode.watch.answers import Alarm, State, Window
from oddnode.watch.watch import Watch

_SECONDS = 10
_ATTEMPTS = 3
_PAUSE = 1.0
_BLANKS = re.compile(r"[\s\x00-\x1f\x7f]")


def check_url(url: str) -> str:
    """Check the address of a webhook, and return its host: the rest may be a secret."""
    scheme = ""
    with suppress(ValueError):
        parts = urlsplit(url)
        scheme = parts.scheme
        if scheme in ("http", "https") and parts.hostname and parts.port != 0 and not _BLANKS.search(url):
            return parts.hostname
    raise ValueError(
        f"the webhook has the scheme {scheme!r}, and a host, port or blanks that no address has; expected an address "
        "like https://host/path or https://host:8443/path"
        if scheme in ("http", "https")
        else f"the webhook has the scheme {scheme!r}, expected an address like https://host/path"
    )


def send(watch: Watch, url: str, pause: float = _PAUSE) -> tuple[bool, str]:
    """Send the alarm that stands, unless this webhook has been told of it.

    The body has ``id`` (also as the header ``Idempotency-Key``), ``text``, ``alarm`` and ``window``. Only an answer
    of the kind 2xx counts as told; redirects are not followed. A later run tries again.

    Parameters
    ----------
    watch : Watch
        The watch, whose state remembers what was sent.
    url : str
        The address, http or https.
    pause : float
        Seconds between the first two of three attempts; twice that between the others.

    Returns
    -------
    bool
        Whether the alarm was sent now.
    str
        Why not; empty if there was nothing to send.
    """
    host, state = check_url(url), watch.state()
    receiver = hashlib.sha256(url.encode()).hexdigest()[:12]
    alarm = state.alarm
    if alarm is None or f"{alarm.id} {receiver}" in state.sent:
        return False, ""
    problem = ""
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(pause * 2 ** (attempt - 1))
        problem = _post(url, alarm.id, body_of(alarm, state))
        if not problem:
            watch.mark_sent(alarm, receiver)
            return True, ""
    return False, f"the webhook at {host} was not told of the alarm {alarm.id}: {problem}; the next run tries again"


def sentence(alarm: Alarm) -> str:
    """Say what an alarm means."""
    return (
        f"New rows no longer score as known ones, since the window {alarm.window} at the latest: the evidence is "
        f"{_odds(alarm.log10_evidence)} to 1 after {alarm.num_rows:,} rows. If nothing had changed, such "
        f"an alarm would ever be raised with a probability of {100 * alarm.chance:g} %."
    )


def _odds(power: float) -> str:
    return f"{10**power:,.0f}" if power < 9 else f"10^{power:.0f}"


def body_of(alarm: Alarm, state: State) -> dict[str, Any]:
    """What is sent."""
    window: Window | None = next((each for each in state.windows if each.raised == alarm.id), None)
    body = {"id": alarm.id, "text": sentence(alarm), "alarm": alarm, "window": window}
    return msgspec.to_builtins(body)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """A redirect might lead anywhere; it counts as an error."""


def _post(url: str, alarm: str, body: dict[str, Any]) -> str:
    """What went wrong; empty if the webhook took it."""
    headers = {"Content-Type": "application/json", "Idempotency-Key": alarm, "User-Agent": "oddnode"}
    request = urllib.request.Request(url, msgspec.json.encode(body), headers, method="POST")
    try:
        with urllib.request.build_opener(_NoRedirects).open(request, timeout=_SECONDS) as answer:
            return "" if 200 <= answer.status < 300 else f"it answered {answer.status}"
    except urllib.error.HTTPError as error:
        error.close()
        return f"it answered {error.code}"
    except http.client.HTTPException as error:  # it answered something else than HTTP, which is not repeated
        return type(error).__name__
    except (OSError, ValueError) as error:  # URLError and timeouts are OSErrors
        return str(getattr(error, "reason", error) or type(error).__name__)
