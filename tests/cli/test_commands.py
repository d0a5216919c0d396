"""All commands at once, from what click knows of them: options, help, examples, and how they end.

Oracle: the list of rules in each test.
"""

from __future__ import annotations

import logging
import os
import shlex
import signal
import subprocess
import sys
import time

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import zonebloom as zb
from zonebloom import cli
from zonebloom.cli.root import SECTIONS, each_command
from zonebloom.errors import InvalidArgumentError
from zonebloom.indexing.versions import duration

COMMANDS = dict(each_command())
OF_A_PATH = {name for name, command in COMMANDS.items() if any(param.name == "path" for param in command.params)}
WRITERS = {"build", "refresh", "optimize", "vacuum", "delete"}


def options_of(name):
    return {text: param for param in COMMANDS[name].params if isinstance(param, click.Option) for text in param.opts}


def help_of(*names):
    return CliRunner().invoke(cli.app, [*names, "-h"], prog_name="zonebloom").output


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_80_columns_and_ends_with_examples_that_parse(name):
    text = help_of(*name.split())
    assert max(map(len, text.splitlines())) <= 80
    examples = [line.strip() for line in text.partition("Examples:\n")[2].splitlines()]
    assert examples
    arguments = [param for param in COMMANDS[name].params if isinstance(param, click.Argument)]
    assert all(f"\n  {argument.human_readable_name} " in text for argument in arguments)
    for example in examples:
        tokens = shlex.split(example)
        end = next((n for n, token in enumerate(tokens) if token in {"|", "||", ">", ">>", "<"}), None)
        assert tokens[:end][: 1 + len(name.split())] == ["zonebloom", *name.split()]
        arguments = tokens[1 + len(name.split()) : end]
        with COMMANDS[name].make_context(name, arguments) as context:
            assert context.params is not None


def test_the_list_of_commands_is_by_task_and_cuts_nothing():
    text = help_of()
    assert "..." not in text.partition("Options:")[2]
    assert max(map(len, text.splitlines())) <= 80
    places = [text.index(f"\n  {name} ") for names in SECTIONS.values() for name in names]
    assert places == sorted(places)
    assert {name for names in SECTIONS.values() for name in names} <= set(cli.app.commands)


def test_an_option_means_the_same_everywhere():
    """One spelling has one type, one short form, and one meaning; --column may be repeated where several are made."""
    seen = {}
    for name in COMMANDS:
        for text, option in options_of(name).items():
            kind = (option.type.name, option.is_flag, sorted(option.opts))
            assert seen.setdefault(text, kind) == kind, (name, text)


@pytest.mark.parametrize("name", sorted(OF_A_PATH))
def test_what_every_command_has(name):
    options = options_of(name)
    assert {"--format", "-f", "--storage-option", "--verbose"} <= set(options)
    assert "--index" in options or name in {"whatif", "blooms", "add-blooms", "lance audit"}  # which need none
    assert list(options).index("--storage-option") > len(options) - 4


@pytest.mark.parametrize("name", sorted(OF_A_PATH))
def test_json_is_json_for_every_command(name, flat_lake, tmp_path, run):
    import lance

    root = flat_lake.root
    zb.build_index(root, "user_id", rows_per_zone=500)
    (tmp_path / "ids.txt").write_text("u\n")
    zones = zb.open_index(root).zone_table("user_id").to_arrow()
    pq.write_table(zones, tmp_path / "zones.parquet")
    listed = ("-c", "user_id", "--values", tmp_path / "ids.txt")
    more = {
        **dict.fromkeys(("erase", "exists", "locate"), listed),
        "add-blooms": ("-c", "device_id", "-o", tmp_path / "copies"),
        "build": ("-c", "device_id"),
        "delete": ("--yes",),
        "explain": ("-w", "user_id = 'u'"),
        "lance export": ("-c", "user_id", "-o", tmp_path / "z.arrow"),
        "lance import": ("-i", tmp_path / "zones.parquet", "-c", "user_id", "--index", tmp_path / "index"),
        "report": ("-o", tmp_path / "report.html"),
        "restore": ("1",),
        "scan": ("-w", "amount IS NOT NULL", "--limit", "1"),
        "search": ("-w", "user_id = 'u'"),
        "whatif": ("-c", "user_id"),
    }
    if name == "lance audit":
        root = tmp_path / "t.lance"
        lance.write_dataset(pa.table({"user_id": ["u"]}), str(root))
    done = run(*name.split(), root, *more.get(name, ()), "-f", "json")
    assert done.code == 0
    assert done.document is not None


