"""The dashboard's server: loopback only, no path of anyone's choosing, one sentence for mistakes."""

from __future__ import annotations

import contextlib
import hashlib
import html
import http.client
import os
import re
import socket
from typing import TYPE_CHECKING

import pytest

from etprof.analysis.assessment import assess_runs
from etprof.cli import main
from etprof.dashboard import server
from etprof.dashboard.export import export_site
from etprof.history.schema import Run
from etprof.history.store import Store, open_store
from etprof.run.load import Run as LoadedRun
from etprof.views.formats.html import render_html
from tests.dashboard_server import Served, serving
from tests.known_history import KnownHistory, fill
from tests.known_runs import on_off_run, write_run
from tests.measured_runs import MeasuredRun, write_measured

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy.orm import Session

KNOWN = KnownHistory(commits=2, models=("toy_cnn",), devices=("Phone A",), precisions=("fp32",))


@pytest.fixture(scope="module")
def run_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("measured") / "run", on_off_run())


@pytest.fixture(scope="module")
def report(run_directory: Path) -> str:
    return render_html(assess_runs([LoadedRun.load(run_directory)]))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, run_directory: Path) -> Iterator[Store]:
    opened = open_store(tmp_path_factory.mktemp("history") / "known.sqlite")
    fill(opened, KnownHistory(**{**KNOWN.__dict__, "run_path": str(run_directory)}))
    yield opened
    opened.engine.dispose()


@pytest.fixture(scope="module")
def served(store: Store) -> Iterator[Served]:
    with serving(store) as running:
        yield running


def as_of(run_directory: Path, report: str) -> str:
    """The report, as if it were of the run in this directory."""
    own = hashlib.sha256((run_directory / "manifest.json").read_bytes()).hexdigest()
    return re.sub(r'(?<=<meta name="etprof-runs" content=")[0-9a-f]{64}(?=">)', own, report)


