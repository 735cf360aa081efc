# Each target sets up the machine for itself (scripts/setup.sh installs only what is missing).
BUILD := build
SECONDS := 600
PYTHON := python3
# The program brings the CUDA kernels where there is a GPU to run them; the tests compile them wherever nvcc is.
CUDA := $(if $(wildcard /dev/nvidia[0-9]*),AUTO,OFF)
MAKEFLAGS += --no-print-directory
.PHONY: demo test page page-serve page-screenshots wheel python-test gpu-test gpu-sanitize gpu-test-binary gpu-build tune-tiles build bench fuzz numerics report format clean setup

demo: build
	@$(BUILD)/canopy demo

build:
	@scripts/setup.sh demo
	@scripts/build.sh default $(BUILD) -DCANOPY_CUDA=$(CUDA) -DCANOPY_TESTS=OFF -DCANOPY_BENCH=OFF

test:
	@scripts/test.sh

# On a machine with an NVIDIA GPU; gpu-test-binary makes out/gpu_test for one without the build's dependencies.
gpu-build:
	@scripts/setup.sh gpu
	@scripts/build.sh default $(BUILD) -DCANOPY_CUDA=ON -DCANOPY_TESTS=OFF -DCANOPY_BENCH=OFF
	@ninja -C $(BUILD) --quiet gpu_test

gpu-test: gpu-build
	@$(BUILD)/gpu_test

gpu-sanitize: gpu-build
	@scripts/build.sh default build-racecheck -DCANOPY_CUDA=ON -DCANOPY_RACECHECK=ON -DCANOPY_TESTS=OFF -DCANOPY_BENCH=OFF
	@ninja -C build-racecheck --quiet gpu_test
	@RACECHECK=build-racecheck/gpu_test scripts/gpu_sanitize.sh $(BUILD)/gpu_test

gpu-test-binary: gpu-build
	@mkdir -p out && strip -o out/gpu_test $(BUILD)/gpu_test && ls -l out/gpu_test

# CTAs of other sizes timed on this machine's GPU, and the best row for src/cuda/tuning.hpp; ARCH=120 builds them only, for a
# GPU elsewhere (out/tiles). TILES="--write", "--family narrow": scripts/tune_tiles.py --help.
tune-tiles:
	@scripts/setup.sh gpu
	@$(PYTHON) scripts/tune_tiles.py $(if $(ARCH),build --arch $(ARCH)) $(TILES)

# build-python/dist/*.whl, with CUDA kernels where nvcc is and PyTorch operators where PyTorch is.
wheel:
	@scripts/setup.sh python
	@scripts/wheel.sh

python-test: wheel
	@build-python/venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall build-python/dist/*.whl
	@build-python/venv/bin/python -m pytest tests/python

# web/dist, a static site; page-screenshots draws it into out/page and docs/page-*.png.
page:
	@scripts/setup.sh page
	@scripts/page.sh build

page-serve: page
	@scripts/page.sh serve

page-screenshots: page
	@scripts/setup.sh page-test
	@scripts/page.sh screenshots

# Everything that docs/benchmarks.md shows, on this machine; BENCH=--quick for a look; PYTHON=a Python with PyTorch for the peers.
bench: build
	@$(PYTHON) bench/referee.py --program $(BUILD)/canopy $(BENCH)

fuzz:
	@scripts/setup.sh test
	@tests/fuzz/run.sh $(SECONDS)

numerics: build
	@scripts/setup.sh plot
	@$(BUILD)/canopy study --out results/numerics.jsonl
	@python3 bench/plot_numerics.py

# The measured numbers of README.md, docs/benchmarks.md, FINAL_REPORT.md and post/draft.md again, from results/ and the documents.
report:
	@python3 bench/report.py

format:
	@clang-format -i $$(git ls-files '*.cpp' '*.hpp' '*.h')

clean:
	@rm -rf $(BUILD) build-*

setup:
	@scripts/setup.sh test
