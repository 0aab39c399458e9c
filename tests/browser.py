"""Pages in Chromium, where it is installed."""

import html
import json
import re
import shutil
import subprocess

import pytest

CHROMIUM = next(
    (p for n in ("chromium", "chromium-browser", "google-chrome", "chrome") if (p := shutil.which(n))), None
)
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium or Chrome")


def opened(path, profile, *options):
    """What Chromium prints when it opens a file."""
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]
    command += ["--virtual-time-budget=5000", *options, path.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=True).stdout


def said_by(page, script, path, profile, *, size="1400,900", dark=False):
    """What a script that runs last says of a page, in `said`; `path` is where the page is written for that.

    Errors of the page's own scripts are raised here, too.
    """
    catch = '<script>addEventListener("error", e => { document.documentElement.dataset.wrong = e.message; });</script>'
    tell = f"<script>{{const said = {{}};{script}\ndocument.documentElement.dataset.said = JSON.stringify(said);}}</script></html>"
    head, tag, rest = page.partition('<meta charset="utf-8"')
    assert tag
    path.write_text(head + catch + tag + rest.replace("</html>", tell), encoding="utf-8")
    theme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    shown = opened(path, profile, theme, f"--window-size={size}", "--dump-dom")
    wrong = re.search(r'data-wrong="(.*?)"', shown, re.DOTALL)
    assert wrong is None, wrong and html.unescape(wrong[1])
    return json.loads(html.unescape(re.search(r'data-said="(.*?)"', shown, re.DOTALL)[1]))