def etprof_says(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = main(["dashboard", *words])
    return code, capsys.readouterr().err


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7"])  # noqa: S104
def test_refuses_to_listen_beyond_loopback(
    store: Store, capsys: pytest.CaptureFixture[str], host: str
) -> None:
    code, said = etprof_says(capsys, "--store", store.name, "--host", host)
    assert code == 2
    assert said == (
        f"etprof: --host {host} would show the dashboard to other machines, without a password; "
        "add --listen-beyond-loopback if that is wanted\n"
    )


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.9"])
def test_listens_on_loopback(host: str) -> None:
    with server.listen(host, 0) as listener:
        assert listener.getsockname()[0].startswith("127.")


def test_listens_beyond_loopback_when_told_to() -> None:
    with server.listen("0.0.0.0", 0, beyond_loopback=True) as listener:  # noqa: S104
        assert listener.getsockname()[0] == "0.0.0.0"  # noqa: S104


def test_mistakes_are_one_clear_sentence(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "nothing.sqlite"
    assert etprof_says(capsys, "--store", str(missing)) == (
        4,
        f"etprof: {missing} does not exist; `etprof history add RUN_DIR` makes a history\n",
    )
    assert not missing.exists()
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        in_use = f"etprof: port {port} of 127.0.0.1 is in use; "
        way_out = "choose another with --port, 0 takes a free one\n"
        assert etprof_says(capsys, "--store", store.name, "--port", port) == (2, in_use + way_out)
    assert etprof_says(capsys, "--store", store.name, "--host", "no.such.host.invalid") == (
        2,
        "etprof: --host no.such.host.invalid is not an address of this machine; use 127.0.0.1\n",
    )
    assert etprof_says(capsys, "--store", store.name, "--runs", "3") == (
        2,
        "etprof: --runs belongs to --export DIR; a served dashboard has a page for every run\n",
    )
    code, said = etprof_says(capsys, "--port", "70000")
    assert code == 2
    assert "--port: must be at most 65535, not 70000" in said


def test_every_page_is_guarded_by_headers(served: Served) -> None:
    paths = (
        "overview",
        "models",
        "failures",
        "run?id=1",
        "compare",
        "compare?baseline=1&candidate=2",
    )
    for path in paths:
        answer = served.ask(f"/{path}")
        assert answer.status == 200, path
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; style-src 'self'; script-src 'self';")
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in answer.headers
    assert served.ask("/").headers["location"] == "overview"
    assert served.ask("/dashboard.css").headers["content-type"] == "text/css; charset=utf-8"


@pytest.mark.parametrize(
    "path",
    [
        "/../../../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/static/dashboard.css",
        "/templates/layout.html.j2", "/run", "/run?id=../../etc/passwd", "/run?id=99999999999999999",
        "/run?id=-1", "/report?id=99", "/trend?config=<script>", "/sides?model=none",
        "/sides?model=toy_cnn&by=device", "/overview?metric=none", "/problem",
        "/compare?baseline=1&candidate=x",
    ],
)  # fmt: skip
def test_what_is_no_page_is_not_found(served: Served, path: str) -> None:
    answer = served.ask(path)
    assert answer.status == 404
    assert "<h1>No such page</h1>" in answer.text
    assert "<script>" not in answer.text
    assert "root:" not in answer.text


def test_only_reading_is_possible(served: Served) -> None:
    assert served.ask("/overview", method="HEAD").status == 200
    for method in ("POST", "PUT", "DELETE"):
        assert served.ask("/overview", method=method).status == 405


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8050", "127.0.0.1.evil.example", ""]
)
def test_answers_to_loopback_names_only(served: Served, host: str) -> None:
    # A page elsewhere may let its own name point to 127.0.0.1 and then read what answers there.
    assert served.ask("/overview", host=host).status == 421
    for known in ("localhost", f"localhost:{served.port}", f"[::1]:{served.port}", "127.0.0.1"):
        assert served.ask("/failures", host=known).status == 200


def test_answers_to_any_name_when_listening_beyond_loopback(store: Store) -> None:
    with serving(store, beyond_loopback=True) as running:
        assert running.ask("/failures", host="bench.lab:8050").status == 200


def test_report_is_served_in_a_sandbox(served: Served, run_directory: Path, report: str) -> None:
    file = run_directory / "report.html"
    assert served.ask("/report?id=1").status == 404
    assert "Report of the run directory" not in served.ask("/run?id=1").text
    file.write_text(report)
    try:
        answer = served.ask("/report?id=1")
        assert (answer.status, answer.text) == (200, report)
        assert answer.headers["content-security-policy"].startswith("sandbox allow-scripts;")
        link = r'<a href="report\?id=[0-9a-f]{16}">Report of the run directory</a>'
        assert re.search(link, served.ask("/run?id=1").text)
    finally:
        file.unlink()


@pytest.mark.parametrize("kind", ["foreign", "link", "folder", "pipe"])
def test_no_other_file_is_given_out_as_a_report(
    served: Served, run_directory: Path, report: str, tmp_path: Path, kind: str
) -> None:
    file = run_directory / "report.html"
    secret = tmp_path / "secret.html"
    secret.write_text(report)
    match kind:
        case "foreign":
            file.write_text("<script>alert(1)</script>" + report)
        case "link":
            file.symlink_to(secret)
        case "folder":
            file.mkdir()
        case "pipe":
            os.mkfifo(file)
    try:
        assert served.ask("/report?id=1").status == 404
    finally:
        file.rmdir() if kind == "folder" else file.unlink()


@pytest.fixture
def measured_twice(tmp_path: Path, report: str) -> Iterator[tuple[Path, Store]]:
    """A history with a run at a path, where another one was measured afterwards."""
    place = write_measured(tmp_path / "out_m/runs/linux", MeasuredRun(program="a" * 64))
    (place / "report.html").write_text(as_of(place, report) + "<!-- of A -->")
    with open_store(tmp_path / "history.sqlite") as store:
        store.add_run_directory(place)
        place.rename(tmp_path / "out_m/runs/elsewhere")
        write_measured(place, MeasuredRun(program="b" * 64, minute=10))
        (place / "report.html").write_text(as_of(place, report) + "<!-- of B -->")
        yield place, store


def pages_of_run(store: Store, folder: Path) -> tuple[str, str, str]:
    """The run's page and its report as they are served, and the report as it is exported."""
    export_site(store, folder / "site")
    exported = next((folder / "site").glob("report-*.html"), None)
    with serving(store) as running:
        served = running.ask("/run?id=1").text, running.ask("/report?id=1").text
    return *served, exported.read_text() if exported else ""


def test_a_report_of_another_run_is_never_shown(
    measured_twice: tuple[Path, Store], tmp_path: Path
) -> None:
    """T14: the path is measured into again; live and exported."""
    _, store = measured_twice
    page, served, exported = pages_of_run(store, tmp_path)
    assert "<!-- of" not in served + exported
    assert "another run stands in its place" in page
    assert 'href="report' not in page


@pytest.mark.parametrize("whose", ["own", "another's", "both", "nobody's"])
def test_a_report_of_another_run_in_the_directory_is_told(
    whose: str, report: str, tmp_path: Path
) -> None:
    """T14: `etprof report OTHER --out RUN_DIR`: the file was shown, whichever run it was of."""
    place = write_measured(tmp_path / "linux", MeasuredRun())
    runs = [LoadedRun.load(write_run(tmp_path / "other", on_off_run()))]
    page = {
        "own": as_of(place, report),
        "another's": render_html(assess_runs(runs)),
        "both": as_of(place, report).replace('-runs" content="', f'-runs" content="{"0" * 64} '),
        "nobody's": re.sub(r'<meta name="etprof-runs".*\n', "", report),
    }[whose]
    (place / "report.html").write_text(page)
    with open_store(tmp_path / "history.sqlite") as store:
        store.add_run_directory(place)
        of_run, served, exported = pages_of_run(store, tmp_path)
    is_shown = whose in {"own", "both"}
    assert ("is of another run" not in of_run) == is_shown
    assert ('href="report' in of_run) == is_shown
    assert [each == page for each in (served, exported)] == [is_shown] * 2


def test_a_run_that_was_set_aside_is_found(
    measured_twice: tuple[Path, Store], tmp_path: Path
) -> None:
    """T14: a run that is measured at the same path moves the earlier one aside."""
    place, store = measured_twice
    (tmp_path / "out_m/runs/elsewhere").rename(place.with_name("linux_20261121T050000Z"))
    _, served, exported = pages_of_run(store, tmp_path)
    assert served.endswith("<!-- of A -->")
    assert exported.endswith("<!-- of A -->")


def test_a_run_of_an_older_store_is_known_by_its_facts(
    measured_twice: tuple[Path, Store], tmp_path: Path
) -> None:
    """T14: schema 0001 kept no hash; the time and the program are told apart all the same."""
    place, store = measured_twice
    store.write(lambda session: session.get_one(Run, 1).__setattr__("manifest_sha256", None))
    assert "<!-- of" not in pages_of_run(store, tmp_path)[1]
    (tmp_path / "out_m/runs/elsewhere").rename(place.with_name("linux_20261121T050000Z_2"))
    assert pages_of_run(store, tmp_path)[1].endswith("<!-- of A -->")


def test_a_run_that_is_moved_and_added_again_is_shown_from_there(
    measured_twice: tuple[Path, Store], tmp_path: Path
) -> None:
    """T14: the row stays as it is, only its place is another."""
    _, store = measured_twice
    (again,) = store.add_run_directory(tmp_path / "out_m/runs/elsewhere")
    assert (again.run_id, again.is_new) == (1, False)
    assert pages_of_run(store, tmp_path)[1].endswith("<!-- of A -->")


def test_a_run_that_was_resumed_since_is_told(tmp_path: Path, report: str) -> None:
    """T14: the same run by its own name, but no longer what the history has of it."""
    place = write_measured(tmp_path / "linux", MeasuredRun())
    with open_store(tmp_path / "history.sqlite") as store:
        store.add_run_directory(place)
        manifest = place / "manifest.json"
        manifest.write_text(manifest.read_text().replace("finished", "running"))
        (place / "report.html").write_text(as_of(place, report))
        page, served, _ = pages_of_run(store, tmp_path)
    assert "changed since" in page
    assert served != report


def test_a_run_that_is_added_shows_at_once(tmp_path: Path) -> None:
    with open_store(tmp_path / "grows.sqlite") as store, serving(store) as running:
        assert "0 configurations" in running.ask("/overview").text
        fill(store, KNOWN)
        assert ">1 configuration<" in running.ask("/overview").text

        def add(session: Session) -> None:
            old = session.get_one(Run, 1)
            facts = {c.name: getattr(old, c.name) for c in Run.__table__.columns}
            new = {"id": 99, "key": "new", "series": "new", "model": "newcomer"}
            session.add(Run(**{**facts, **new}))

        store.write(add)
        answer = running.ask("/overview").text
    assert "2 configurations" in answer
    assert "newcomer" in answer


def test_a_store_that_breaks_is_said_on_the_page(tmp_path: Path) -> None:
    path = tmp_path / "breaks.sqlite"
    store = open_store(path)
    fill(store, KNOWN)
    with serving(store) as running:
        assert running.ask("/overview").status == 200
        store.engine.dispose()
        for file in tmp_path.iterdir():
            file.unlink()
        path.write_bytes(b"no database at all" * 100)
        answer = running.ask("/overview")
    assert answer.status == 503
    told = f"{path} is not a SQLite file; choose another --store"
    assert told in html.unescape(answer.text)


HALF_A_HEADER = b"GET /overview HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "


@pytest.mark.slow
def test_half_a_header_is_not_waited_for(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """S7: the dashboard kept every connection that never ended its request."""
    monkeypatch.setattr(server, "REQUEST_S", 1.0)
    with serving(store) as running, contextlib.ExitStack() as stack:
        slow = [
            stack.enter_context(socket.create_connection(("127.0.0.1", running.port), timeout=10))
            for _ in range(50)
        ]
        for each in slow:
            each.sendall(HALF_A_HEADER)
        assert running.ask("/overview").status == 200
        # One more byte of the header earns no more time.
        for each in slow:
            each.sendall(b"a")
        assert all(is_closed(each) for each in slow)
        assert running.ask("/overview").status == 200


@pytest.mark.slow
def test_more_than_can_wait_are_ended_at_once(store: Store) -> None:
    """With the timeout far away, 400 half-sent requests leave room for one that is whole."""
    with serving(store) as running, contextlib.ExitStack() as stack:
        slow = []
        for _ in range(400):
            each = socket.create_connection(("127.0.0.1", running.port), timeout=10)
            slow.append(stack.enter_context(each))
            each.sendall(HALF_A_HEADER)
        assert running.ask("/overview").status == 200
        assert all(is_closed(each) for each in slow[: 400 - server.MOST_WAITING])


def test_a_connection_is_kept_for_the_next_request(served: Served) -> None:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", served.port)) as connection:
        for _ in range(3):
            connection.request("GET", "/overview")
            answer = connection.getresponse()
            assert (answer.status, len(answer.read()) > 1000) == (200, True)


def test_a_header_without_end_is_refused(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(HALF_A_HEADER + b"a" * 200_000)
        with contextlib.suppress(ConnectionError):
            assert connection.recv(1000).startswith(b"HTTP/1.1 400")
        assert is_closed(connection)


def is_closed(connection: socket.socket) -> bool:
    """Waits for the end of a connection; an answer that comes before is passed over."""
    try:
        while connection.recv(1000):
            pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True
