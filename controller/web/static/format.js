// Numbers and times as people read them.

export const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString([], { hour12: false });

/** Rounded down, so that "100 %" means all. */
export const percent = (share) => `${Math.floor(share * 1000 + 1e-6) / 10} %`;

export function span(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

export function bytes(count) {
  for (const [unit, size] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
    if (count >= size) return `${(count / size).toFixed(1)} ${unit}`;
  }
  return `${count} B`;
}

export const cpu = (milli) => (milli === null || milli === undefined ? "unknown" : `${Math.round(milli)} m`);

const MANY = { query: "queries", batch: "batches" };

export const count = (number, word) => `${number} ${number === 1 ? word : MANY[word] ?? `${word}s`}`;

/** At most `most` names, then how many more. */
export function some(names, most = 4) {
  const more = names.length - most;
  return more > 0 ? `${names.slice(0, most).join(", ")} and ${more} more` : names.join(", ");
}

/** n2 before n10. */
export const byNumber = (one, other) => one.localeCompare(other, "en", { numeric: true });
