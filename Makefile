# Every task that a person does. `make` lists them.

SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
APT_NEEDS := $(strip $(if $(shell command -v cmake),,cmake) $(if $(shell command -v cc),,build-essential))

.PHONY: help setup build run demo test fuzz chaos lint bench bench-edge setup-bench-edge measurements test-vllm record-vllm-cache test-clients setup-browser test-browser screenshots test-prometheus

help:
	@echo 'make setup      install what is missing to build (cmake and a C compiler, through apt)'
	@echo 'make build      build the balancer, optimised, and its bench: target/release/homing, homing-bench'
	@echo 'make run        serve conf/homing.yaml'
	@echo 'make demo       four simulated replicas, the balancer, a load that crosses the knee and back; runs until Ctrl-C'
	@echo 'make test       all tests that need nothing but this machine'
	@echo 'make fuzz       the fuzzers for longer: a minute each, or FUZZ_SECONDS=600'
	@echo 'make chaos      32 sessions while replicas fail at random, every answer checked: 10 minutes, or CHAOS="--seconds 60 --seed 1"'
	@echo 'make lint       formatting and clippy, warnings denied'
	@echo 'make bench      the benchmarks, as tables and as JSON'
	@echo 'make bench-edge only what a request costs beside nginx and HAProxy (fetched from Debian, not installed)'
	@echo 'make measurements  simulate what docs/measurements.md shows and draw its plots anew'
	@echo 'make test-browser  the page in a headless Chromium (installed through apt, with Node.js)'
	@echo 'make screenshots   pictures of the page under load, into target/screenshots/'
	@echo 'make test-prometheus  the metrics, the alert rules and the dashboard by promtool (fetched through apt)'
	@echo 'make test-clients  conversations by Claude Code, Codex and the OpenAI and Anthropic SDKs (installs them from npm and PyPI)'
	@echo 'make test-vllm  the balancer before real vLLM servers on the CPU (downloads 2.8 GiB)'

setup:
ifneq ($(APT_NEEDS),)
	$(SUDO) apt-get update -qq
	$(SUDO) apt-get install -y -qq $(APT_NEEDS)
endif
	@command -v cargo > /dev/null || { echo 'Rust is missing: install it with rustup, then run this again.'; exit 1; }

build: setup
	cargo build --release --locked --workspace

run: build
	target/release/homing serve --config conf/homing.yaml

demo: setup
	cargo build --release --locked --workspace
	target/release/homing-bench demo --homing target/release/homing

test: setup
	cargo test --locked --workspace

FUZZ_SECONDS ?= 60

fuzz: setup
	FUZZ_SECONDS=$(FUZZ_SECONDS) cargo test --locked --release --test fuzz -- --nocapture

chaos: build
	target/release/homing-bench chaos $(CHAOS)

lint: setup
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings

bench: setup bench-edge
	cargo bench --locked --bench leave --bench page --bench streams
	cargo bench --locked --package homing-bench --bench routing

bench-edge: setup setup-bench-edge
	cargo build --release --locked --bin homing
	cargo bench --locked --package homing-bench --bench edge

BENCH_EDGE_PACKAGES := nginx haproxy liblua5.3-0 libopentracing-c-wrapper0 libopentracing1

# nginx and HAProxy from Debian, unpacked and not installed: no service of theirs starts.
setup-bench-edge:
ifeq ($(wildcard target/edge/usr/sbin/haproxy),)
	$(SUDO) apt-get update -qq
	mkdir -p target/edge
	cd target/edge && apt-get download -qq $(BENCH_EDGE_PACKAGES)
	cd target/edge && for package in *.deb; do dpkg -x $$package .; done
endif

RAMP := target/release/homing-bench ramp --seeds 5

measurements: setup
	cargo build --release --locked -p homing-bench
	$(RAMP) --arms off,least-in-flight,hash,affinity --warmup 600 --seconds 600 --plot docs/plots/steady
	$(RAMP) --arms off,random,hash,affinity --plot docs/plots/cold
	$(RAMP) --load farm --arms random,least-in-flight,hash,prefix,affinity --tiers 16,20,26 \
		--warmup 600 --seconds 900 --plot docs/plots/farm
	$(RAMP) --load open --arms off-0.27,least-in-flight,hash,prefix,affinity \
		--warmup 600 --seconds 1800 --plot docs/plots/open
	$(RAMP) --arms off,hash,affinity,working-set --tiers 4,8,16,24,32,48 --seconds 900 --plot docs/plots/knee

NODE_NEEDS := $(strip $(if $(shell command -v node),,nodejs) $(if $(shell command -v npm),,npm))
BROWSER_NEEDS := $(strip $(if $(shell command -v chromium),,chromium) $(NODE_NEEDS))

setup-browser: setup
ifneq ($(BROWSER_NEEDS),)
	$(SUDO) apt-get update -qq
	$(SUDO) apt-get install -y -qq --no-install-recommends $(BROWSER_NEEDS)
endif
	npm ci --prefix tests/browser --no-audit --no-fund
	cargo build --locked --workspace

test-browser: setup-browser
	node --test tests/browser/

screenshots: setup-browser
	node tests/browser/screenshots.mjs

# Unpacked, not installed: the package would start a Prometheus, on the port that is Homing's by default.
PROMTOOL := $(or $(shell command -v promtool),target/prometheus/usr/bin/promtool)

target/prometheus/usr/bin/promtool:
	mkdir -p target/prometheus
	$(SUDO) apt-get update -qq
	cd target/prometheus && apt-get download -qq prometheus && dpkg-deb -x prometheus_*.deb .

test-prometheus: setup $(PROMTOOL)
	PROMTOOL=$(abspath $(PROMTOOL)) cargo test --locked --test blackbox -- --include-ignored dashboards

test-clients: setup
ifneq ($(NODE_NEEDS),)
	$(SUDO) apt-get update -qq
	$(SUDO) apt-get install -y -qq --no-install-recommends $(NODE_NEEDS)
endif
	cargo build --locked --workspace
	tests/clients/setup.sh
	target/clients/venv/bin/python -B tests/clients/run.py --binaries target/debug

test-vllm: setup
	cargo build --locked
	tests/vllm/setup.sh
	python3 -B tests/vllm/run.py conversations --homing target/debug/homing
	python3 -B tests/vllm/run.py knee --homing target/debug/homing
	python3 -B tests/vllm/run.py faults --homing target/debug/homing
	python3 -B tests/vllm/run.py cache

# Writes a real vLLM's figures anew into bench/tests/vllm_cache_script.json.
record-vllm-cache:
	tests/vllm/setup.sh
	python3 -B tests/vllm/run.py record-cache
