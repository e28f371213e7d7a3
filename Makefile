# Shortcuts; everything is also a plain cargo command. Each target says what it needs (tools/need).
CARGO ?= cargo
BIN := $(or $(CARGO_TARGET_DIR),target)
export CARGO

.PHONY: all build demo demo-handoff demo-bond demo-crash test lint purity requirements golden fuzz-smoke fuzz bench validate soak deb test-deb test-systemd image test-image clean

all: build

# The command, the library of `lasthop exec`, and the programs of researchers and of fleets beside it. The
# last is built by itself: together, the command would have more in it.
build:
	tools/need build
	$(CARGO) build --locked --release -p lasthop -p lasthop-preload -p lasthop-study-cli
	@if command -v protoc >/dev/null; then \
		echo $(CARGO) build --locked --release -p lasthop-fleet; \
		$(CARGO) build --locked --release -p lasthop-fleet; \
	else \
		echo "make build: without lasthop-fleet, which needs protoc (protobuf-compiler, libprotobuf-dev)" >&2; \
	fi

# A download across a bad radio, by srp and by what else there is. DEMO=--json and other options.
demo:
	tools/need demo
	$(CARGO) build --locked --release -p lasthop -p lasthop-study-cli
	$(BIN)/release/lasthop demo $(DEMO)

# A mobile that moves from base to base while its connections go on. DEMO=--json and other options.
demo-handoff:
	tools/need demo
	$(CARGO) build --locked --release -p lasthop -p lasthop-study-cli
	$(BIN)/release/lasthop demo handoff $(DEMO)

# A train with two modems and a dish, by all of them together and by what else there is. DEMO=--json and other options.
demo-bond:
	tools/need demo
	$(CARGO) build --locked --release -p lasthop -p lasthop-study-cli
	$(BIN)/release/lasthop demo bond $(DEMO)

# A base that dies under a hundred connections, killed and cut off, and what becomes of each. DEMO=--json and other options.
demo-crash:
	tools/need demo
	$(CARGO) build --locked --release -p lasthop -p lasthop-study-cli
	$(BIN)/release/lasthop demo crash $(DEMO)

# Everything that must hold before a commit. The programs are built first because tests run them, with the
# tests: alone their dependencies would have other features, and all be built twice.
test:
	tools/need test
	$(MAKE) lint purity requirements
	$(CARGO) build --locked --workspace --all-targets --profile test
	tools/tests --locked --workspace --no-fail-fast

lint:
	tools/lint

purity:
	tools/purity

# The map from requirements to tests in docs/requirements.md is what the tests say.
requirements:
	tools/requirements --check

# Writes the tables of crates/study/tests/golden anew, and the tables of settings in docs: what changed in
# behaviour is what git diff shows.
golden:
	LASTHOP_GOLDEN=write $(CARGO) test --locked -p lasthop-study --test golden
	LASTHOP_GOLDEN=write $(CARGO) test --locked -p lasthop --test documented

# Random schedules by the hundred thousand: handoffs that interrupt each other, lost messages, crashed
# bases, stolen grants. `make test` runs some of each. Then real kernels for SOAK_TIME: moves, silences,
# floods and restarts under connections of every kind, and nothing may be wrong or grow.
SOAK_TIME ?= 1h
soak:
	tools/need test
	tools/need bench
	LASTHOP_SCHEDULES=100000 $(CARGO) test --locked -p lasthop-session --lib \
		-- --nocapture handoff::tests::schedules station::tests::schedules
	LASTHOP_FIRST=1000 LASTHOP_HANDOFFS=4000 LASTHOP_MOBILE_TCP=20000 \
		$(CARGO) test --locked -p lasthop-sim --test mhp random
	LASTHOP_SCHEDULES=20000 $(CARGO) test --locked -p lasthop-sim --test schedules \
		-- --nocapture packets_keep two_links_keep
	$(CARGO) build --locked --profile test -p lasthop
	LASTHOP_ROUNDS=20 $(CARGO) test --locked --profile test -p lasthop-lab --test rolling -- --nocapture
	$(CARGO) build --locked --release -p lasthop -p lasthop-bench
	$(BIN)/release/lasthop-bench soak --for $(SOAK_TIME)

# Each fuzz target for a moment, on a stable toolchain; without coverage to guide it.
fuzz-smoke:
	$(CARGO) test --locked -p lasthop-fuzz

# Each fuzz target with coverage, for FUZZ_SECONDS: wants a nightly toolchain and cargo-fuzz.
FUZZ_SECONDS ?= 300
fuzz:
	tools/fuzz $(FUZZ_SECONDS)

# Every figure that is claimed, with its peers. BENCH="loss --json" and the like for less.
BENCH ?= all --quick
bench:
	tools/need bench
	$(CARGO) build --locked --release -p lasthop -p lasthop-bench
	$(BIN)/release/lasthop-bench $(BENCH)

# Our TCP and simulated network beside ns-2, cell by cell. VALIDATE=--quick and the
# like for less; VALIDATE=speed for the speed of both.
VALIDATE ?=
validate:
	tools/need validate
	$(CARGO) build --locked --release -p lasthop-validate
	$(BIN)/release/lasthop-validate $(VALIDATE)

# The Debian packages, in $(BIN)/deb.
deb: build
	tools/need deb
	tools/deb $(BIN)/release $(BIN)/deb

# Installs it in a clean Debian (DEB_SUITE, or this host's own), uses it there, and removes it. As root.
test-deb: deb
	tools/need test-deb
	tools/test-deb $(BIN)/deb

# Boots a clean Debian with it, and runs each service by its unit and each drop-in. As root.
test-systemd: deb
	tools/need test-systemd
	tools/test-systemd $(BIN)/deb

# A container image of the packages, $(BIN)/deb/lasthop_*.oci.tar. As root.
image: deb
	tools/need image
	tools/image $(BIN)/deb

# Unpacks it, and runs a base and a mobile of it. As root.
test-image: image
	tools/need test-image
	tools/test-image $(BIN)/deb

clean:
	$(CARGO) clean
