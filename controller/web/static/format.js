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

/** Rows a second. */
export const rate = (rows) => (rows === null || rows === undefined ? "–" : rows >= 1000 ? `${(rows / 1000).toFixed(1)} k` : rows >= 100 ? rows.toFixed(0) : String(Math.round(rows * 10) / 10));

/** Seconds of a lag: tenths matter below ten. */
const seconds = (value) => (value < 10 ? `${Math.round(value * 10) / 10} s` : span(value));

/** Batches, and what they are in seconds of the stream where that is known. */
export function lagOf({ lag, lag_s: inSeconds }) {
  if (lag === null || lag === undefined) return "–";
  const known = inSeconds !== null && inSeconds !== undefined;
  return `${count(lag, "batch")}${known ? ` (${seconds(inSeconds)})` : ""}`;
}

/** A time of the stream, with its day where that is not the day of `now`; both in unix seconds. */
export function streamTime(seconds, now) {
  const [time, today] = [new Date(seconds * 1000), new Date(now * 1000)];
  const day = time.toDateString() === today.toDateString() ? "" : `${time.toLocaleDateString("sv-SE")} `;
  return `${day}${time.toLocaleTimeString("sv-SE")}`;
}

/** The watermark of a partition, at `now`. */
export function watermarkOf({ watermark, input_ended: ended }, now) {
  if (ended) return "input has ended";
  return watermark === null || watermark === undefined ? "–" : streamTime(watermark, now);
}

/** When something that is expected comes, `passed` seconds after `from`, and what that rests on. */
export function expectation({ expected: { low, high, basis } }, passed, from) {
  if (low === null) return ["time unknown", basis.replace(/^unknown: /, "")];
  const [least, most] = [Math.max(0, low - passed), high === null ? null : Math.max(0, high - passed)];
  if (most === null) return [`in ${span(least)} at least`, basis];
  if (most < 1) return ["expected now", basis];
  const range = Math.round(least) === Math.round(most) ? `in about ${span(most)}` : `in ${span(least)} to ${span(most)}`;
  return [`${range}, by ${clock(from + high)}`, basis];
}

export const cpu = (milli) => (milli === null || milli === undefined ? "unknown" : `${Math.round(milli)} m CPU`);

const MANY = { query: "queries", batch: "batches" };

export const count = (number, word) => `${number} ${number === 1 ? word : MANY[word] ?? `${word}s`}`;

/** At most `most` names, then how many more. */
export function some(names, most = 4) {
  const more = names.length - most;
  return more > 0 ? `${names.slice(0, most).join(", ")} and ${more} more` : names.join(", ");
}

/** A node by its name; with its incarnation where that is not the first. */
export const nodeName = (id) => id.replace(/#1$/, "");

/** n2 before n10. */
export const byNumber = (one, other) => one.localeCompare(other, "en", { numeric: true });
