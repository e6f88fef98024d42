# `make install`, `make demo` and `make test`. Each sets up what it needs in .venv from the pinned versions.

PYTHON ?= python3
BIN := .venv/bin
PACKAGES := .venv/packages
INSTALLED := .venv/installed
RECORD_LOOP := hatch_build.py kraftlog/kafka/record_loop.py kraftlog/kafka/record_loop.pxd
COMPILED := .venv/tests-compiled
ROOMS := kraftbase raft snapshot statemachine kraftlog kraftpb tests

.PHONY: install demo test slow check format generate lock bench bench-against recording peers client-suites sim chaos soak soak-short dist clean

$(PACKAGES): requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "error: Python 3.11 or newer is needed: apt-get install python3"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' \
		|| { echo "error: the venv module is missing: apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check uv==0.13.8
	$(BIN)/uv pip install --quiet --system-certs --compile-bytecode --python $(BIN)/python -r requirements.lock
	-$(BIN)/uv --quiet cache prune  # an install may leave 2 GB behind: what a build of pyspark was made from
	@touch $@

# It compiles what reads records, if there are a C compiler and Python.h. uv would take it from its cache otherwise.
$(INSTALLED): $(PACKAGES) pyproject.toml $(RECORD_LOOP)
	$(BIN)/uv pip install --quiet --system-certs --python $(BIN)/python --no-deps --reinstall-package kraftlog -e .
	$(BIN)/python -m compileall -q -j 0 $(ROOMS)  # a command starts in 0.18 s, not 0.3, also where Python may not write
	@$(BIN)/python -c 'from kraftlog.kafka.record_reader import loop; loop.is_compiled or print("note: brokers read" \
		" records in Python, which is slower: there is no C compiler or no Python.h (apt-get install gcc python3-dev)")'
	@touch $@

# Each process of pytest would compile all tests for itself, in its own way, which takes 30 s. Here they share the work.
$(COMPILED): $(INSTALLED)
	find tests -name 'test_*.py' | PYTHONDONTWRITEBYTECODE= xargs -n 160 -P "$$(nproc)" \
		$(BIN)/pytest --quiet --quiet --collect-only >/dev/null || true
	@touch $@

install: $(INSTALLED)  ## the command .venv/bin/kraftlog, with all that it needs

demo: $(INSTALLED)  ## the whole main job in one go
	$(BIN)/kraftlog demo

test: $(COMPILED)  ## every test, on all processors
	$(BIN)/pytest -q --numprocesses 3 --dist loadfile

slow: $(COMPILED)  ## the cases that `make test` leaves out, all others in reverse order, and the simulator's bugs
	$(BIN)/pytest -q -m slow --numprocesses auto
	KRAFTLOG_ALL_CASES=1 $(BIN)/pytest -q --reverse --numprocesses 3 --dist loadfile
	$(BIN)/kraftlog sim zoo

check: $(INSTALLED)  ## style, types, import rules; that generated code is current and that docs name what is there are tests
	$(BIN)/ruff check --no-cache .
	$(BIN)/ruff format --no-cache --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python tools/asyncio_lines.py
	$(BIN)/pytest -q tests/test_generated.py tests/test_tidy.py tests/docs

format: $(INSTALLED)  ## rewrite the code in the house style
	$(BIN)/ruff check --no-cache --fix .
	$(BIN)/ruff format --no-cache .

generate: $(INSTALLED)  ## kraftpb/ from proto/, docs/internals/states.md from the table of transitions, and the README's pictures
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python tools/generate_protocol.py
	$(BIN)/python tools/generate_states.py
	$(BIN)/python tools/draw_images.py

lock: $(INSTALLED)  ## pin the newest versions that pyproject.toml allows
	$(BIN)/uv pip compile --quiet --all-extras --no-emit-index-url --no-header --no-annotate \
		--python-version 3.11 pyproject.toml -o requirements.lock

