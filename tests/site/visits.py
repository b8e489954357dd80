"""A page of the book in the browser: opened, waited for, and what went wrong meanwhile."""

from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from playwright.sync_api import Page, TimeoutError

CHECKS = Path(__file__).with_name("checks.js").read_text()
DESKTOP, TABLET, PHONE = 1440, 768, 375
PATIENCE = 240_000  # milliseconds, for machines with other work
READY = """async () => {
    await (window.MathJax?.startup?.promise ?? Promise.resolve());
    await document.fonts.ready;
    return document.readyState === "complete";
}"""
# By state: `finished` of a transition that another one has replaced is a promise that nobody keeps.
SETTLED = """() => document.getAnimations().every((one) =>
    one.playState !== "running" || one.effect?.getComputedTiming().endTime === Infinity)"""
AT_ONCE = "*, ::before, ::after { transition: none !important; }"  # a theme, not half a second later
DRAWN = "() => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)))"


@dataclass
class Visit:
    """A page in the browser and what went wrong while it loaded."""

    page: Page
    problems: list[str] = field(default_factory=list)

    def check(self, name):
        """What a function of checks.js complains about."""
        return [f"{name}: {problem}" for problem in self.script(name)]

    def script(self, name, argument=None):
        """What a function of checks.js returns."""
        return self.page.evaluate(f"(argument) => {CHECKS}.{name}(argument)", argument)

    def theme(self, name):
        """By day ("light") or by night ("dark"): what the reader's system says, and the page follows."""
        if self.page.evaluate("document.documentElement.dataset.theme") == name:
            return
        try:
            self._say(name, PATIENCE / 10)
        except TimeoutError:  # the browser has swallowed the change, as it does once in thousands
            self._say("dark" if name == "light" else "light", PATIENCE)
            self._say(name, PATIENCE)
        self.page.evaluate(DRAWN)  # transitions have begun
        self.page.wait_for_function(SETTLED)

    def _say(self, name, patience):
        self.page.emulate_media(color_scheme=name)
        follows = "(name) => document.documentElement.dataset.theme === name"
        self.page.wait_for_function(follows, arg=name, timeout=patience)

    def resize(self, width):
        """Another width of the window; sizes have settled when this returns."""
        if self.page.viewport_size["width"] == width:
            return
        self.page.set_viewport_size({"width": width, "height": 900})
        self.page.evaluate(DRAWN)


@cache
def shared(browser, sharpness):
    """The context of visits at this sharpness, in dots a pixel, and its free windows, which save time."""
    context = browser.new_context(device_scale_factor=sharpness)
    context.set_default_timeout(PATIENCE)
    return context, []


def is_left(request):
    """Whether the browser itself gave an icon up, as it may when a page's address changes while it loads."""
    return request.failure == "net::ERR_ABORTED" and request.url.endswith("/favicon.svg")


def window(context, address):
    """A new window, and what will go wrong in it."""
    found = Visit(context.new_page())
    page, say = found.page, lambda problem: found.problems.append(problem)
    page.on("request", lambda r: r.url.startswith((address, "data:", "about:")) or say(f"asks for {r.url}"))
    page.on("response", lambda r: r.status < 400 or say(f"{r.status} for {r.url}"))
    page.on("requestfailed", lambda r: is_left(r) or say(f"{r.failure} for {r.url}"))
    page.on("console", lambda m: m.type != "error" or say(f"console: {m.text}"))
    page.on("pageerror", lambda error: say(f"script: {error}"))
    return found


@contextmanager
def visit(browser, address, path, theme, sharpness=1):
    """Open a page as a new reader would, and wait until mathematics and fonts stand."""
    context, free = shared(browser, sharpness)
    found = free.pop() if free else window(context, address)
    found.problems, page = [], found.page
    page.set_viewport_size({"width": DESKTOP, "height": 900})
    page.emulate_media(color_scheme=theme)
    page.goto(f"{address}/{path}", wait_until="load")
    page.wait_for_function(READY)
    page.add_style_tag(content=AT_ONCE)
    page.evaluate(DRAWN)
    yield found
    page.evaluate("localStorage.clear()")
    page.goto("about:blank")
    free.append(found)
