# Every target installs what it needs: the npm packages (Node 24 among them) and, where a cluster is needed, a control
# plane built from Go modules. `make` alone lists the targets.

# npm's .bin comes first, so that `node` is the Node 24 of package.json whatever the machine has.
export PATH := $(CURDIR)/node_modules/.bin:$(PATH)

.DEFAULT_GOAL := help
INSTALLED := node_modules/.package-lock.json
VERSION = $(shell sed -n 's/^  "version": "\(.*\)",/\1/p' package.json)
# tap prepares its own test class once: https://node-tap.org/plugins/
TAP_BUILT := node_modules/.tap-built

##@ Start here

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*##"} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*##/ {printf "  %-19s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(INSTALLED) ## Migrate a real CRD on a real API server, step by step, in under two minutes
	@node test/demo/demo.ts

.PHONY: test
test: $(TAP_BUILT) ## Run all tests, the same each time (ten minutes on two cores); FILES=... for some of them
	@node test/run-tests.ts $(FILES)

# The chain from the freeze to the prune, where API servers store custom resources as CBOR.
CBOR_FILES = $(wildcard test/long/cbor*.test.ts test/integration/migrate*.test.ts test/integration/reencrypt.test.ts)
OLDEST_KUBERNETES := 1.32.9

.PHONY: test-long
test-long: $(TAP_BUILT) ## What takes hours: random seeds, long chaos, cert-manager, Helm, CBOR, the oldest Kubernetes, 20,000 simulated clusters
	@$(MAKE) --no-print-directory --keep-going long-files long-chaos long-unit long-cbor long-oldest long-seeds

# One of them that fails keeps the others from nothing.
.PHONY: long-files long-chaos long-unit long-cbor long-oldest long-seeds
LONG = CHAOS=long TEST_SEED=$(or $(TEST_SEED),$(shell od -An -N3 -tu4 /dev/urandom | tr -d ' '))
long-files:
	@$(LONG) node test/run-tests.ts long
