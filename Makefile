# Targets that a newcomer needs: setup, demo, test.  Everything runs in .venv; downloads stay in the user's cache.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Also where the caller's environment says no: every process would compile all modules and rewrite all tests again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help setup size lock sbom docs release wheel demo demo-compare demo-kafka test test-fast test-all test-soak \
	mutants lint generate \
	bench-recovery bench-checkpoints bench-calm bench-notice bench-node-start bench-overhead bench-pace bench-width \
	bench-exchange bench-planners bench-nexmark bench-protocols bench-state bench-transfers bench-windows bench-ha-model \
	bench-availability bench-skew bench-operator bench-latency clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 18

setup: $(STAMP)  ## create .venv with everything that is needed (LOCKED=1: by hash, as CI does; Python 3.11 on Linux)

$(STAMP): pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 is needed (set PYTHON=...)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip uninstall --quiet --yes reprise 2>/dev/null || true   # an older checkout's name for this
ifdef LOCKED
	$(PIP) --require-hashes -r docker/build.lock
	$(PIP) --require-hashes --no-build-isolation -r docker/dev.lock
	$(PIP) --no-index --no-deps --no-build-isolation --editable .
else
	$(PIP) --editable '.[s3,gcs,azure,registry,protobuf,demo,dev]'
endif
	$(BIN)/python -m reprise.algorithms
	@touch $(STAMP)

