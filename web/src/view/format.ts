// Numbers as people read them.

const superscript: Record<string, string> = { "-": "⁻", "0": "⁰", "1": "¹", "2": "²", "3": "³", "4": "⁴", "5": "⁵", "6": "⁶", "7": "⁷", "8": "⁸", "9": "⁹" };

export function power(exponent: number): string {
  return `10${[...String(exponent)].map((c) => superscript[c]).join("")}`;
}

// 2.1·10⁻⁷; plain between 0.01 and 10,000.
export function scientific(x: number | null): string {
  if (x === null || !Number.isFinite(x)) return "overflow";
  if (x === 0) return "0";
  if (Math.abs(x) >= 0.01 && Math.abs(x) < 1e4) return String(Number(x.toPrecision(2)));
  const [digits, exponent] = x.toExponential(1).split("e");
  return `${digits.replace(/\.0$/, "")}·${power(Number(exponent))}`;
}

export function bytes(n: number): string {
  if (n === 0) return "0 B";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const unit = Math.min(units.length - 1, Math.floor(Math.log2(n) / 10));
  const value = n / 2 ** (10 * unit);
  return `${value >= 100 || Number.isInteger(value) ? Math.round(value) : Number(value.toPrecision(3))} ${units[unit]}`;
}

export function microseconds(us: number): string {
  const three = (x: number) => (x >= 100 ? String(Math.round(x)) : String(Number(x.toPrecision(3))));
  return us >= 1e6 ? `${three(us / 1e6)} s` : us >= 1e3 ? `${three(us / 1e3)} ms` : `${three(us)} µs`;
}

export function times(ratio: number): string {
  return `${ratio >= 9.95 ? Math.round(ratio) : ratio.toFixed(1)}×`;
}

export function counted(n: number, one: string, many = `${one}s`): string {
  return `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
}

export function listed(numbers: number[], most = 12): string {
  return numbers.length <= most ? numbers.join(" → ") : `${numbers.slice(0, 4).join(" → ")} → … → ${numbers.slice(-4).join(" → ")}`;
}
