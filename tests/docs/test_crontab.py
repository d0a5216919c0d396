"""The lines of the crontab in keep-it-fresh.md work as cron runs them: by sh, with few variables, in the home folder.

Oracle: a file that is added before is indexed after, and the log has a line of JSON for each job.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import zonebloom as zb
from tests.conftest import Lake
from tests.depth import some
from tests.docs.documents import DOCS, ROOT, blocks
from tests.s3 import KEYS, S3Server

PAGE = DOCS / "how-to" / "keep-it-fresh.md"
CRONTABS = [block.text for block in blocks(PAGE) if block.language == "crontab"]
(YAML,) = (block.text for block in blocks(PAGE.with_name("delta-and-iceberg.md")) if block.language == "yaml")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home folder, and a program beside it in the place of the virtual environment's."""
    (tmp_path / "home").mkdir()
    program = tmp_path / "zonebloom"
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m zonebloom "$@"\n')
    program.chmod(0o755)
    return tmp_path / "home"


def run_jobs(crontab: str, home: Path, places: dict[str, str], **more: str) -> list[dict[str, object]]:
    """What the jobs of `crontab` wrote to the log, with `places` for those of the page."""
    log = home.parent / "zonebloom.jsonl"
    places = {**places, "/srv/venv/bin/zonebloom": str(home.parent / "zonebloom"), "/var/log/zonebloom.jsonl": str(log)}
    for theirs, ours in places.items():
        crontab = crontab.replace(theirs, ours)
    variables = dict(re.findall(r"^([A-Z_]+)=(.*)$", crontab, re.MULTILINE))
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin", "SHELL": "/bin/sh", **variables, **more}
    for command in re.findall(r"^(?:\S+ ){4}\S+ +(.*)$", crontab, re.MULTILINE):
        done = subprocess.run(["/bin/sh", "-c", command], cwd=home, env=environment, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b""), command
    lines = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    assert all({"at", "seconds", "index"} <= set(line) for line in lines)
    return lines


def first_job(crontab: str) -> str:
    return "".join(re.findall(r"^[A-Z_]+=.*\n|^\S.* refresh .*\n", crontab, re.MULTILINE))


def test_three_jobs_keep_a_folder_fresh(flat_lake: Lake, home: Path) -> None:
    zb.build_index(flat_lake.root, "user_id")
    shutil.copy(flat_lake.root / flat_lake.files[0], flat_lake.root / "new.parquet")
    refreshed, optimized, vacuumed = run_jobs(CRONTABS[0], home, {"/lake/events": str(flat_lake.root)})
    assert (refreshed["num_files_added"], "columns" in optimized, "num_bytes" in vacuumed) == (1, True, True)


def test_a_job_of_an_object_store_takes_variables_of_the_crontab(
    flat_lake: Lake, home: Path, s3_server: S3Server
) -> None:
    bucket = s3_server.bucket("cron")
    bucket.client.upload_file(str(flat_lake.root / flat_lake.files[0]), "cron", "events/a.parquet")
    options = {**KEYS, "aws_endpoint": s3_server.url, "aws_allow_http": "true"}
    zb.build_index("s3://cron/events", "user_id", storage_options=options)
    bucket.client.upload_file(str(flat_lake.root / flat_lake.files[1]), "cron", "events/b.parquet")
    variables = {name.upper(): value for name, value in options.items()}
    (refreshed,) = run_jobs(first_job(CRONTABS[1]), home, {"s3://lake/events": "s3://cron/events"}, **variables)
    assert refreshed["num_files_added"] == 1


@pytest.mark.parametrize("configured", some(["by a file", "by variables"], 2))
def test_a_job_of_an_iceberg_table_finds_its_catalog(home: Path, configured: str) -> None:
    place = home.parent / "iceberg"
    place.mkdir()
    catalog = SqlCatalog("local", uri=f"sqlite:///{place}/catalog.db", warehouse=(place / "warehouse").as_uri())
    catalog.create_namespace("lake")
    rows = pa.table({"user_id": ["u1", "u2"]})
    table = catalog.create_table("lake.events", schema=rows.schema)
    table.append(rows)
    zb.build_index(table, "user_id", index=place / "events-index")
    table.append(rows)
    catalog.engine.dispose()
    crontab = first_job(CRONTABS[2])
    if configured == "by a file":
        crontab = re.sub(r"^PYICEBERG.*\n", "", crontab, flags=re.MULTILINE)
        (home / ".pyiceberg.yaml").write_text(YAML.replace("/srv/iceberg", str(place)))
    (refreshed,) = run_jobs(crontab, home, {"/srv/iceberg": str(place)})
    assert refreshed["num_files_added"] == 1
