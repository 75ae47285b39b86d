"""Fixtures for all tests: a headless browser that tells what a page shows, loads and complains of.

Chromium is driven over its DevTools pipe (https://chromedevtools.github.io/devtools-protocol/):
that sees every request of the page and none of the browser's own, needs no port and no package.
"""

from __future__ import annotations

import atexit
import base64
import fcntl
import gc
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from torchferry.errors import UsageError

# How long examples take says how busy the machine is, and nothing of the code.
hypothesis.settings.register_profile(
    "patient", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("patient")
# Each core has a worker. Threads of several on one core spin while they wait for one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")
if "TORCHFERRY_CACHE" not in os.environ:  # workers take that of the process that started them
    os.environ["TORCHFERRY_CACHE"] = tempfile.mkdtemp(prefix="torchferry-tests-")
    atexit.register(shutil.rmtree, os.environ["TORCHFERRY_CACHE"], ignore_errors=True)

NAMES = ("chromium", "chromium-browser", "google-chrome")
DEADLINE = 60.0  # seconds for any answer; a cold start on a busy machine takes several
# Chromium reads commands from file descriptor 3 and answers on 4.
PIPES = """import os, sys
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


@dataclass(frozen=True)
class Page:
    """What a page became: its final DOM as HTML, every URL it asked for, what it complained of."""

    dom: str
    requests: list[str]
    console_errors: list[str]


class Browser:
    """One headless Chromium, a fresh tab for each page; the network is out of its reach."""

    def __init__(self, executable: str, profile: Path) -> None:
        to_browser, self._to = os.pipe()
        self._from, from_browser = os.pipe()
        # Above 10, so that `PIPES` can put them in their places, 3 and 4, one after the other.
        read = fcntl.fcntl(to_browser, fcntl.F_DUPFD, 10)
        write = fcntl.fcntl(from_browser, fcntl.F_DUPFD, 10)
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        options += ["--no-first-run", "--remote-debugging-pipe", f"--user-data-dir={profile}"]
        options += ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
        options += ["--disable-background-networking"]
        options += ["--hide-scrollbars", "--force-color-profile=srgb", "about:blank"]
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-c", PIPES, str(read), str(write), executable, *options],
            pass_fds=(read, write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in (to_browser, from_browser, read, write):
            os.close(end)
        self._received = b""
        self._events: list[dict[str, Any]] = []
        self._count = 0

    def open(self, path: Path, *, width: int = 1280, height: int = 900) -> Page:
        """Load a page and wait until it and all it loads are done."""
        tab = self._load(path, width, height, dark=False)
        try:
            dom = self._evaluate(tab, "document.documentElement.outerHTML")
            events = [
                event for event in self._events if event.get("sessionId") == tab["sessionId"]
            ]
            requests = [
                event["params"]["request"]["url"]
                for event in events
                if event["method"] == "Network.requestWillBeSent"
            ]
            errors = [text for event in events if (text := _complaint(event))]
            return Page(dom, requests, errors)
        finally:
            self._close(tab)

    def evaluate(
        self, path: Path | str, script: str, *, width: int = 1280, height: int = 900
    ) -> Any:
        """Load a page, or a URL, and give the JSON value of a JavaScript expression in it."""
        tab = self._load(path, width, height, dark=False)
        try:
            return self._evaluate(tab, script)
        finally:
            self._close(tab)

    def screenshot(
        self, path: Path, png: Path, width: int, height: int, *, dark: bool = False
    ) -> None:
        """Draw the first ``height`` pixels of a page into a PNG file."""
        tab = self._load(path, width, height, dark=dark)
        try:
            picture = self._call("Page.captureScreenshot", tab["sessionId"])
            png.write_bytes(base64.b64decode(picture["data"]))
        finally:
            self._close(tab)

    def quit(self) -> None:
        """Close the browser, by force when it does not answer."""
        try:
            self._call("Browser.close")
            self._process.wait(timeout=10)
        except (OSError, TimeoutError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        finally:
            os.close(self._to)
            os.close(self._from)

    def _load(self, path: Path | str, width: int, height: int, *, dark: bool) -> dict[str, str]:
        self._events.clear()
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self._call(f"{domain}.enable", session)
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._call("Emulation.setDeviceMetricsOverride", session, **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", session, features=[scheme])
        self._call("Page.setLifecycleEventsEnabled", session, enabled=True)
        url = path if isinstance(path, str) else path.resolve().as_uri()
        started = self._call("Page.navigate", session, url=url)
        if "errorText" in started:
            raise RuntimeError(f"cannot open {path}: {started['errorText']}")
        loaded = {"name": "load", "loaderId": started["loaderId"]}  # not that of about:blank
        self._wait(
            lambda message: (
                message.get("method") == "Page.lifecycleEvent"
                and loaded.items() <= message["params"].items()
            )
        )
        # Two frames later everything is laid out, and late errors have been told.
        frames = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        self._call("Runtime.evaluate", session, expression=frames, awaitPromise=True)
        return {"sessionId": session, "targetId": target}

    def _close(self, tab: dict[str, str]) -> None:
        self._call("Target.closeTarget", targetId=tab["targetId"])

    def _evaluate(self, tab: dict[str, str], script: str) -> Any:
        answer = self._call(
            "Runtime.evaluate", tab["sessionId"], expression=script, returnByValue=True,
            awaitPromise=True,
        )  # fmt: skip
        if "exceptionDetails" in answer:
            raise RuntimeError(f"the script failed in the page: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def _call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        self._count += 1
        number = self._count
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._to, data) :]
        answer = self._wait(lambda received: received.get("id") == number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def _wait(self, wanted: Any) -> dict[str, Any]:
        for event in self._events:
            if wanted(event):
                return event
        deadline = time.monotonic() + DEADLINE
        while True:
            message = self._receive(deadline)
            if "method" in message:
                self._events.append(message)
            if wanted(message):
                return message

    def _receive(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._received:
            ready, _, _ = select.select([self._from], [], [], max(0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError(f"the browser did not answer in {DEADLINE:g} s")
            data = os.read(self._from, 1 << 16)
            if not data:
                raise ConnectionError("the browser ended unasked")
            self._received += data
        message, self._received = self._received.split(b"\0", 1)
        return json.loads(message)


def _complaint(event: dict[str, Any]) -> str | None:
    params = event["params"]
    match event["method"]:
        case "Log.entryAdded" if params["entry"]["level"] == "error":
            return params["entry"]["text"]
        case "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            return details.get("exception", {}).get("description") or details["text"]
        case "Runtime.consoleAPICalled" if params["type"] in ("error", "assert"):
            return " ".join(str(arg.get("value", "")) for arg in params["args"])
    return None


@pytest.hookimpl(tryfirst=True)  # before pytest looks for what is not slow
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a table of cases marked ``sample(9)`` nine are fast, evenly spread; the rest is slow.

    The rest comes before all other slow tests, which run as far as the time goes. A case that
    the command line names is never left out.
    """
    tables: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sample") and not item.get_closest_marker("slow"):
            tables.setdefault(item.nodeid.split("[")[0], []).append(item)
    rest = set()
    for cases in tables.values():
        few = cases[0].get_closest_marker("sample").args[0]
        for place, item in enumerate(cases):
            if place * few // len(cases) == (place - 1) * few // len(cases) and len(cases) > few:
                item.add_marker(pytest.mark.slow)
                rest.add(item)
    items.sort(key=lambda item: item not in rest)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Skip a test of a model that the installed transformers is too old for."""
    try:
        return (yield)
    except UsageError as error:
        if "needs transformers" not in str(error):
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="module", autouse=True)
def _small_heap() -> None:
    """What earlier files and imports left is not looked through in each capture and collection."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Chromium, started once; tests that ask for it are skipped where there is none."""
    executable = next(filter(None, map(shutil.which, NAMES)), None)
    if executable is None:
        pytest.skip(f"no browser: install Chromium (looked for {', '.join(NAMES)} on PATH)")
    started = Browser(executable, tmp_path_factory.mktemp("chromium"))
    try:
        yield started
    finally:
        started.quit()
