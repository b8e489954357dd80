"""Small copies of a chapter's figures on another page, in a book of two pages."""

import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
CONF = f"""
import sys
sys.path.insert(0, {str(ROOT / "tools")!r})
extensions = ["myst_parser", "thumbnails"]
numfig = True
"""
INDEX = "# Gallery\n\n```{thumbnail} fig-one\n```\n\n```{toctree}\nchapter\n```\n"
CHAPTER = "# Chapter\n\n```{figure} one.png\n:name: LABEL\n:alt: A grey square.\n\nA caption.\n```\n"


@pytest.fixture
def build(tmp_path):
    def sphinx(label):
        Image.new("RGB", (1000, 500), "grey").save(tmp_path / "one.png")
        pages = {"conf.py": CONF, "index.md": INDEX, "chapter.md": CHAPTER.replace("LABEL", label)}
        for name, text in pages.items():
            (tmp_path / name).write_text(text)
        command = [sys.executable, "-m", "sphinx", "-q", "-W", "-b", "html", tmp_path, tmp_path / "site"]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    return sphinx


def test_a_thumbnail_is_a_small_copy_with_the_figures_alt_text(build, tmp_path):
    assert build("fig-one").returncode == 0
    page = (tmp_path / "site" / "index.html").read_text()
    assert 'alt="A grey square."' in page
    with Image.open(tmp_path / "site" / "_images" / "fig-one.png") as small:
        assert small.size == (640, 320)


def test_a_label_without_a_figure_is_a_warning(build):
    done = build("fig-other")
    assert done.returncode != 0 and "no figure has the label fig-one" in done.stderr