def test_dry_runs_write_nothing(flat_lake, run):
    def state():
        return sorted((path, path.stat().st_mtime_ns) for path in flat_lake.root.parent.rglob("*"))

    before = state()
    assert "would read 3 files" in run("build", flat_lake.root, "-c", "user_id", "--dry-run").out
    assert state() == before
    zb.build_index(flat_lake.root, "user_id")
    pq.write_table(pa.table({"user_id": ["x"]}), flat_lake.root / "new.parquet")
    before = state()
    assert "would add 1 file of 1 row, and drop 0" in run("refresh", flat_lake.root, "--dry-run").out
    for name in WRITERS - {"build", "refresh"}:
        outcome = run(name, flat_lake.root, "--dry-run")
        assert (outcome.code, bool(outcome.out)) == (0, True)
    assert state() == before


def test_a_dry_run_of_a_build_into_the_index_of_another_data_set_is_refused_as_the_build_is(flat_lake, tmp_path, run):
    zb.build_index(flat_lake.root, "user_id")
    pq.write_table(pa.table({"user_id": ["x"]}), tmp_path / "other.parquet")
    index = zb.open_index(flat_lake.root).location
    for more in ((), ("--dry-run",)):
        refused = run("build", tmp_path / "other.parquet", "-c", "user_id", "--index", index, *more)
        assert refused.code == 2
        assert f"or none yet, got that of {flat_lake.root}; name another by --index" in " ".join(refused.err.split())


# --- how it ends ------------------------------------------------------------------------------------------------------


@pytest.fixture
def built(flat_lake):
    zb.build_index(flat_lake.root, "user_id", rows_per_zone=500)
    return flat_lake.root


def shell(line):
    script = line.replace("zonebloom", f'"{sys.executable}" -m zonebloom', 1)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("LC_")}
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, env=environ)


FULL = "zonebloom: cannot read or write: No space left on device\n"


@pytest.mark.parametrize(
    ("line", "ended"),
    [
        ("zonebloom scan {} -w 'amount IS NOT NULL' > /dev/full", (1, FULL, 0)),
        ("zonebloom status {} > /dev/full", (1, FULL, 0)),
        ("zonebloom status {} >&-", (0, "", 0)),
        ("zonebloom scan {} -w 'amount IS NOT NULL' | head -n 1; exit ${{PIPESTATUS[0]}}", (141, "", 1)),
    ],
    ids=["rows on a full disk", "a full disk", "no stdout", "a reader that leaves"],
)
def test_a_stdout_that_takes_no_more_is_no_traceback(built, line, ended):
    """A reader that leaves ends it as the signal would."""
    done = shell(line.format(built))
    assert (done.returncode, done.stderr, done.stdout.count("\n")) == ended


INTERRUPTED_IMPORT = """
import os, signal, sys

class Finder:
    def find_spec(self, name, *_):
        if name == "{module}":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
signal.signal(signal.SIGINT, signal.{handler})
sys.argv[1:] = ["--version"]
from zonebloom.__main__ import main
main()
"""


@pytest.mark.parametrize(
    ("module", "handler", "status", "err"),
    [
        ("click", "default_int_handler", 130, "zonebloom: stopped\n"),
        ("zonebloom.cli.root", "default_int_handler", 130, "zonebloom: stopped\n"),
        ("click", "SIG_IGN", 0, ""),  # as under nohup
    ],
)
def test_ctrl_c_while_modules_are_loaded_is_no_traceback(module, handler, status, err):
    code = INTERRUPTED_IMPORT.format(module=module, handler=handler)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (status, err)


