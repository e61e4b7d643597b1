# What a person types. Every target does its own set-up, and does it only once: a warm start needs no network.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
# Where a container sets it, every worker and every command of the tests would compile all of backupd anew.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
# Three at a time: on two processors a fourth only pays for its own start.
SIDE_BY_SIDE := $(BIN)/pytest -n 3 --dist worksteal
QUICK := $(addprefix tests/,unit contract story cli docs)
# First those whose tests wait longest, lest they be left for the end.
THOROUGH := $(addprefix tests/,fleet service web) $(QUICK)
READY := .venv/.ready
ANSIBLE := .cache/ansible
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --annotation-style line \
	--custom-compile-command 'make requirements' $(if $(UPGRADE),--upgrade)

.PHONY: help demo demo-targets test check lint types imports tests thorough-tests thorough-matrix \
	long-life fleet-night packaging-tests docker-tests docker-matrix cloud-tests lab-tests docs docs-reference docs-examples test-all figure-tests \
	lab-matrix test-matrix old-server-tests campaign fire-tests campaign-of-histories campaign-of-faults campaign-of-power-cuts hostile mutants coverage bench-lock bench-settle bench-peers bench-readers \
	bench-copy bench-copies bench-disks bench-size bench-tables bench-load-table bench-start bench-age bench-apply \
	bench-archive bench-binlog-search \
	setup-python setup-check setup-s3 setup-clouds setup-service setup-fleet setup-docker setup-ansible setup-lab setup-peers \
	requirements wheel packages clean

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 22

demo: setup-python setup-lab ## a backup of a loaded server on a striped volume, and a dropped table brought back, in a machine of its own (3 minutes)
	$(BIN)/backupd demo

demo-targets: setup-python setup-lab setup-s3 ## one job on a folder, an SFTP and an S3 server, encrypted (4 minutes)
	$(BIN)/backupd lab run --rows 5000 --load 20 -- python -m tests.bench.three_targets

# The one that takes longest goes last, so that what is wrong is seen early.
test: check thorough-tests docker-tests lab-tests ## every promise but those of figures, packages, clouds, big fleets and a long life (29 minutes on two processors)

check: lint types imports tests ## after every change: what takes no whole run, server or lab (about a minute)

lint: setup-python
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# mypy gives its workers 3 s to start, and ends with 2 where a busy machine does not manage that: then it goes without.
types: setup-python
	$(BIN)/mypy || { (($$? == 2)) && $(BIN)/mypy --num-workers=0; }

imports: setup-python
	$(BIN)/lint-imports --no-logo

tests: setup-python setup-check setup-fleet setup-s3
	BACKUPD_TESTS_SHARE=quick $(SIDE_BY_SIDE) $(QUICK) -m "not thorough and not exhaustive and not matrix"

# What `check` leaves out for its time, its properties with all their examples, what walks through every case (failures at
# every call, every zone's clock), of what comes from a seed a share, as tests/share.py says; the pages and a fleet. In
# one session and with a fourth beside, because many of them wait: for a browser, a PostgreSQL, a night's end.
thorough-tests: setup-python setup-check setup-fleet setup-s3 setup-service ## whole runs, every case, real servers, stores and browsers; OF=tests/web a part of it (12 minutes)
	$(SIDE_BY_SIDE) -n 4 --durations=60 $(or $(OF),$(THOROUGH)) -m "(thorough or exhaustive or hypothesis) and not figures and not matrix"

# On a further store, server, database or way to a host, what the targets of `make test` try on one.
thorough-matrix: setup-python setup-check setup-fleet setup-s3 setup-service ## what `make thorough-tests` tries once, on everything else, and after years (5 minutes)
	$(SIDE_BY_SIDE) $(THOROUGH) -m matrix

# Nothing beside it: how long pages take is one of its figures.
long-life: setup-python setup-service ## 300 runs, drills, prunings and page loads in one daemon; prints what has grown (half an hour)
	$(BIN)/pytest tests/service -m figures -s

