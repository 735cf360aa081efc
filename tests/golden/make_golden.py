"""Writes the golden problems of this folder: small trees whose inputs are short decimals and whose expected values come
from E1 (docs/math.md) in plain Python floats, written here from scratch and independent of the C++.

    python3 tests/golden/make_golden.py           rewrite every NAME.json
    python3 tests/golden/make_golden.py --check   exit 1 if a file differs from what would be written

Fields: parents [T]; scale (on q, after the norm); l2norm, eps; q, k [T][H=1][K]; v [T][HV=1][V]; g, beta [T][1];
state [V][K] (layout vk); expected o, u [T][1][V], l [T][1], state_after [T][V][K]. Numbers have 17 digits.
"""

import json
import math
import pathlib
import sys

LOG_HALF = math.log(0.5)


def recurrence(problem):
    """E1 node by node. States are [V][K]: state[c][r] is S0[r][c] of the equations."""
    scale, eps = problem["scale"], problem["eps"]

    def normalised(x):
        factor = 1 / math.sqrt(math.fsum(e * e for e in x) + eps) if problem["l2norm"] else 1.0
        return [e * factor for e in x]

    out = {"o": [], "u": [], "l": [], "state_after": []}
    for i, parent in enumerate(problem["parents"]):
        k = normalised(problem["k"][i][0])
        q = [e * scale for e in normalised(problem["q"][i][0])]
        v, g, beta = problem["v"][i][0], problem["g"][i][0], problem["beta"][i][0]
        before = problem["state"] if parent < 0 else out["state_after"][parent]
        decayed = [[math.exp(g) * s for s in row] for row in before]
        u = [beta * (v[c] - math.fsum(s * e for s, e in zip(row, k))) for c, row in enumerate(decayed)]
        after = [[s + u[c] * e for s, e in zip(row, k)] for c, row in enumerate(decayed)]
        out["o"].append([[math.fsum(s * e for s, e in zip(row, q)) for row in after]])
        out["u"].append([u])
        out["l"].append([g + (0.0 if parent < 0 else out["l"][parent][0])])
        out["state_after"].append(after)
    return out


def problem(name, explain, parents, q, k, v, g, beta, state, scale=1.0, l2norm=False):
    one_head = lambda rows: [[row] for row in rows]
    return {
        "name": name, "explain": explain, "parents": parents, "scale": scale, "l2norm": l2norm, "eps": 1e-6,
        "q": one_head(q), "k": one_head(k), "v": one_head(v), "g": one_head(g), "beta": one_head(beta), "state": state,
    }


def digits(seed, rows, width):
    """Short decimals in -0.9 .. 0.9 that follow no pattern: a small congruential generator."""
    values = []
    for _ in range(rows * width):
        seed = (seed * 1103515245 + 12345) % 2**31
        values.append(((seed >> 16) % 19 - 9) / 10)
    return [values[i * width : (i + 1) * width] for i in range(rows)]


