"""Doctests make temporary folders where pytest removes them."""

import tempfile

import pytest


@pytest.fixture(autouse=True)
def temporary_folders(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else removes them."""
    if isinstance(request.node, pytest.DoctestItem):
        monkeypatch.setattr(tempfile, "tempdir", str(request.getfixturevalue("tmp_path")))
