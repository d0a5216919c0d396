"""The model of the commit protocol, `specs/commit.pml`, searched by Spin: it holds, and each mutant of it fails.

It needs `spin` and a C compiler, so it runs in the deep suite, which installs Spin.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.depth import IS_DEEP

MODEL = Path(__file__).parents[2] / "specs" / "commit.pml"
MUTANTS = (
    *("DELETE_ON_ERROR", "NO_FILE_CHECK", "NO_FINGERPRINT", "NO_READ_BACK", "NO_REBASE", "NO_RELISTING"),
    *("NO_SEGMENT_CHECK", "OVERWRITE"),
)


def test_each_mutant_of_the_model_is_known():
    assert {*re.findall(r"MUTANT_([A-Z_]+)", MODEL.read_text())} == {*MUTANTS}


def searched(folder: Path, *defines: str) -> str:
    """What Spin says of the model, with some lines of it changed."""
    folder.mkdir()
    options = [f"-D{define}" for define in defines]
    subprocess.run(["spin", "-a", *options, MODEL], cwd=folder, check=True, capture_output=True)
    compiler = ["cc", "-O1", "-DSAFETY", "-DMEMLIM=4000", "-o", "pan", "pan.c"]
    subprocess.run(compiler, cwd=folder, check=True, capture_output=True)
    return subprocess.run(["./pan"], cwd=folder, check=False, capture_output=True, text=True).stdout


def assert_holds(said: str) -> None:
    assert "errors: 0" in said, said
    assert "Search not completed" not in said, said  # its memory or depth did not suffice


if IS_DEEP:

    def test_the_commit_protocol_loses_nothing(tmp_path, figure):
        said = searched(tmp_path / "model")
        assert_holds(said)
        (states,) = re.findall(r"([0-9.e+]+) states, stored", said)
        figure(f"states of the model of the commit protocol, searched exhaustively: {float(states):.3g}; 0 errors")

    def test_rows_are_kept_though_a_vacuum_takes_nothing_for_young(tmp_path):
        assert_holds(searched(tmp_path / "model", "RECKLESS"))

    @pytest.mark.parametrize("mutant", MUTANTS)
    def test_each_mutant_of_the_commit_protocol_fails(tmp_path, mutant):
        assert "assertion violated" in searched(tmp_path / "model", f"MUTANT_{mutant}")
