# Two commands matter: `make book` and `make test`. Everything runs in .venv, made from constraints.txt.
PYTHON ?= python3
VENV ?= .venv
PORT ?= 8000
export PIP_ARGS ?=
CHAPTERS ?=

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet $$PIP_ARGS -c constraints.txt
STAGES := lint unit processes notebooks book links wheel site data

.PHONY: help book test serve lab references format clean distclean $(addprefix test-,$(STAGES))
.DEFAULT_GOAL := help

help:
	@echo 'make book         build the executed book into _build/html (creates $(VENV) on the first call)'
	@echo 'make test         every check but data; make test-NAME for one of: $(STAGES)'
	@echo 'make serve        serve the built book on 127.0.0.1:$(PORT)'
	@echo 'make lab          open the chapters as notebooks in JupyterLab'
	@echo 'make references   regenerate tests/notebooks (CHAPTERS="priors ..." for some of them)'
	@echo 'make format       apply the formatter and the safe fixes of the linter'
	@echo 'make clean        remove what was built; make distclean: and $(VENV)'
	@echo 'Settings: PYTHON=$(PYTHON) (3.11 to 3.13)  VENV=$(VENV)  PORT=$(PORT)  PIP_ARGS=... (handed to pip)'

$(BIN)/python:
	@$(PYTHON) -c 'import sys; ok = (3, 11) <= sys.version_info[:2] <= (3, 13); sys.exit(None if ok else "Python 3.11 to 3.13 is needed, $(PYTHON) is " + sys.version.split()[0] + ": set PYTHON=python3.12 or similar")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.book: pyproject.toml constraints.txt | $(BIN)/python
	@echo 'Installing the book environment into $(VENV) (a few minutes on the first call)'
	$(PIP) -e '.[book]'
	@touch $@

$(VENV)/.test: pyproject.toml constraints.txt tests/referees.txt $(VENV)/.book
	@echo 'Installing the test environment into $(VENV)'
	$(PIP) -e '.[book,cluster,hmc,test]'
	$(PIP) --no-deps -r tests/referees.txt
	@touch $@

book: $(VENV)/.book
	@$(BIN)/python tools/stages.py book

test: $(VENV)/.test
	@$(BIN)/python tools/stages.py

$(addprefix test-,$(STAGES)): test-%: $(VENV)/.test
	@$(BIN)/python tools/stages.py $*

serve: $(VENV)/.book
	@test -f _build/html/index.html || $(BIN)/python tools/stages.py book
	@echo 'http://127.0.0.1:$(PORT)/ (stop with Ctrl-C)'
	@$(BIN)/python -m http.server $(PORT) --bind 127.0.0.1 --directory _build/html

$(VENV)/.lab: pyproject.toml constraints.txt $(VENV)/.book
	@echo 'Installing JupyterLab into $(VENV)'
	$(PIP) -e '.[book,lab]'
	@touch $@

lab: $(VENV)/.lab
	@JUPYTER_CONFIG_PATH=tools/lab $(BIN)/jupyter lab --port $(PORT) book/chapters

references: $(VENV)/.test
	@$(BIN)/python tools/references.py $(CHAPTERS)

format: $(VENV)/.test
	@$(BIN)/python -m ruff check --fix .
	@$(BIN)/python -m ruff format .

clean:
	rm -rf _build build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

distclean: clean
	rm -rf $(VENV)