fleet-night: setup-python setup-fleet ## a simulated night of 500 hosts, control hosts killed 50 times: SEED=18 (12 minutes)
	$(BIN)/python -m tests.fleet.night --full --seed $(or $(SEED),18)

# On the Docker engine that answers, else on one that is started for them.
docker-tests: setup-python setup-check setup-docker ## backupd on real servers in containers (4 minutes)
	.ci/with-docker $(SIDE_BY_SIDE) -n 6 tests/docker --timeout=900 --durations=10 -m "not matrix"

# On a further server, what `docker-tests` tries once.
docker-matrix: setup-python setup-check setup-docker ## what `make docker-tests` tries once, on another server (a minute)
	.ci/with-docker $(SIDE_BY_SIDE) tests/docker --timeout=900 --durations=10 -m matrix

# Apart from `make test`, because what it needs of npm and Go takes five minutes to get, the first time.
cloud-tests: setup-python setup-check setup-clouds ## targets on Azurite and fake-gcs-server: the contract's suite, and faults (2 minutes)
	$(BIN)/pytest tests/clouds -n 2 --dist loadfile --durations=5

packaging-tests: setup-python setup-docker setup-ansible ## the wheel, the packages in roots of their own, the images (20 minutes)
	.ci/with-docker $(BIN)/pytest tests/packaging --timeout=900 --durations=5

# No test here may be skipped because the lab does not start, and no test at all (pytest's exit 5) is a failure.
lab-tests: setup-python setup-lab setup-s3 setup-service setup-fleet
	$(BIN)/pytest tests/lab -n 2 --dist loadfile --timeout=900 --durations=10 -m "not figures and not matrix"

docs: setup-python ## the documentation as pages to read, in site/; a broken link is a failure
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --clean --config-file docs/mkdocs.yml

docs-reference: setup-python ## write anew what the documentation has from the code: the reference, the architecture's picture
	$(BIN)/python -m tests.docs.generate

docs-examples: setup-python setup-check setup-lab setup-s3 ## type the documentation's examples anew, in the lab and on hosts of fakes: ONLY=demo (half an hour on an idle machine)
	$(BIN)/python -m tests.docs.examples $(ONLY)

# When what measures has changed, and before a release. Of what comes from a seed it tries all.
test-all: export BACKUPD_TESTS_SHARE := full
test-all: test thorough-matrix docker-matrix long-life fleet-night cloud-tests packaging-tests figure-tests lab-matrix test-matrix fire-tests ## every test: also the matrices, clouds, packages, figures, a daemon's long life, a fleet's night, a campaign (three hours)

figure-tests: setup-python setup-lab
	$(BIN)/pytest tests/lab --timeout=900 --durations=10 -m figures

# Further servers, layouts and kernels for what `lab-tests` tries once.
lab-matrix: setup-python setup-lab setup-s3 setup-service ## the lab's tests on the machines that `make test` leaves out
	$(BIN)/pytest tests/lab -n 2 --dist loadfile --timeout=900 --durations=10 -m matrix

test-matrix: setup-python setup-lab ## every server on every kind of volume: each two values together, FULL=1 all 24
	$(BIN)/python -m tests.bench.matrix $(if $(FULL),--full) $(if $(AGAIN),--again)

old-server-tests: setup-python setup-check setup-lab ## what is promised of every MariaDB, on 10.5 of Debian 11 (15 minutes)
	$(BIN)/python -m tests.servers.old_mariadb -- $(BIN)/pytest -n 2 --dist loadfile $(addprefix tests/contract/,test_account.py \
		test_server.py test_scratch.py test_exporting.py test_applying.py) tests/cli/test_restore_to_moment.py

# One machine after the other until COUNT faults from SEED on have their results, in .cache/campaigns; goes on where it
# was ended. With FAULT only that one: a campaign prints the line that has one happen again.
campaign: setup-python ## promises with a seed, for as long as one likes: OF=histories SEED=0 COUNT=20000 (two hours); OF=faults COUNT=100 and OF=power-cuts COUNT=100 in the lab: KERNEL=uml
	$(MAKE) campaign-of-$(or $(OF),histories)