bench: $(INSTALLED)  ## every benchmark in docs/figures.md
	$(BIN)/kraftlog bench latency --fetch-version 17,18 --ops 300
	$(BIN)/kraftlog bench throughput
	$(BIN)/kraftlog bench crowd
	$(BIN)/kraftlog bench catch-up
	$(BIN)/kraftlog bench failover
	$(BIN)/kraftlog bench snapshot
	$(BIN)/kraftlog bench reload
	$(BIN)/kraftlog bench metadata
	$(BIN)/kraftlog bench kafka
	$(BIN)/kraftlog bench replication --pairs 3 --rounds 2 --bytes 200000000 --flushed-bytes 20000000 --records 500 \
		--behind-bytes 1000000000

bench-against: $(INSTALLED)  ## processor time of a small Produce and of a follower's Fetch: make bench-against AGAINST=a checkout, installed
	$(BIN)/python tools/processor_time.py --against "$(AGAINST)"

peers: $(INSTALLED)  ## etcd and Kafka into build/peers, our tables and log files against Kafka's, and the benchmark that compares with both
	@$(BIN)/python tools/install_peers.py build/peers
	$(BIN)/pytest -q tests/kraftlog/kafka/test_definitions.py tests/process/test_kafka_starts.py \
		tests/kraftlog/storage/test_dump_log.py tests/kraftlog/storage/test_stock_broker.py \
		tests/kraftlog/clients/test_stock_broker.py tests/process/test_kafka_tools.py \
		tests/process/test_kafka_tools_on_replicas.py tests/kraftlog/broker/test_offered_apis.py
	$(BIN)/kraftlog difftest --sequences 5 --peers build/peers
	$(BIN)/kraftlog bench peers --peers build/peers
	$(BIN)/python tools/client_suites.py

recording: $(INSTALLED)  ## docs/images/a-brokers-kill.svg: what an operator sees when a broker is killed
	$(BIN)/python tools/record_kill.py

client-suites: $(INSTALLED)  ## other clients' own tests at a broker of ours; fetches them, needs Go
	$(BIN)/python tools/client_suites.py

sim: $(INSTALLED)  ## ten minutes of simulated clusters under faults, then a broker's log, and brokers that replicate
	$(BIN)/kraftlog sim --minutes 10 --at-least 2000 --json sim.json
	$(BIN)/kraftlog sim --world broker-log --seeds 300 --json sim-broker-log.json
	$(BIN)/kraftlog sim --world replication --seeds 500 --json sim-replication.json

chaos: $(INSTALLED)  ## ten minutes of faults on voters, ten on brokers, 600 damaged files; as root with namespaces for partitions and a full disk
	$(BIN)/kraftlog chaos --minutes 10 --json chaos.json
	$(BIN)/kraftlog chaos brokers --minutes 10 --json chaos-brokers.json
	$(BIN)/kraftlog chaos damage --damages 600 --json chaos-damage.json

soak: $(INSTALLED)  ## ten minutes of steady load, then faults, of nodes, then of brokers: what each takes is bounded; as root also full disks
	$(BIN)/kraftlog chaos soak --minutes 10 --json soak.json --plot soak.svg
	$(BIN)/kraftlog chaos soak --brokers --minutes 10 --json soak-brokers.json --plot soak-brokers.svg
	$(BIN)/kraftlog chaos full-disks --json full-disks.json

soak-short: $(INSTALLED)  ## the same in four minutes, for a machine that is slow or busy
	$(BIN)/kraftlog chaos soak --minutes 3 --rate 300
	$(BIN)/kraftlog chaos full-disks

dist: $(INSTALLED)  ## dist/: an sdist and the wheel that is built of it, tried in an empty environment
	rm -rf dist
	$(BIN)/uv build --quiet --system-certs --python $(BIN)/python --out-dir dist
	KRAFTLOG_DIST=dist $(BIN)/pytest -q -m slow tests/process/test_dist.py

clean:  ## everything that was generated or installed
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build/peers dist
	rm -f kraftlog/kafka/compiled_record_loop.*
