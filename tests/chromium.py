"""Pages in Debian's Chromium, driven by the DevTools protocol over a pipe: errors, requests, widths, screenshots."""

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path

import pytest

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(PROGRAM is None, reason="Chromium is not installed; apt-get install chromium")
WIDTHS = (360, 1280)
PATIENCE = 120  # Seconds to wait for the browser on a busy machine.
PAPER = 740  # The width of an A4 page without margins, in CSS pixels.
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run"]
FLAGS += ["--disable-dev-shm-usage", "--disable-background-networking", "--no-proxy-server"]


class Chromium:
    """A browser with one tab; a context manager."""

    def __init__(self, folder):
        self.folder, self.events, self.number, self.buffer = Path(folder), [], 0, b""

    def __enter__(self):
        # The browser reads commands on 3 and answers on 4.
        there, self.commands = os.pipe()
        self.answers, back = os.pipe()
        shell = f'exec "$@" 3<&{there} 4>&{back}'
        program = ["bash", "-c", shell, "-", PROGRAM, *FLAGS, f"--user-data-dir={self.folder / 'profile'}"]
        self.process = subprocess.Popen(
            program, pass_fds=(there, back), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(there)
        os.close(back)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(timeout=20)
        os.close(self.commands)
        os.close(self.answers)

    def call(self, method, **parameters):
        """The browser's answer; events that arrive before it are kept."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if method.partition(".")[0] != "Target":
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self.number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self.events.append(answer)

    def _next(self):
        while b"\0" not in self.buffer:
            # A crashed tab does not answer.
            assert select.select([self.answers], [], [], PATIENCE)[0], f"no answer of the browser in {PATIENCE} s"
            read = os.read(self.answers, 2**20)
            assert read, "the browser has ended"
            self.buffer += read
        line, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(line)

    def ask(self, expression):
        """The value of a JavaScript expression; for a promise, its result."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def open(self, page, width, *, dark=False, media="screen"):
        """Show the page in a file; return when all its charts are drawn."""
        self.visit(Path(page).resolve().as_uri(), width, dark=dark, media=media)

    def visit(self, address, width, *, dark=False, media="screen", drawn="drawn"):
        """Show an address at a width; return when the page is marked as `drawn`."""
        self.events.clear()
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Page.navigate", url=address)
        until = time.monotonic() + 60
        while self.ask("document.readyState === 'complete' && document.documentElement.dataset." + drawn) in (
            None,
            False,
        ):
            assert time.monotonic() < until, f"not drawn: {self.errors()}"
            time.sleep(0.05)

    def errors(self):
        """Console messages and other errors."""
        wrong = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded", "Network.loadingFailed")
        return [event["params"] for event in self.events if event.get("method") in wrong]

    def requested(self):
        """Every requested address."""
        sent = [event for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in sent]

    def picture(self, path, top=0, height=None):
        """The page as a PNG, or its top part of this height."""
        size = self.ask("[document.documentElement.scrollWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": top, "width": size[0], "height": height or size[1] - top, "scale": 1}
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True, format="png", clip=clip)
        Path(path).write_bytes(base64.b64decode(shot["data"]))


def numbers(value):
    """Every number of a JSON document."""
    if isinstance(value, dict):
        return set().union(*map(numbers, value.values()))
    if isinstance(value, list):
        return set().union(*map(numbers, value))
    return {float(value)} if isinstance(value, int | float) and not isinstance(value, bool) else set()


def check_page(page, document, folder):
    """Check a page: no requests, no errors, no horizontal scrolling, and all numbers equal those in the JSON."""
    known = numbers(document)
    with Chromium(folder) as browser:
        for width in WIDTHS:
            for dark in (False, True):
                browser.open(page, width, dark=dark)
                assert browser.errors() == []
                assert {url.partition("#")[0] for url in browser.requested()} == {Path(page).resolve().as_uri()}
                assert browser.ask("document.documentElement.scrollWidth") <= width
                charts = browser.ask("document.querySelectorAll('figure.chart').length")
                assert browser.ask("document.querySelectorAll('figure.chart svg').length") == charts
                assert browser.ask(_OUTSIDE) == []
        browser.open(page, PAPER, media="print")
        assert browser.ask("document.documentElement.scrollWidth") <= PAPER
        shown = browser.ask("[...document.querySelectorAll('data')].map(each => [each.value, each.textContent])")
        assert shown
        for value, text in shown:
            assert float(value) in known, (value, text)
            assert reads_as(float(value), text), (value, text)
        assert browser.ask("JSON.parse(document.getElementById('document').textContent)") == document
        assert browser.ask(_ALL_DRAWN)
        return browser.ask(_SPECS)


def waited_for(browser, expression, wanted):
    until = time.monotonic() + 30
    while browser.ask(expression) != wanted:
        assert time.monotonic() < until, expression
        time.sleep(0.1)


def pressed(browser, focused):
    """Press Enter on the focused element, by keyboard only."""
    browser.ask(f"{focused}.focus()")
    for kind in ("keyDown", "keyUp"):
        enter = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}
        browser.call("Input.dispatchKeyEvent", type=kind, **enter)


def rows_of(specification):
    """The distinct rows that a chart draws in all its layers."""
    parts = [specification, *specification.get("layer", [])]
    rows = [row for part in parts for row in part.get("data", {}).get("values", [])]
    return [row for place, row in enumerate(rows) if row not in rows[:place]]


def reads_as(value, text):
    """Whether the text is this number, rounded."""
    if float(text.removesuffix("%").replace(",", "")) == float(f"{value:.4g}"):
        return True
    scaled = 100 * value if text.endswith("%") else value
    plain = text.removesuffix("%").strip().replace(",", "")
    digits = len(plain.partition(".")[2])
    return abs(float(plain) - scaled) <= 0.5 * 10**-digits * (1 + 1e-9)


# Elements outside the page's width, except those that scroll on their own.
_OUTSIDE = """[...document.querySelectorAll('main *')]
  .filter(each => !each.closest('.wide') && !each.closest('svg') && each.getBoundingClientRect().right > innerWidth + 1)
  .map(each => each.outerHTML.slice(0, 80))"""
_ALL_DRAWN = """[...document.querySelectorAll('figure.chart')].every(
  each => each.querySelector('svg .mark-symbol path, svg .mark-rect path'))"""
# The data of each chart, by name.
_SPECS = """Object.fromEntries([...document.querySelectorAll('figure.chart')].map(each =>
  [each.id, JSON.parse(each.querySelector('script').textContent)]))"""
