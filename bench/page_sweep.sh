#!/usr/bin/env bash
# The page's curves for this machine's CPU: bench/page_sweep.sh PROGRAM FILE. One thread, a quiet machine, five minutes.
# Every family at batch 1, 2 and 4, and a grid of depth by width: spines whose levels all have the same number of nodes.
set -euo pipefail
program=$1 file=$2
parts=$(mktemp -d)
trap 'rm -rf "$parts"' EXIT
part=0
bench() {
  part=$((part + 1))
  "$program" bench "$@" --jsonl "$parts/$(printf %03d $part).jsonl" > /dev/null
}

bench --sweep
for levels in 2 4 8 16 32 64 128; do
  for width in 1 2 4 8 16 32 64 128; do
    nodes=$((levels * width))
    [ $nodes -gt 256 ] || bench --family spine --depth $((levels - 1)) --nodes $nodes
  done
done
bench --sweep --batch 2
bench --sweep --batch 4 --repeat 11

# One environment record for all; the kernel's version without its builder's suffix.
python3 - "$parts" > "$file" << 'PYTHON'
import json, pathlib, re, sys
environment = None
for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    for line in path.read_text().splitlines():
        record = json.loads(line)
        if record["type"] == "environment":
            if environment:
                continue
            environment = record
            record["system"] = re.sub(r"^(\S+ \d+\.\d+)\S*", r"\1", record["system"])
        print(json.dumps(record, separators=(",", ":")))
PYTHON
