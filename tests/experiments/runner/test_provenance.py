"""What a record says of the code that made it."""

from experiments.runner import provenance


def test_a_revision_tells_whether_code_differs(tmp_path):
    assert provenance.revision_of(tmp_path) == "unknown"
    (tmp_path / "gilib").mkdir()
    provenance._git(tmp_path, "init", "--quiet")
    author = "-c", "user.name=n", "-c", "user.email=e"
    provenance._git(tmp_path, *author, "commit", "--quiet", "--allow-empty", "-m", "first")
    (tmp_path / "notes").write_text("")
    assert len(clean := provenance.revision_of(tmp_path)) == 12
    (tmp_path / "gilib" / "new.py").write_text("")
    assert provenance.revision_of(tmp_path) == f"{clean}+"
