"""What runs on GitHub: known code, with no more rights than it needs, and nothing is published untested."""

import re
from pathlib import Path

import pytest
import yaml

FOLDER = Path(__file__).parents[2] / ".github" / "workflows"
TEXTS = {path.name: path.read_text() for path in sorted(FOLDER.glob("*.yml"))}
FLOWS = {name: yaml.safe_load(text) for name, text in TEXTS.items()}
JOBS = {(name, job): content for name, flow in FLOWS.items() for job, content in flow["jobs"].items()}


@pytest.mark.parametrize("name", TEXTS)
def test_actions_are_named_by_commit(name):
    used = re.findall(r"uses: (?!\./)(.*)", TEXTS[name])
    assert used and all(re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", use) for use in used)


@pytest.mark.parametrize("job", JOBS)
def test_scripts_get_values_through_the_environment_and_no_credentials(job):
    for step in JOBS[job].get("steps", []):
        assert "${{" not in step.get("run", "")
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


def test_what_is_published_was_tested():
    jobs = dict(FLOWS["publish.yml"]["jobs"])
    assert jobs.pop("test")["uses"] == "./.github/workflows/test.yml"
    needs = {"site": "test", "deploy": "site", "wheel": "test"}
    assert {name: job["needs"] for name, job in jobs.items()} == needs


def test_rights_are_given_to_single_jobs():
    rights = {job: content["permissions"] for (_, job), content in JOBS.items() if "permissions" in content}
    assert rights == {"deploy": {"pages": "write", "id-token": "write"}, "wheel": {"contents": "write"}}
    assert all(flow["permissions"] == {"contents": "read"} for flow in FLOWS.values())
