# The front door. Every target is one command of its own; nothing is decided here.
JOBS ?= $(shell nproc)

MINUTES ?= 1

.PHONY: all demo test test-all torture asan tsan fuzz tidy format bench dist ci

all:
	tools/setup.sh cpu
	cmake --preset release
	cmake --build --preset release --parallel $(JOBS) --target draftmill

demo:
	tools/demo.sh

test:
	tools/test.sh

test-all:
	tools/test.sh --all

torture:
	tools/setup.sh test
	cmake --preset release
	cmake --build --preset release --parallel $(JOBS) --target draftmill draftmill_example
	.venv/bin/python tests/torture.py --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

asan:
	tools/setup.sh text
	tools/run_tests.sh asan-ubsan -L '^fast$$'

tsan:
	tools/setup.sh text
	tools/tsan_tbb.sh
	tools/run_tests.sh tsan -L '^fast$$'

fuzz:
	tools/setup.sh text
	tools/fuzz.sh 600

tidy:
	tools/tidy.sh

format:
	git ls-files -z '*.cc' '*.h' '*.cu' | xargs -0 clang-format -i

bench:
	tools/bench.sh

dist:
	cmake --preset release
	cmake --build --preset release --parallel $(JOBS) --target draftmill
	tools/dist.sh

ci:
	.ci/run
