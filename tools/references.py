"""Makes the reference notebooks of the chapters: ``python tools/references.py [CHAPTER ...]``.

A reference notebook holds a chapter's code cells and, for cells tagged ``nbval-check-output`` only, the text
they printed. No markdown, no figures, no times: its file changes when code or a checked result changes.
"""

import os
import sys
import tempfile
from pathlib import Path

from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode, v4

import chapters

TIMEOUT = 120  # seconds a cell, as in _config.yml


def execute(notebook: NotebookNode) -> NotebookNode:
    """Run the notebook on one thread, away from the tree; its first error stops it."""
    os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(notebook, timeout=TIMEOUT, resources={"metadata": {"path": folder}})
        return client.execute()


def kept(cell: NotebookNode, where: str) -> list[NotebookNode]:
    """The outputs of a checked cell: text on stdout or a text result, nothing else."""
    text = ""
    for output in cell.outputs:
        if output.output_type == "stream" and output.name == "stdout":
            text += output.text
        elif not (output.output_type == "execute_result" and set(output.data) == {"text/plain"}):
            shown = output.get("name") or ", ".join(output.get("data", {"an error": None}))
            rule = f"a cell tagged {chapters.CHECKED} may print text and nothing else"
            raise SystemExit(f"{where}: {rule}, and this one also shows {shown}:\n{cell.source}")
    results = [output for output in cell.outputs if output.output_type == "execute_result"]
    if not text.strip() and not results:
        raise SystemExit(f"{where}: a cell tagged {chapters.CHECKED} prints nothing:\n{cell.source}")
    streams = [v4.new_output("stream", name="stdout", text=text)] if text else []
    return [*streams, *results]


def strip(executed: NotebookNode, where: str) -> NotebookNode:
    """Code cells with source and tags; outputs and execution counts of checked cells only."""
    cells = []
    for number, cell in enumerate(chapters.code(executed)):
        fresh = v4.new_code_cell(cell.source, id=f"cell-{number}")
        fresh.metadata = {key: value for key, value in cell.metadata.items() if key != "execution"}
        if chapters.CHECKED in chapters.tags(cell):
            fresh.outputs = kept(cell, where)
            fresh.execution_count = cell.execution_count
            for output in fresh.outputs:
                output.pop("execution_count", None)
                if output.output_type == "execute_result":
                    output.execution_count = cell.execution_count
        cells.append(fresh)
    return v4.new_notebook(cells=cells, metadata={"kernelspec": executed.metadata["kernelspec"]})


def main(names: list[str]) -> None:
    """Regenerate the references of the named chapters, or of all."""
    known = {path.stem: path for path in chapters.chapters()}
    if unknown := set(names) - set(known):
        raise SystemExit(f"no chapter {sorted(unknown)}; choose from {sorted(known)}")
    failed = []
    for name in names or known:
        print(f"{name} ...", flush=True)
        try:
            executed = execute(chapters.read(known[name]))
        except CellExecutionError as error:
            print(error, file=sys.stderr)
            failed.append(name)
        else:
            chapters.write(strip(executed, name), chapters.reference(known[name]))
    folder = Path(chapters.ROOT / "tests" / "notebooks")
    for orphan in {path.stem for path in folder.glob("*.ipynb")} - set(known):
        print(f"removing {orphan}.ipynb: no such chapter")
        (folder / f"{orphan}.ipynb").unlink()
    if failed:
        raise SystemExit(
            f"these chapters do not run, so their references stay as they were: {', '.join(failed)}"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
