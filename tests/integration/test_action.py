"""The action that others put into their repositories: its steps, run in a scratch repository."""

from __future__ import annotations

import fcntl
import json
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from etprof.base.errors import EtprofError
from etprof.base.process import run_command
from etprof.targets.emulator.installation import locate

yaml = pytest.importorskip("yaml", reason="needs PyYAML")

try:
    locate()
except EtprofError as error:
    pytestmark = pytest.mark.skip(reason=str(error))

ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
INPUT = re.compile(r"\$\{\{ inputs\.([\w-]+) \}\}")
MODEL = """
import torch


class Net:
    def get_eager_model(self):
        return torch.nn.Sequential(torch.nn.Linear(64, 64))

    def get_example_inputs(self):
        return (torch.randn(32, 64),)
"""


class GitHub:
    """A pull request's comments, over HTTP as GitHub's API has them."""

    def __init__(self) -> None:
        self.comments: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.is_read_only = False
        self.is_silent = False
        host = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                content = json.loads(self.rfile.read(length)) if length else None
                host.asked.append(self.command)
                if host.is_silent:
                    self.close_connection = True
                    return
                is_refused = content is not None and host.is_read_only
                body = json.dumps([] if is_refused else host.take(self.path, content)).encode()
                self.send_response(403 if is_refused else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = do_PATCH = answer  # noqa: N815 - names of the base class

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, path: str, content: dict[str, Any] | None) -> object:
        if content is None:
            return self.comments
        number = re.fullmatch(r"/repos/o/r/issues/comments/(\d+)", path)
        if number:
            self.comments[int(number[1])]["body"] = content["body"]
        else:
            assert path == "/repos/o/r/issues/7/comments"
            mine = {"id": len(self.comments), "body": content["body"], "user": {"type": "Bot"}}
            self.comments.append(mine)
        return self.comments[-1]


