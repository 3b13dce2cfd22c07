# Needs Node 20.19 or newer, make and python3; everything else is installed by npm from the lock file.
.PHONY: build test test-stores verify demo bench sim chaos docs wheels release clean

# Reinstalled when the lock file is newer. The build is a step of its own, so install scripts are not run here.
installed := node_modules/.installed
$(installed): package-lock.json
	npm ci --ignore-scripts
	@touch $@

build: $(installed)
	@npm run -s build

# Builds, lints, checks types, runs every test; closes with one line, "N passed, M failed".
test: $(installed)
	@node scripts/test.mjs

verify: test

# Every backend against every server that can be had (moto, MinIO, Azurite, fake-gcs-server), and the table in docs/stores.md.
# MinIO and fake-gcs-server are compiled with Go the first time, which takes some minutes.
test-stores: build
	@node scripts/test-stores.mjs

# Fleets on engines that can be had: Ray (pip install 'ray[data]'), Slurm (slurmctld slurmd slurm-client munge, as root), a Kubernetes API server
# (BATCHWEAVE_KUBE_BIN; npm install --no-save --ignore-scripts @kubernetes/client-node@1). What is missing is skipped with its reason. BATCHWEAVE_PYTHON names the interpreter.
.PHONY: test-engines
test-engines: build
	@cd python/tests && PYTHONPATH=..:. $${BATCHWEAVE_PYTHON:-python3} -m unittest -v engines.test_lanes engines.test_ray engines.test_slurm engines.test_kubernetes

demo: build
	@node dist/src/cli/main.js demo $(ARGS)

# make bench ARGS="ingest --json"
bench: $(installed)
	@npm run -s bench -- $(ARGS)

# make sim ARGS="--replay 7"
sim: $(installed)
	@npm run -s sim -- $(ARGS)

# make chaos ARGS="--rounds 100"
chaos: $(installed)
	@npm run -s chaos -- $(ARGS)

# The documentation site in dist/site: guides, reference of both languages, search. A dead link fails it. Its tools are installed in docs/site alone.
site := docs/site/node_modules/.installed
$(site): docs/site/package-lock.json
	cd docs/site && npm ci --ignore-scripts
	@touch $@

docs: $(installed) $(site)
	@node docs/site/build.mjs

# The packages for Python, in python/dist; needs the network and `pip install build`.
wheels: build
	@$${BATCHWEAVE_PYTHON:-python3} python/tools/build_wheels.py

# Tries everything, then publishes the npm and both Python packages; `make release ARGS=--dry-run` publishes nothing. Needs `pip install build twine` and the network.
release: $(installed)
	@node scripts/release.mjs --python $${BATCHWEAVE_PYTHON:-python3} $(ARGS)

clean:
	rm -rf dist node_modules docs/site/node_modules
