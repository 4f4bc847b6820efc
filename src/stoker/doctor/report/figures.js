/* Figures in words, as the rest of the report says them, and round values for an axis. */
const digits = (value) => value.toFixed(value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2);
function duration(us) {
  if (us >= 99.95e6) return `${Math.floor(Math.round(us / 1e6) / 60)} min ${String(Math.round(us / 1e6) % 60).padStart(2, "0")} s`;
  if (us >= 999500) return `${digits(us / 1e6)} s`;
  return us >= 999.5 ? `${digits(us / 1e3)} ms` : `${us.toFixed(0)} µs`;
}
const rounded = (said) => said.replace(/\.0+ |(\.\d*?)0+ /, "$1 "); // 50.0 ms on an axis is 50 ms
function bytes(size) {
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (size < 1000) return `${digits(size)} ${unit}`;
    size /= 1000;
  }
  return `${digits(size)} TB`;
}
function percent(share) {
  return `${share > 0 && share < 0.0995 ? (share * 100).toFixed(1) : (share * 100).toFixed(0)} %`;
}
/* Times on an axis: as on a clock where they pass minutes. */
function clock(us) {
  if (us < 99.95e6) return rounded(duration(us));
  const seconds = Math.round(us / 1e6), two = (number) => String(number).padStart(2, "0");
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60];
  return `${hours ? `${hours}:${two(minutes)}` : minutes}:${two(seconds % 60)}`;
}
const CLOCK_STEPS = [10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400].map((seconds) => seconds * 1e6);
/* Round values from low to high, about `wanted` of them. */
function ticks(low, high, wanted, steps = []) {
  const raw = (high - low) / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = steps.find((each) => each >= raw && raw > each / 5) ?? [1, 2, 5, 10].find((factor) => factor * power >= raw) * power;
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-6; value += step) found.push(value);
  return found;
}
/* First index whose value is at least `wanted`. */
function search(sorted, wanted) {
  let low = 0, high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < wanted) low = middle + 1; else high = middle;
  }
  return low;
}