def test_ctrl_c_ends_with_130_and_says_what_stays(built):
    command = [sys.executable, "-c", SLOW, "refresh", str(built)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    assert process.returncode == 130
    assert err.strip() == "zonebloom: stopped; what was committed stays, and the same command continues from there"


SLOW = """
import time
from zonebloom import cli
from zonebloom.index.index import Index

def refresh(self, *_, **__):
    print("ready", flush=True)
    time.sleep(60)

Index.refresh = refresh
cli.main()
"""


@pytest.mark.parametrize("locale", ["C", "en_US.ISO-8859-1"])
def test_names_are_utf8_in_any_locale(tmp_path, locale):
    pq.write_table(pa.table({"Straße": ["x"], "名前": [1]}), tmp_path / "é.parquet")
    zb.build_index(tmp_path, "Straße")
    odd = {"LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-m", "zonebloom", "scan", str(tmp_path), "-w", "Straße = 'x'"]
    done = subprocess.run(command, capture_output=True, check=False, env=os.environ | odd)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode() == "Straße,名前\nx,1\n"


def test_an_error_of_ours_is_one_line_and_verbose_shows_where(built, capsys, monkeypatch):
    monkeypatch.setattr("zonebloom.index.index.Index.status", lambda _self: 1 / 0)
    message = "zonebloom: internal error: ZeroDivisionError: division by zero; add --verbose to see where\n"
    for options in ([], ["--verbose"]):
        monkeypatch.setattr(sys, "argv", ["zonebloom", "status", str(built), *options])
        assert cli.run() == 1
        err = capsys.readouterr().err
        assert err.endswith(message)
        assert (err == message, "Traceback" in err) == (not options, bool(options))


@pytest.mark.parametrize("place", ["before", "after"])
def test_verbose_changes_no_status(built, capsys, monkeypatch, place):
    wrong = ["search", str(built), "-w", "user_id ="]
    arguments = ["--verbose", *wrong] if place == "before" else [*wrong, "--verbose"]
    monkeypatch.setattr(sys, "argv", ["zonebloom", *arguments])
    assert cli.run() == 2
    assert "Traceback" in capsys.readouterr().err
    assert logging.getLogger("zonebloom").level == logging.NOTSET  # of a caller that goes on


def test_the_library_logs_quietly(built, capsys, caplog):
    with caplog.at_level("DEBUG", logger="zonebloom"):
        zb.open_index(built).search("user_id = 'x'")
        zb.open_index(built).refresh()
    assert {"opened", "searched", "refreshed"} <= {record.message.split()[0] for record in caplog.records}
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("first", [("-w", "user_id = 'x'"), ("-wuser_id = 'x'",), ("--where=user_id = 'x'",)])
def test_an_option_that_counts_once_is_not_given_twice(built, run, first):
    done = run("search", built, *first, "-wuser_id = 'y'")
    assert (done.code, "--where must be given once" in done.err) == (2, True)
    assert run("search", built, *first, "--strict", "--strict").code == 0


@pytest.mark.parametrize("arguments", [["-h"], ["help"], ["help", "scan"], ["scan", "--help"], ["-V"], ["--version"]])
def test_ways_to_ask_for_help(arguments):
    done = CliRunner().invoke(cli.app, arguments, prog_name="zonebloom")
    assert done.exit_code == 0
    assert done.output.startswith("zonebloom 0" if arguments[0] in ("-V", "--version") else "Usage: zonebloom")


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_completion_names_the_command(name):
    assert "_ZONEBLOOM_COMPLETE" in CliRunner().invoke(cli.app, ["completion", name]).output


@pytest.mark.parametrize(
    ("line", "completed"),
    [("sea", "plain,search"), ("lance ex", "plain,export"), ("build ev", "file,ev"), ("scan x --values i", "file,i")],
)
def test_shells_complete_commands_and_paths(line, completed):
    words = {"COMP_WORDS": f"zonebloom {line}", "COMP_CWORD": str(len(line.split()))}
    environment = {"_ZONEBLOOM_COMPLETE": "bash_complete", **words}
    done = CliRunner().invoke(cli.app, [], prog_name="zonebloom", env=environment)
    assert (done.exit_code, done.output) == (0, f"{completed}\n")


def test_warm_compiles_every_kernel():
    from zonebloom.bloom.kernels import locator, xxh64

    assert " kernels " in CliRunner().invoke(cli.app, ["warm"]).output
    for kernel in locator._encode_pages, xxh64._hash_variable:
        (dispatcher,) = [cell.cell_contents for cell in kernel.__closure__]
        assert len(dispatcher.signatures) == 1


def test_the_man_page_has_every_command_and_option():
    page = CliRunner().invoke(cli.app, ["man"]).output.replace("\\-", "-")
    assert page.startswith(".TH ZONEBLOOM 1")
    for name in COMMANDS:
        assert f".SS zonebloom {name} " in page
        assert all(text in page for text in options_of(name))
    assert ".B PATH\n\n" not in page, "each argument once"


@pytest.mark.parametrize(
    ("text", "seconds"), [("7d", 604_800), ("12h", 43_200), ("30m", 1800), ("0", 0), ("1.5", 129_600), (0.00002, 1.728)]
)
def test_durations(text, seconds):
    assert duration(text).total_seconds() == seconds
    for wrong in (f"-{text}", f"{text}s", "9" * 20):
        with pytest.raises(InvalidArgumentError, match=r"older_than .* is no time; write 7d, 12h or 30m"):
            duration(wrong)


def test_what_lasts_gives_a_sign_of_life_on_a_terminal():
    """On a pseudo terminal; on a pipe nothing is said."""
    code = "import time\nfrom zonebloom.cli import options\noptions._SECONDS_OF_SILENCE = 0\n"
    code += "with options.busy('verifying'):\n    time.sleep(0.5)\n"
    ours, theirs = os.openpty()
    done = subprocess.run([sys.executable, "-c", code], stderr=theirs, check=True)
    os.close(theirs)
    assert done.returncode == 0
    assert b"verifying" in os.read(ours, 1 << 16)
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stderr == b""