@contextmanager
def setup_turn(factory: pytest.TempPathFactory) -> Iterator[None]:
    """One at a time of pytest's workers, whose temporary folders have one parent.

    `etprof emulator setup` refuses to work beside another one.
    """
    with (factory.getbasetemp().parent / "emulator-setup.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture
def github(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GitHub]:
    found = GitHub()
    with setup_turn(tmp_path_factory):
        yield found
    found.server.shutdown()
    found.server.server_close()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Somebody's own, with a model of theirs."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    (folder / "net.py").write_text(MODEL)
    return folder


def run_action(repository: Path, github: GitHub, target: str = "", **inputs: str) -> list[int]:
    """Runs the action's own steps with their own environments; returns their exit codes.

    With a `target` branch it is a pull request's run.
    """
    named = {name.replace("_", "-"): value for name, value in inputs.items()}
    given = {name: each.get("default", "") for name, each in ACTION["inputs"].items()} | named
    around = {
        "GITHUB_ACTION_PATH": str(ROOT),
        "GITHUB_API_URL": f"http://127.0.0.1:{github.server.server_port}",
        "GITHUB_REPOSITORY": "o/r",
        "GITHUB_OUTPUT": str(repository.parent / "output"),
        "RUNNER_TEMP": str(repository.parent / "temp"),
    }
    codes = []
    for step in ACTION["runs"]["steps"]:
        if "run" not in step:
            continue
        texts = {
            key: INPUT.sub(lambda m: given[m[1]], value)
            for key, value in step.get("env", {}).items()
        }
        if "TARGET_BRANCH" in texts:
            texts["TARGET_BRANCH"] = target
        if "PULL_REQUEST" in texts:
            texts |= {"ACTION_REPOSITORY": "o/etprof", "ACTION_REF": "v1"}
            texts |= {"PULL_REQUEST": "7", "GITHUB_TOKEN": "t"}
        done = run_command(
            ["bash", "-e", "-c", step["run"]],
            environment={**os.environ, **around, **texts},
            folder=repository,
            timeout_s=600,
        )
        print(done.stdout, done.stderr)
        codes.append(done.exit_code)
    return codes


def test_a_model_is_measured_and_its_comment_updated(repository: Path, github: GitHub) -> None:
    """Issue 21.5: one comment, however often the check runs."""
    assert run_action(
        repository, github, model="net.py:Net", precision="fp16", allow_first_run="true"
    ) == [0, 0, 0, 0]
    (posted,) = github.comments
    assert "sme2" in posted["body"].lower()
    assert posted["body"].startswith("<!-- etprof ")
    assert "This check passed" in posted["body"]
    folder = (repository.parent / "output").read_text().removeprefix("folder=").strip()
    assert Path(folder, "report.html").is_file()
    # WHEN the next push breaks the model
    (repository / "net.py").write_text("raise RuntimeError('broken')\n")
    codes = run_action(
        repository, github, model="net.py:Net", precision="fp16", allow_first_run="true"
    )
    # THEN the same comment says so, and the last step fails
    assert codes[:3] == [0, 0, 0]
    assert codes[3] not in {0, 70}
    assert len(github.comments) == 1
    assert "failed with exit code" in github.comments[0]["body"]
    # AND a fork's token, which may not write, fails no check
    github.is_read_only = True
    assert (
        run_action(
            repository, github, model="net.py:Net", precision="fp16", allow_first_run="true"
        )[2]
        == 0
    )


def test_a_mode_that_nobody_knows_fails(repository: Path, github: GitHub) -> None:
    codes = run_action(repository, github, model="toy_cnn", mode="cloud")
    assert codes[1] == 2
    assert github.asked == ["GET", "POST"]


def test_a_device_takes_its_model_from_the_config(repository: Path, github: GitHub) -> None:
    for inputs in ({"model": "toy_cnn"}, {"precision": "fp16"}, {}):
        config = "" if not inputs else "config.json"
        codes = run_action(repository, github, mode="device", config=config, **inputs)
        assert codes[1:] == [2, 0, 2]


def test_figures_of_the_check_before_answer_for_nothing(
    repository: Path, github: GitHub, capfd: pytest.CaptureFixture[str]
) -> None:
    """A machine of one's own keeps its folders; a stranger may write the mark; GitHub may be away."""
    (repository / "net.py").write_text(MODEL)
    assert run_action(repository, github, model="net.py:Net", allow_first_run="true") == [
        0,
        0,
        0,
        0,
    ]
    (ours,) = github.comments
    for user in ({"type": "User"}, None):  # whoever has left GitHub is null
        github.comments.insert(0, {"id": 0, "body": ours["body"], "user": user})
    ours["id"] = 2
    (repository / "net.py").write_text("raise RuntimeError('broken')\n")
    run_action(repository, github, model="net.py:Net")
    *strangers, ours = github.comments
    assert all("This check passed" in each["body"] for each in strangers)
    assert "This check passed" not in ours["body"]
    assert "could not measure" in ours["body"]
    github.is_silent = True
    assert run_action(repository, github, model="net.py:Net")[2] == 0
    assert "GitHub does not answer as it should" in capfd.readouterr().out


LAYERS = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(4, 16, 3, padding=1, groups={groups})
        self.body = nn.Conv2d(16, {channels}, 3, padding=1)

    def forward(self, image):
        return self.body(self.stem(image).relu())

    def get_eager_model(self):
        return self.eval()

    def get_example_inputs(self):
        return (torch.randn(1, 4, 16, 16),)
"""


def commit(repository: Path, branch: str, *, groups: int = 1, channels: int = 32) -> None:
    (repository / "net.py").write_text(LAYERS.format(groups=groups, channels=channels))
    author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["checkout", "-q", "-B", branch], ["add", "net.py"],
                  ["commit", "-q", "--allow-empty", "-m", "x"]):  # fmt: skip
        done = run_command(["git", *author, *words], folder=repository)
        assert done.exit_code == 0, done.stderr


def unfolded(body: str) -> list[str]:
    return re.sub(r"<details>.*?</details>", "", body, flags=re.DOTALL).strip().splitlines()


def test_a_pull_request_is_gated_by_what_it_does_to_each_layer(
    repository: Path, github: GitHub
) -> None:
    """C3-3: "2 of 3 ran on SME2" was "This check passed": nothing of the target branch was read."""
    model = {"model": "net.py:Net", "precision": "fp16"}
    commit(repository, "main")
    assert run_action(repository, github, target="main", **model)[-1] == 9
    (comment,) = github.comments
    assert "First run" in comment["body"]
    assert run_action(repository, github, allow_first_run="true", **model)[-1] == 0
    # WHEN a layer leaves SME2
    commit(repository, "feature", groups=4)
    assert run_action(repository, github, target="main", **model)[-1] == 1
    # THEN the one comment says which, with its line, in few lines and with links that open
    (comment,) = github.comments
    shown = unfolded(comment["body"])
    assert len(shown) <= 20
    (moved,) = [line for line in shown if "Operators on SME" in line]
    assert "2 → 1" in moved
    assert "stem (net.py:13) left SME" in moved
    assert "](https://github.com/o/etprof/blob/v1/docs/findings.md#f" in comment["body"]
    assert "\\`" not in comment["body"]
    assert "|  |  |" not in comment["body"]
    # AND a pull request that changes nothing is green
    commit(repository, "same")
    assert run_action(repository, github, target="main", **model)[-1] == 0
    # AND so is one that makes a layer smaller, which the comment states
    commit(repository, "smaller", channels=24)
    assert run_action(repository, github, target="main", **model)[-1] == 0
    (comment,) = github.comments
    assert "body (net.py:13) 1,179,648 → 884,736" in comment["body"]