long-chaos:
	@$(LONG) node test/run-tests.ts $(wildcard test/chaos/*.test.ts)
long-unit:
	@$(LONG) node test/run-tests.ts unit
long-cbor:
	@KSVM_TEST_FEATURE_GATES=CBORServingAndStorage=true node test/run-tests.ts $(CBOR_FILES)
long-oldest:
	@KUBERNETES_VERSION=$(OLDEST_KUBERNETES) node test/run-tests.ts cluster
long-seeds:
	@$(MAKE) --no-print-directory simulate SEEDS=20000 FROM=$$(node -p 'Math.ceil(Math.random() * 1e9)')

# Variables of make become flags: SEEDS=1000 is --seeds '1000'.
SIMULATE_FLAGS = $(foreach name,$(1),$(if $($(name)),--$(subst _,-,$(shell echo $(name) | tr A-Z a-z)) '$($(name))'))

.PHONY: simulate
simulate: $(INSTALLED) ## Play simulated clusters, where every delay and crash follows from a seed (SEEDS=1000 FROM=1), or SEED=7 or PLAN=NAME with a trace; SABOTAGE=NAME breaks ksvm
	@node test/simulation/main.ts $(call SIMULATE_FLAGS,SEED PLAN SABOTAGE FROM SEEDS WORKERS)

.PHONY: conformance
conformance: $(INSTALLED) ## Run the end-to-end test of kube-storage-version-migrator against ksvm (some 10 minutes; needs Go and KSVM_PEER_SOURCE=FOLDER)
	@node test/conformance/conformance.ts

##@ Develop

.PHONY: check
check: $(TAP_BUILT) ## Format, lint, types, and that the documentation names every flag, error code and metric (below a minute)
	biome format .
	oxlint --type-aware src test bench tools
	tsc -p .
	node test/run-tests.ts docs

.PHONY: coverage
coverage: $(TAP_BUILT) ## Run the unit tests, or those of FILES, and print how much of src/ they cover
	c8 --all --src src --include 'src/**' --reporter text --temp-directory .tap/coverage node test/run-tests.ts $(or $(FILES),unit)

.PHONY: format
format: $(INSTALLED) ## Format the code
	biome format --write .

.PHONY: build
build: $(INSTALLED) ## Bundle the program into one file, dist/ksvm.js
	node tools/build.ts

.PHONY: pin-images
pin-images: $(INSTALLED) ## Write the digests of the images into the Dockerfile, as their registries answer them
	@node tools/pin-images.ts

.PHONY: chart
chart: $(INSTALLED) ## Copy deploy/base and its components into the files of the Helm chart
	@node tools/chart.ts

ENGINES := docker podman nerdctl buildah

.PHONY: image
image: ## Build the OCI image ksvm:VERSION with docker, podman, nerdctl or buildah, the first that works (IMAGE=registry.example.com/ksvm:1 ENGINE=podman)
	@engine="$(ENGINE)"; test -n "$$engine" || for one in $(ENGINES); do $$one info >/dev/null 2>&1 && engine=$$one && break; done; \
	test -n "$$engine" || { echo "error: Cannot build the image: none of docker, podman, nerdctl and buildah is installed and works; '<engine> info' says why" >&2; exit 1; }; \
	set -x; exec $$engine build --tag "$(or $(IMAGE),ksvm:$(VERSION))" .

.PHONY: release
release: build ## Lay out a release under dist/release: package, plugin, chart, manifests, SBOM, checksums (RELEASE_URL=https://... for krew)
	@node tools/release.ts $(if $(RELEASE_URL),--url '$(RELEASE_URL)')

.PHONY: recording
recording: $(INSTALLED) ## Record docs/images/demo.svg: ksvm in a terminal, on a real API server (two minutes; needs util-linux)
	@node tools/recording.ts

.PHONY: sbom
sbom: $(INSTALLED) ## Write sbom.cdx.json: every package of the image, by package-lock.json (CycloneDX)
	@node tools/sbom.ts

##@ Measure

.PHONY: bench
bench: $(INSTALLED) ## Measure speed, distance, politeness, reruns, size and cost next to the peers (some 40 minutes; PART=throughput, KSVM_PEER_SOURCE=FOLDER)
	@node bench/suite/main.ts $(foreach part,$(PART),--part $(part))

.PHONY: bench-million
bench-million: $(INSTALLED) ## Measure the migration of 100,000 and of 1,000,000 objects (some 35 minutes)
	@node bench/suite/main.ts --part million

.PHONY: bench-prune
bench-prune: $(INSTALLED) ## Show what a failed migration does to storedVersions: in-tree controller and ksvm (ARGS="-o json")
	@node bench/in-tree-prune.ts $(ARGS)

.PHONY: bench-migrate
bench-migrate: build ## Measure how fast objects are migrated and what that costs (ARGS="--peer in-tree")
	@node bench/migrate.ts --program dist/ksvm.js $(ARGS)

.PHONY: bench-memory
bench-memory: build ## Measure how much memory large objects, and many, cost ksvm migrate and ksvm controller (ARGS="-o json")
	@node bench/memory.ts $(ARGS)

.PHONY: bench-reencrypt
bench-reencrypt: build ## Measure how long a new key takes for 1,000 and 10,000 Secrets, next to kubectl replace and the in-tree controller (ARGS="--rounds 1")
	@node bench/reencrypt.ts --program dist/ksvm.js $(ARGS)

.PHONY: bench-scale
bench-scale: build ## Measure what 5,000 CRDs and 20,000 migrations cost ksvm controller, idle and busy (ARGS="-o json")
	@node bench/scale.ts --program dist/ksvm.js $(ARGS)

.PHONY: bench-webhook
bench-webhook: build ## Measure how fast the webhook answers, against a Go webhook with the same rule (ARGS="-o json")
	@node bench/webhook.ts --program dist $(ARGS)

##@ Control plane

.PHONY: cluster-up
cluster-up: $(INSTALLED) ## Start etcd and an API server that stay (APISERVERS=2 for two)
	@node test/control-plane/cluster-up.ts

.PHONY: cluster-down
cluster-down: $(INSTALLED) ## End them
	@node test/control-plane/cluster-down.ts

.PHONY: binaries
binaries: $(INSTALLED) ## Build etcd, kubectl, kube-apiserver and kube-controller-manager, or find them
	@node test/control-plane/build.ts

.PHONY: clean
clean: ## Remove what the other targets made, except the built control plane
	rm -rf dist node_modules

$(INSTALLED): package.json package-lock.json
	@echo "installing the npm packages of package-lock.json into node_modules, Node.js 24 among them: about half a minute, once"
	@npm ci --no-fund --no-audit --loglevel=error
	@touch $@

$(TAP_BUILT): $(INSTALLED) .taprc
	tap build
	@touch $@
