"""What docs/how-to/spark.md shows runs as it is printed there. The oracle is the text itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.docs.documents import DOCS, run_page

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.usefixtures("spark")
def test_what_the_page_about_spark_shows_runs(tmp_path: Path) -> None:
    run_page(DOCS / "how-to" / "spark.md", tmp_path)