PROBLEMS = [
    problem(
        "one-node",
        "By hand. alpha = 1/2 halves the state: S~ = [[0.5, 0], [0, 1]] (rows v, columns k). S~^T k = (0.5*0.6, 1*0.8) = "
        "(0.3, 0.8). u = 1/2 ((1, 1) - (0.3, 0.8)) = (0.35, 0.1). S = S~ + u k^T = [[0.5 + 0.35*0.6, 0.35*0.8], "
        "[0.1*0.6, 1 + 0.1*0.8]] = [[0.71, 0.28], [0.06, 1.08]]. q = (1, 0) reads its first column: o = (0.71, 0.06).",
        [-1], [[1, 0]], [[0.6, 0.8]], [[1, 1]], [LOG_HALF], [0.5], [[1, 0], [0, 2]],
    ),
    problem(
        "fork",
        "By hand. The root and two children; S0 = 0, every alpha = 1 but node 2's, which is 1/2; beta = 1. Root: u = (2, 4), "
        "S = [[2, 0], [4, 0]]. Node 1 has the root's key and overwrites its value: S~^T k = (2, 4), u = (1, 1) - (2, 4) = "
        "(-1, -3), S = [[1, 0], [1, 0]], o = (1, 1). Node 2 does not see node 1: S~ = [[1, 0], [2, 0]], its key (0, 1) is new, "
        "u = (3, 5), S = [[1, 3], [2, 5]], q = (1, 1) gives o = (4, 7).",
        [-1, 0, 0], [[1, 0], [1, 0], [1, 1]], [[1, 0], [1, 0], [0, 1]], [[2, 4], [1, 1], [3, 5]],
        [0, 0, LOG_HALF], [1, 1, 1], [[0, 0], [0, 0]],
    ),
    problem(
        "equal-keys-chain",
        "Seven equal unit keys, nothing forgotten, beta = 1: each node replaces what the key holds, so u_i = v_i - v_(i-1) "
        "(u_0 = v_0 - S0^T k = v_0 - (1, 2)), the state holds v_i at the key and S0 elsewhere, and o_i = 0.5 v_i for q = k. "
        "The case in which Neumann series lose their digits.",
        [-1, 0, 1, 2, 3, 4, 5], [[1, 0]] * 7, [[1, 0]] * 7,
        [[0.5, 1], [-1, 2], [3, 0.25], [0, -2], [1.5, 1.5], [-0.75, 0], [2, -1]],
        [0] * 7, [1] * 7, [[1, 5], [2, 7]], scale=0.5,
    ),
    problem(
        "forgetting-root",
        "The root's log gate of -1e4 forgets S0 altogether: the large state changes nothing, o starts from zero. Sums of log "
        "gates below it must keep the small gates: l is -10000.1, -10000.15, ... and only differences enter.",
        [-1, 0, 1, 1, 0], digits(3, 5, 3), digits(4, 5, 3), digits(5, 5, 2), [-1e4, -0.1, -0.05, -0.2, -0.01],
        [0.9, 0.5, 1, 0.25, 0.75], [[100, -200, 300], [400, 500, -600]],
    ),
    problem(
        "normalised-tree",
        "L2 norm on q and k (the tiny key of node 3 shows the epsilon), scale 0.5 after it, a tree in breadth-first order: "
        "children of 0: 1, 2; of 1: 3, 4; of 2: 5; of 4: 6.",
        [-1, 0, 0, 1, 1, 2, 4], digits(7, 7, 4), [[0.0003, -0.0004, 0, 0.0005] if i == 3 else row for i, row in
                                                  enumerate(digits(8, 7, 4))],
        digits(9, 7, 3), [-0.5, -0.1, -0.9, 0, -0.25, -2, -0.01], [0.5, 1, 0.3, 0.9, 0, 0.75, 0.6], digits(10, 3, 4),
        scale=0.5, l2norm=True,
    ),
    problem(
        "negative-eigenvalues",
        "beta up to 2 (allowed by some models: the state along the key flips its sign), a gate slightly above 0, branches "
        "that are not in depth-first order: children of 0: 1, 3; of 1: 2, 5; of 3: 4.",
        [-1, 0, 1, 0, 3, 1], digits(12, 6, 3), [[0.6, 0, 0.8], [0.6, 0.8, 0], [0, 0.6, -0.8], [0.6, 0, 0.8], [0, 1, 0],
                                                [-0.8, 0.6, 0]],
        digits(13, 6, 2), [0.001, -0.3, 0, -0.02, 0.001, -1], [2, 1.5, 1, 2, 0.5, 1.75], digits(14, 2, 3),
    ),
]


def text(case):
    """One line a field, so that a changed number is one changed line."""
    fields = {**case, "expected": recurrence(case)}
    expected = ",\n".join(f'    {json.dumps(k)}: {json.dumps(v)}' for k, v in fields.pop("expected").items())
    lines = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in fields.items())
    return "{\n" + lines + ',\n  "expected": {\n' + expected + "\n  }\n}\n"


def main():
    folder, wrong = pathlib.Path(__file__).parent, 0
    for case in PROBLEMS:
        path = folder / f"{case['name']}.json"
        if "--check" not in sys.argv[1:]:
            path.write_text(text(case))
        elif not path.exists() or path.read_text() != text(case):
            print(f"{path.name} differs from what make_golden.py computes: run it without --check", file=sys.stderr)
            wrong = 1
    return wrong


if __name__ == "__main__":
    sys.exit(main())
