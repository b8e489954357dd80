"""What one takes away from a page: every chapter as a notebook, by a button, for any machine."""

import ast
import json
import re

import nbformat
import pytest
import yaml
from bs4 import BeautifulSoup, SoupStrainer
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

import chapters
from tests.clean import environment, run
from tests.site.conftest import ROOT
from tests.site.visits import visit

# of MyST: a role, a directive, a label
MARKUP = re.compile(r"\{[\w:.-]+\}`|^\s*(?:`{3,}|:{3,})\{|^\([\w-]+\)=$|^:::", re.M)
PASTED = SoupStrainer(class_="pasted-text")


def prose(notebook):
    """What a reader sees as text: Markdown cells, and Markdown that code has made."""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            yield cell.source
        else:
            yield from (output.get("data", {}).get("text/markdown", "") for output in cell.outputs)


@pytest.mark.parametrize("chapter", chapters.chapters(), ids=lambda path: path.stem)
def test_a_chapter_is_there_as_a_notebook(site, chapter):
    """With its code, its text without holes, its checks folded and its outputs."""
    notebook = nbformat.read(site / "notebooks" / f"{chapter.stem}.ipynb", as_version=4)
    nbformat.validate(notebook)
    cells = chapters.code(notebook)
    assert [cell.source for cell in cells] == [cell.source for cell in chapters.code(chapters.read(chapter))]
    checks = [cell for cell in cells if cell.source.startswith("# check:")]
    assert all(cell.metadata.jupyter.source_hidden for cell in checks)
    assert all(cell.execution_count for cell in cells) and any(cell.outputs for cell in cells)
    text = "\n".join(prose(notebook))
    assert MARKUP.findall(text) == []
    macros = yaml.safe_load((ROOT / "_config.yml").read_text())["sphinx"]["config"]["mathjax3_config"]["tex"]
    assert [name for name in macros["macros"] if re.search(rf"\\{name}(?![A-Za-z])", text)] == []
    page = (site / chapter.relative_to(ROOT).with_suffix(".html")).read_text()
    pasted, bare = BeautifulSoup(page, "html.parser", parse_only=PASTED), text.replace("\\", "")
    assert [number.text for number in pasted if number.text not in bare] == []


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """What a checkout with the extra `sklearn` and a kernel make, and nothing else of the book."""
    folder = tmp_path_factory.mktemp("clean")
    path = environment(folder, "sklearn", ("ipykernel",))
    (packages,) = folder.glob("lib/python*/site-packages")
    for package in ("gilib", "experiments"):  # as an editable install has them
        (packages / package).symlink_to(ROOT / package)
    return path


def test_all_that_chapters_import_comes_with_the_checkout_and_the_extra(site, python):
    found = set()
    for path in (site / "notebooks").glob("*.ipynb"):
        for cell in chapters.code(nbformat.read(path, as_version=4)):
            parts = ast.walk(ast.parse(cell.source))
            found |= {ast.unparse(part) for part in parts if isinstance(part, ast.Import | ast.ImportFrom)}
    assert "from experiments.book import glue" in found
    run(python, "-c", "\n".join(sorted(found)), cwd=ROOT)


def test_it_runs_where_the_checkout_alone_is_installed(site, python, tmp_path):
    command = ["env", "-u", "PYTHONPATH", str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    kernel = {"argv": command, "display_name": "the checkout alone", "language": "python"}
    (tmp_path / "python3").mkdir()
    (tmp_path / "python3" / "kernel.json").write_text(json.dumps(kernel))
    known = KernelSpecManager(kernel_dirs=[str(tmp_path)], ensure_native_kernel=False)
    manager = AsyncKernelManager(kernel_name="python3", kernel_spec_manager=known)
    notebook = nbformat.read(site / "notebooks" / "one-idea.ipynb", as_version=4)
    where = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, manager, timeout=120, resources=where).execute()


def test_the_button_downloads_it(browser, address, tmp_path):
    with visit(browser, address, "book/chapters/one-idea.html", "light") as found:
        button = found.page.get_by_role("link", name="Download as a notebook").first
        with found.page.expect_download() as download:
            button.click()
        download.value.save_as(tmp_path / "chapter.ipynb")
        assert download.value.suggested_filename == "one-idea.ipynb"
    assert len(nbformat.read(tmp_path / "chapter.ipynb", as_version=4).cells) > 10