campaign-of-histories: setup-python
	$(BIN)/python -m tests.story.machines_campaign $(or $(SEED),0) $(or $(COUNT),20000)

campaign-of-faults: setup-python setup-lab setup-s3
	$(BIN)/python -m tests.fire.campaign --seed $(or $(SEED),0) --count $(or $(COUNT),100) --kernel $(or $(KERNEL),uml) \
		$(if $(PLANT),--plant $(PLANT)) $(if $(FAULT),--command $(or $(COMMAND),run) --fault '$(FAULT)') \
		$(if $(DEATH),--death '$(DEATH)' --died $(or $(DIED),run)) $(ARGS)

campaign-of-power-cuts: setup-python setup-lab
	$(BIN)/python -m tests.power.campaign $(or $(SEED),0) $(or $(COUNT),100) --kernel $(or $(KERNEL),uml) \
		--out .cache/campaigns/power-cuts-$(or $(KERNEL),uml) $(if $(PLANT),--plant $(PLANT)) $(ARGS)

# The same seeds on each kernel, each time from the beginning.
fire-tests: setup-python setup-lab setup-s3 ## 40 faults and 12 power cuts on each of two kernels (half an hour)
	rm -rf .cache/campaigns/fire-tests
	for kernel in uml uml-installed; do \
		$(BIN)/python -m tests.fire.campaign --seed 0 --count 40 --kernel $$kernel --out .cache/campaigns/fire-tests/faults-$$kernel; \
	done
	$(BIN)/python -m tests.power.campaign 0 12 --kernel both --out .cache/campaigns/fire-tests/power-cuts

hostile: setup-python setup-check ## every attack of the corpus by everybody with every command: SEED=14 (an hour)
	$(BIN)/python -m tests.hostile.campaign $(or $(SEED),14)

mutants: setup-python setup-check ## the code of the decisions is changed in 3600 places, and tests have to notice: ONLY=retention (half an hour; where processors are busy, an hour and a half)
	$(BIN)/python -m tests.mutants.run --only "$(ONLY)" $(ARGS)

coverage: setup-python setup-check setup-fleet setup-s3 setup-clouds ## which branches of operations, commits and targets the tests take: ARGS=--missing (20 minutes)
	$(BIN)/python -m tests.branches.run $(ARGS)

bench-lock: setup-python setup-lab ## how long the lock is held, beside a plain lvcreate's, without udev and with it
	$(BIN)/backupd lab run --rows 50000 -- python -m tests.bench.bench_lock
	$(BIN)/backupd lab run --rows 50000 --init systemd -- python -m tests.bench.bench_lock

bench-settle: setup-python setup-lab ## what waiting for the penalty to settle costs and saves (25 minutes): ARGS="--load 150 …"
	$(BIN)/python -m tests.bench.bench_settle $(ARGS)

bench-peers: setup-python setup-lab setup-peers ## what a backup costs beside its rivals: ROUNDS=5 (five hours), ARGS="--disks hdd …"
	$(BIN)/python -m tests.bench.bench_peers --rounds $(or $(ROUNDS),5) $(ARGS)

bench-readers: setup-python setup-lab ## what reading a snapshot costs, by who reads it: ROUNDS=3 (half an hour)
	$(BIN)/python -m tests.bench.bench_peers --readers --disks hdd --rounds $(or $(ROUNDS),3) $(ARGS)

bench-copy: setup-python setup-check setup-s3 ## how fast a copy and a restore are beside tar and zstd (3 minutes)
	$(BIN)/python -m tests.bench.bench_copy

bench-copies: setup-python setup-check setup-s3 ## how fast `backupd copy` moves a backup beside cp, sftp and boto3 (5 minutes)
	$(BIN)/python -m tests.bench.bench_copies $(ARGS)

bench-disks: setup-python setup-lab ## what a request costs on each of the lab's kinds of disks (2 minutes)
	for disks in hdd ssd delay; do \
		$(BIN)/backupd lab run --rows 1000 --load none --disks $$disks --spare-disks 1 -- python -m tests.bench.bench_disks; \
	done

