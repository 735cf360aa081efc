#!/usr/bin/env bash
# The whole loan with one command, from your machine: infra/rent.sh [OPTIONS of pod.py create]
# Rents a pod, sends it this commit, runs bootstrap.sh there, brings the results into this checkout, stops the pod. The pod
# is stopped whatever goes wrong; its volume stays until `pod.py terminate`.
set -euo pipefail
cd "$(dirname "$0")/.."
pod() { "${PYTHON:-python3}" infra/pod.py "$@"; }

[ -z "$(git status --porcelain --untracked-files=no)" ] || echo "rent: uncommitted changes are not sent"
bundle=$(mktemp)
hosts=$(mktemp)  # the pod is new, and so is its host key: none of your known hosts has it
id=
leave() {
  local status=$?
  trap - EXIT INT TERM
  rm -f "$bundle" "$hosts"
  [ -z "$id" ] || pod stop "$id" || echo "rent: $id may still be running: stop it in the console" >&2
  exit $status
}
trap leave EXIT
trap 'exit 130' INT TERM
git bundle create --quiet "$bundle" HEAD

created=$(pod create "$@")
echo "$created"
id=$(sed -n 's/^created \([^ ]*\) .*/\1/p' <<< "$created")
[ -n "$id" ] || exit 0  # --dry-run
address=$(pod ssh-info "$id" --wait "${WAIT:-900}")  # root@IP -p PORT
remote() {
  ssh -o StrictHostKeyChecking=accept-new -o UserKnownHostsFile="$hosts" -o ServerAliveInterval=30 -o ConnectTimeout=20 $address "$@"
}

# The port may open before the daemon behind it.
for try in $(seq 20); do
  remote true < /dev/null && break
  [ "$try" != 20 ] || { echo "rent: no SSH to $address; remedy: add your public key to the account, or create with --public-key" >&2; exit 1; }
  sleep "${PAUSE:-15}"
done
remote 'cat > /workspace/canopy.bundle' < "$bundle"
status=0
for try in $(seq 20); do
  remote bash -s -- /workspace/canopy.bundle < infra/bootstrap.sh && status=0 || status=$?
  [ $status = 255 ] || break  # 255 is ssh's own: the connection dropped, the work goes on
  echo "rent: connection lost, following again"
  sleep "${PAUSE:-15}"
done
[ $status -le 1 ] || exit $status  # refused: nothing was run
remote 'cat /workspace/canopy-run-results.tar.gz' < /dev/null | tar -xzf -
echo "rent: the results are in this checkout (git status)"
[ $status = 0 ] || echo "rent: not everything passed there" >&2
exit $status
