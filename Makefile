# Each target sets up the machine for itself (scripts/setup.sh installs only what is missing).
BUILD := build
SECONDS := 600
MAKEFLAGS += --no-print-directory
.PHONY: demo test build bench fuzz numerics format clean setup

demo: build
	@$(BUILD)/canopy demo

build:
	@scripts/setup.sh demo
	@scripts/build.sh default $(BUILD) -DCANOPY_TESTS=OFF -DCANOPY_BENCH=OFF

test:
	@scripts/test.sh

bench: build
	@$(BUILD)/canopy bench --device cpu

fuzz:
	@scripts/setup.sh test
	@tests/fuzz/run.sh $(SECONDS)

numerics: build
	@$(BUILD)/canopy study

format:
	@clang-format -i $$(git ls-files '*.cpp' '*.hpp' '*.h')

clean:
	@rm -rf $(BUILD) build-*

setup:
	@scripts/setup.sh test