bench-size: setup-python setup-check setup-s3 ## how much memory and time 5 TiB and a million files take (20 minutes)
	$(BIN)/python -m tests.bench.bench_size

bench-tables: setup-python setup-check ## how soon a server with 200,000 tables answers, as root: FOLDER=/tmp (6 minutes in memory)
	$(BIN)/python -m tests.bench.bench_tables $(if $(FOLDER),--folder $(FOLDER))

bench-load-table: setup-python setup-check ## how soon a table of 1 GiB is back in a loaded server: ARGS="--mib 256 --rounds 1 --load 100" (half an hour)
	$(BIN)/python -m tests.bench.bench_load_table $(ARGS)

bench-apply: setup-python setup-check ## how fast a binlog is applied, in a session and as relay logs: ARGS="--rounds 5" (2 minutes)
	$(BIN)/python -m tests.bench.bench_apply $(ARGS)

bench-archive: setup-python setup-check setup-lab ## how far a binlog archive is behind its server, and what it costs that: ARGS="--rounds 5" (15 minutes)
	$(BIN)/python -m tests.bench.bench_archive $(ARGS)
	$(BIN)/backupd lab run --disks hdd --rows 5000 --load closed --deadline 3600 -- python -m tests.bench.bench_archive_lab $(LAB_ARGS)

bench-binlog-search: setup-python setup-check ## how fast a binlog archive is searched: ARGS="--gib 1" (two minutes)
	$(BIN)/python -m tests.bench.bench_binlog_search $(ARGS)

bench-age: setup-python setup-check ## what encrypting costs by OpenSSL, by pyrage and by the age program (half a minute)
	$(BIN)/python -m tests.bench.bench_age

bench-start: setup-python ## how soon `backupd history` answers, beside a Python that does nothing (half a minute)
	$(BIN)/python -m tests.bench.bench_start

setup-python: $(READY) ## .venv with the pinned packages and the project

$(READY): requirements-dev.txt pyproject.toml .ci/setup-python
	.ci/setup-python
	@touch $@

setup-check: ## the Debian packages that `make check` needs
	@.ci/packages check

setup-s3: setup-python ## the S3 server of the tests, built once (2 minutes)
	@.ci/setup-s3

setup-clouds: setup-python ## Azure's and Google's storage for the tests, got once (5 minutes; needs npm)
	@.ci/setup-clouds

setup-service: ## the Debian packages that the tests of the service need
	@.ci/packages service

setup-fleet: ## the Debian packages that the tests of a fleet need: PostgreSQL
	@.ci/packages fleet

setup-docker: ## the Debian packages that the tests in containers need, but for an engine
	@.ci/packages docker

setup-ansible: $(ANSIBLE)/.ready ## Ansible, for the test of its role, in an environment of its own

$(ANSIBLE)/.ready: requirements-ansible.txt | $(READY)
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(ANSIBLE)
	$(BIN)/uv pip sync --quiet --python $(ANSIBLE)/bin/python --require-hashes $<
	@touch $@

setup-lab: ## the Debian packages that the lab needs
	@.ci/packages check lab

setup-peers: ## the Debian packages of those that backupd is measured beside
	@.ci/packages peers

requirements: setup-python ## write the pins anew from pyproject.toml; UPGRADE=1 takes the newest versions
	$(COMPILE) pyproject.toml --extra azure --extra gcs --extra fleet --output-file requirements.txt
	$(COMPILE) pyproject.toml --group dev --constraint requirements.txt --output-file requirements-dev.txt
	$(COMPILE) --group ansible --constraint requirements-dev.txt --output-file requirements-ansible.txt

wheel: setup-python ## dist/backupd-*.whl
	$(BIN)/uv build --quiet --wheel --no-build-isolation --python $(BIN)/python --out-dir dist

packages: wheel ## dist/backupd_*.deb and dist/backupd-*.rpm, which carry the Python that they need
	@.ci/packages package
	.ci/make-packages

clean: ## remove what these targets made here; `backupd lab clean` empties the lab's cache
	rm -rf .venv dist site .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