size:  ## what .venv takes on disk, and its ten largest parts in MiB
	@du -sh $(VENV)
	@du -sm $(VENV)/lib/python*/site-packages/* | sort -rn | head -10

demo: setup  ## ten nodes, eight killed at once, queries back one by one, and a verdict
	rm -rf out/demo
	$(BIN)/reprise demo flights --out out/demo

demo-compare: setup  ## the same, and again with blocking recovery: how much longer queries are down
	rm -rf out/demo-compare
	$(BIN)/reprise demo flights --compare --out out/demo-compare

wheel: setup  ## out/dist/*.whl, without an index of packages
	$(BIN)/python -m tools.wheel

demo-kafka: setup  ## flights from Kafka to Kafka, eight of ten nodes killed, and every row counted
	$(BIN)/python -m examples.demo.flights_kafka --out out/demo-kafka

lint: setup  ## style, types and layers
	$(BIN)/python -m tools.run_tests test --part lint

# OF=tests/e2e/test_standbys.py runs the tests below these paths alone.
test-fast: setup  ## lint and most tests that need no cluster (under two minutes)
	$(BIN)/python -m tools.run_tests fast $(OF)

test: setup  ## lint and the tests: each promise once, on real Spark, ZooKeeper, Kafka and a Kubernetes API server
	$(BIN)/python -m tools.run_tests test $(OF)

test-all: setup  ## everything that has a fixed seed; what a release needs (hours)
	$(BIN)/python -m tools.run_tests all $(OF)

test-soak: setup  ## random fault schedules of the simulated world and the engine (hours)
	$(BIN)/python -m tools.run_tests soak $(OF)

mutants: setup  ## which changes of the code no test notices (hours; OF="reprise.scheduler.costs*" takes a part)
	$(BIN)/mutmut run $(OF)
	$(BIN)/python -m tools.mutants --out out/mutants

generate: setup  ## crds/, the chart's copy of them, and docs/reference.md, from the models
	$(BIN)/python -m tools.generate

lock: setup  ## docker/*.lock: versions and hashes of what the image and CI install (needs the index of packages)
	$(BIN)/python docker/lock.py

sbom: setup  ## out/sbom.cdx.json: what an image holds, in CycloneDX
	$(BIN)/python -m tools.sbom --to out/sbom.cdx.json

docs: setup  ## out/site: the documentation as a web site; a link or an anchor that leads nowhere is an error
	$(BIN)/python -m tools.docs_site --out out/site

release: setup  ## out/release: wheel, source, chart, CRDs, image context, SBOM and sums of the commit that is checked out
	rm -rf out/release
	$(BIN)/python -m tools.release --out out/release

bench-width: setup  ## what a steady job costs the driver, for 10 to 1,000 nodes
	$(BIN)/python -m benchmarks.width

bench-exchange: setup  ## how late messages of a continuous exchange are, and the stages of jobs beside it
	$(BIN)/python -m benchmarks.exchange

bench-planners: setup  ## fig. 16 of the paper, planners against the optimum; what a failure domain takes
	nice $(BIN)/python -m benchmarks.planners --out out/planners
	nice $(BIN)/python -m benchmarks.planners_domains

bench-recovery: setup  ## fig. 12 by four strategies; equal work by Flink and Structured Streaming after equal losses (4 h)
	$(BIN)/python -m benchmarks.recovery --out out/bench-recovery
	$(BIN)/python -m benchmarks.recovery --out out/bench-recovery-engines --work counts

bench-checkpoints: setup  ## one query lost by each checkpointing protocol: restart, recovery, what was stored, skipped, useless
	$(BIN)/python -m benchmarks.checkpoints --out out/bench-checkpoints

bench-skew: setup  ## NexMark with hot keys by protocol and order of input, one node lost: latency, checkpoints, restart (figs. 12, 13 of CheckMate)
	$(BIN)/python -m benchmarks.skew --out out/bench-skew

bench-protocols: setup  ## what messages carry for each checkpointing protocol, and which snapshots are skipped or useless
	$(BIN)/python -m benchmarks.protocols --out out/bench-protocols

bench-state: setup  ## what a snapshot of a large state holds up and stores; 128 MB to 4 GB, RocksDB of Structured Streaming beside (hours)
	$(BIN)/python -m benchmarks.state
	$(BIN)/python -m benchmarks.state_sizes --out out/bench-state --go-on

bench-transfers: setup  ## simulated: many snapshots written at the same time, all at once and in the steps of Peace
	$(BIN)/python -m benchmarks.transfers

bench-windows: setup  ## states stored slot by slot: what a recovery reads and replays, what the log costs, pages and whole states beside
	$(BIN)/python -m benchmarks.windows --ids 100000

bench-availability: setup  ## one partition lost by each way of coming back, beside Tables 6 to 8 and figs. 6, 7 of Hwang et al.; two of four nodes (20 min)
	$(BIN)/python -m benchmarks.availability --out out/bench-availability

bench-ha-model: setup  ## model and simulation of standbys and upstream backup (Hwang et al., Tables 6 to 8, figs. 6 and 7)
	$(BIN)/python -m benchmarks.ha_model

bench-calm: setup  ## half of a topology restores from a store that sleeps, and catches up: what the other half notices
	$(BIN)/python -m benchmarks.calm --out out/bench-calm

bench-notice: setup  ## 4 of 8 nodes are lost: with ten seconds of notice against unannounced, with and without standbys
	$(BIN)/python -m benchmarks.notice --out out/bench-notice --standbys

bench-node-start: setup  ## how long a node takes from the request for it to its first work, by phase
	$(BIN)/python -m benchmarks.node_start --out out/bench-node-start
	$(BIN)/python -m benchmarks.node_start --out out/bench-node-starts --together 4

bench-overhead: setup  ## what the machinery costs while nothing fails, and Structured Streaming beside it
	$(BIN)/python -m benchmarks.overhead --out out/bench-overhead

bench-latency: setup  ## how old output is by the interval of batches, and what the driver costs meanwhile
	$(BIN)/python -m benchmarks.latency --out out/bench-latency

bench-pace: setup  ## tweets a second through Topology 1, and how late its results are
	$(BIN)/python -m benchmarks.pace --out out/bench-pace

bench-nexmark: setup  ## NexMark from Kafka to Kafka beside Flink and Structured Streaming: events/s, latency, CPU time (50 min)
	$(BIN)/python -m benchmarks.nexmark --out out/bench-nexmark

bench-operator: setup  ## one operator with 1,000 topologies on 5,000 Kubernetes nodes, on a real API server and ZooKeeper
	$(BIN)/python -m tools.testbed.build
	$(BIN)/python -m benchmarks.operator_scale --out out/bench-operator

clean:  ## remove the environment and all output
	rm -rf $(VENV) out build mutants
