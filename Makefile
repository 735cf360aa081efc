# Each target sets up the machine for itself (scripts/setup.sh installs only what is missing).
BUILD := build
MAKEFLAGS += --no-print-directory
.PHONY: demo test build bench fuzz numerics format clean setup

demo: build
	@$(BUILD)/canopy demo

build:
	@scripts/setup.sh demo
	@cmake -S . -B $(BUILD) -G Ninja -DCANOPY_TESTS=OFF -DCANOPY_BENCH=OFF > $(BUILD).log || { cat $(BUILD).log; exit 1; }
	@ninja -C $(BUILD)

test:
	@scripts/test.sh

bench: build
	@$(BUILD)/canopy bench --device cpu

fuzz:
	@scripts/setup.sh test
	@tests/fuzz/run.sh $(or $(SECONDS),600)

numerics: build
	@$(BUILD)/canopy study

format:
	@clang-format -i $$(git ls-files '*.cpp' '*.hpp' '*.h')

clean:
	@rm -rf $(BUILD) build-*

setup:
	@scripts/setup.sh test
