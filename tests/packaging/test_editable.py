"""The package as it is installed here, for work on it."""

import subprocess
import sys


def test_a_folder_of_its_name_beside_a_script_does_not_hide_it(tmp_path):
    """As a clone lies beside the scripts of whoever cloned it."""
    (tmp_path / "gilib").mkdir()
    script = tmp_path / "own.py"
    script.write_text("import gilib\nprint(gilib.Network.__name__)\n", encoding="utf-8")
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "Network\n", done.stderr


def test_the_experiments_come_with_it(tmp_path):
    """Wherever one works; the wheel has none of them."""
    command = [sys.executable, "-m", "experiments", "list"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("toy "), done.stderr
