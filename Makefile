# Two commands matter: `make book` and `make test`. Each sets everything up by itself on a machine with Python >= 3.11.
# pip's own variables (PIP_INDEX_URL, PIP_EXTRA_INDEX_URL, PIP_FIND_LINKS, ...) are honoured; nothing here overrides them.

.DEFAULT_GOAL := help
SHELL := /bin/sh
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check
# Any pip requirement, with options if need be: TORCH_SPEC="torch==2.13.0+cpu" for a build without CUDA, say.
TORCH_SPEC ?= -r requirements-torch.txt
PORT ?= 8000
ARGS ?=

.PHONY: help setup book test serve lab bench lock clean distclean screenshots

help:
	@echo "make book         build the whole site into _build/html (sets up .venv first; BOOK_REPOSITORY=https://... adds links)"
	@echo "make test         build the site, then run every test, browser tests included (ARGS='-k ledger' to pass options)"
	@echo "make serve        serve _build/html at http://localhost:$(PORT)/ (PORT=... to change)"
	@echo "make lab          open the chapters in JupyterLab, where they are notebooks (start with the folder book)"
	@echo "make bench        run the benchmarks against their named opponents, in one process each"
	@echo "make setup        only make or refresh .venv (TORCH_SPEC='torch==2.13.0+cpu' chooses another build of torch)"
	@echo "make screenshots  pictures of every page, light, dark and 390 px wide, into _build/screenshots"
	@echo "make lock         pin every package again in requirements.txt (ARGS=--upgrade to renew)"
	@echo "make clean        remove _build; make distclean removes .venv as well"

setup: $(VENV)/.ready

# The virtual environment, in four stamped steps, so that only what changed is done again.
$(VENV)/.made:
	@python=""; for p in "$${PYTHON:-}" python3 python3.14 python3.13 python3.12 python3.11 python; do \
	  if [ -n "$$p" ] && "$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then python="$$p"; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	  echo "No Python 3.11 or newer found: install one, or name it with PYTHON=/path/to/python make ..." >&2; exit 1; fi; \
	echo "== virtual environment in $(VENV), from $$("$$python" --version)"; \
	"$$python" -m venv --clear $(VENV)
	@$(PIP) install --quiet --upgrade pip
	@touch $@

$(VENV)/.torch: $(VENV)/.made requirements-torch.txt
	@echo "== torch: $(TORCH_SPEC)"
	@$(PIP) install --quiet $(TORCH_SPEC)
	@touch $@

$(VENV)/.locked: $(VENV)/.torch requirements.txt
	@echo "== the locked packages of requirements.txt (about a minute)"
	@$(PIP) install --quiet --require-hashes -r requirements.txt
	@touch $@

$(VENV)/.ready: $(VENV)/.locked pyproject.toml setup.py postBuild tools/jupyterlab.json
	@echo "== attncore, editable"
	@PYTHONWARNINGS=ignore $(PIP) install --quiet --no-deps --no-build-isolation -e .
	@$(PIP) check
	@PATH="$(CURDIR)/$(VENV)/bin:$$PATH" ./postBuild
	@touch $@

book: $(VENV)/.ready
	@$(PY) tools/build_book.py

test: book
	@$(PY) -m pytest $(ARGS)

serve: $(VENV)/.ready
	@test -f _build/html/index.html || { echo "nothing to serve yet: run 'make book' first" >&2; exit 1; }
	@echo "http://localhost:$(PORT)/  (Ctrl-C stops)"
	@$(PY) -m http.server $(PORT) --bind 127.0.0.1 --directory _build/html

lab: $(VENV)/.ready
	@PATH="$(CURDIR)/$(VENV)/bin:$$PATH" ./start jupyter lab $(ARGS)

bench: $(VENV)/.ready
	@$(PY) -m benchmarks $(ARGS)

screenshots: book
	@$(PY) tests/browser/shoot.py _build/screenshots $(ARGS)

lock: $(VENV)/.made
	@$(PIP) install --quiet uv
	@$(PY) tools/lock.py $(ARGS)

clean:
	rm -rf _build

distclean: clean
	rm -rf $(VENV)
