"""A headless Chromium, driven by its DevTools protocol over two pipes: no package, no port, no network.

`with Browser() as browser: page = browser.open(path)`; then `page.evaluate`, `page.press`, `page.screenshot`. What the
page writes to its console is in `page.console`, and what it asks of a network in `page.requests`.
`python -m tests.browser` fails if the machine has no browser.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_SECONDS = 120
"""Time for one answer, on a machine with other work: an answer takes milliseconds."""
_KEYS = {"ArrowRight": 39, "ArrowLeft": 37, "ArrowUp": 38, "ArrowDown": 40, "Tab": 9, "Enter": 13}
MISSING = (
    "the tests of the report need a browser, and fail without one: ask root for Chromium "
    "(Debian and Ubuntu: apt-get install chromium)"
)


def browser_program() -> str | None:
    """Path of the first browser that the machine has."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


class Browser:
    """A browser of its own profile; closed at the end of the block."""

    def __init__(self) -> None:
        program = browser_program()
        if program is None:
            pytest.fail(MISSING, pytrace=False)
        self._profile = tempfile.TemporaryDirectory(prefix="zonebloom-browser-", ignore_cleanup_errors=True)
        out_of, self._send = os.pipe()
        self._receive, into = os.pipe()
        options = "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --window-size=1200,900"
        options += f" --remote-debugging-pipe --no-first-run --user-data-dir={self._profile.name} about:blank"
        self._process = subprocess.Popen(
            ["bash", "-c", f"exec {program} {options} 3<&{out_of} 4>&{into}"],  # the protocol's two descriptors
            pass_fds=(out_of, into),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(out_of)
        os.close(into)
        self._received = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.call("Browser.close")
        self._process.wait(_SECONDS)
        os.close(self._send)
        os.close(self._receive)
        self._profile.cleanup()

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """The browser's answer; events that come before it are kept."""
        self._number += 1
        asked = {"id": self._number, "method": method, "params": parameters}
        message = json.dumps(asked if session is None else asked | {"sessionId": session})
        data = message.encode() + b"\0"
        while data:
            data = data[os.write(self._send, data) :]
        for answer in self._messages():
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)
        raise AssertionError("the browser ended")

    def _messages(self) -> Iterator[dict[str, Any]]:
        end = time.monotonic() + _SECONDS
        while True:
            while b"\0" in self._received:
                message, _, self._received = self._received.partition(b"\0")
                yield json.loads(message)
            is_ready, _, _ = select.select([self._receive], [], [], max(0.0, end - time.monotonic()))
            assert is_ready, f"the browser must answer within {_SECONDS} s, got nothing"
            data = os.read(self._receive, 1 << 20)
            if not data:
                return
            self._received += data

    def open(self, path: Path, *, dark: bool = False) -> Page:
        """The page in the file `path`, after it was loaded and its script has set `data-ready`."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        page.call("Emulation.setEmulatedMedia", features=[scheme])
        page.call("Page.navigate", url=path.as_uri())
        page.wait_for("document.documentElement?.dataset.ready === 'yes'")
        return page


class Page:
    """One page of a browser."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **parameters)

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait_for(self, expression: str) -> None:
        """Return when the expression is true."""
        end = time.monotonic() + _SECONDS
        while not self.evaluate(expression):
            assert time.monotonic() < end, f"{expression} must become true; the console says {self.console}"
            time.sleep(0.02)

    def press(self, key: str) -> None:
        """Press and release a key, as a person does."""
        text = {"text": "\r" if key == "Enter" else key} if len(key) == 1 or key == "Enter" else {}
        code = _KEYS.get(key, 0)
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def screenshot(self, path: Path) -> None:
        """Write the whole page as a PNG file."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def _events(self, *methods: str) -> list[dict[str, Any]]:
        mine = [event for event in self._browser.events if event.get("sessionId") == self._session]
        return [event["params"] for event in mine if event["method"] in methods]

    @property
    def console(self) -> list[str]:
        """What was written to the console as an error or a warning, and exceptions."""
        calls = [
            event
            for event in self._events("Runtime.consoleAPICalled")
            if event["type"] in ("error", "warning", "assert")
        ]
        said = [" ".join(str(part.get("value", part.get("description"))) for part in call["args"]) for call in calls]
        thrown = [str(event["exceptionDetails"]) for event in self._events("Runtime.exceptionThrown")]
        return said + thrown + [event["entry"]["text"] for event in self._events("Log.entryAdded")]

    @property
    def requests(self) -> list[str]:
        """What was asked of a network or of other files."""
        urls = [event["request"]["url"] for event in self._events("Network.requestWillBeSent")]
        return [url for url in urls[1:] if not url.startswith("data:")]


if __name__ == "__main__" and browser_program() is None:
    sys.exit(MISSING)
