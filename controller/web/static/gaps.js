// Batches that may lack rows, and wishes to skip (`reprise skip`): at each query, and at the incident in which it happened.

import { byId, el, keyed, setText, whenChanged } from "./dom.js";
import { byNumber, count, some } from "./format.js";
import { table } from "./table.js";

const FIRST = 50;

/** Spans that have a batch; the last batch of one that has none is before its first. */
const real = (spans) => spans.filter(([first, last]) => first <= last);
const batches = (spans) => real(spans).reduce((sum, [first, last]) => sum + last - first + 1, 0);

/** In words: "3 to 12, 20". */
const listed = (spans) => real(spans).map(([first, last]) => (first === last ? String(first) : `${first} to ${last}`)).join(", ");

/** What a query may lack, by all incidents on record; null: nothing. */
export function lacking({ gaps, gaps_total: total }) {
  if (!gaps.length) return null;
  const [[first, last]] = gaps;
  const one = gaps.length === 1 && total === 1 && first === last;
  return `may lack rows in ${one ? "batch" : "batches"} ${listed(gaps)}${total > gaps.length ? `, and in ${total - gaps.length} earlier spans` : ""}`;
}

/** What somebody has asked for that is not carried out yet, in words; null: nothing. */
export function wished(doc, query) {
  const found = doc.skips.find((skip) => skip.query === query.id);
  return found ? words(found) : null;
}

const words = ({ taken, partitions }) =>
  taken ? `does without what it has missed: ${some(partitions)} begin anew` : "is to do without what it has missed; nobody has taken that up yet";

/** The cell that says why a query is not there, and below that what it lacks or is to lack; `query` may not be known. */
export function why(cell, reason, doc, query) {
  const notes = query ? [wished(doc, query), lacking(query)].filter(Boolean) : [];
  whenChanged(cell, [reason, notes], () => cell.replaceChildren(...(reason ? [reason] : []), ...notes.map((note) => el("div", { class: "note" }, note))));
}

/** Every wish, with what is down. */
export function wishes(doc) {
  byId("wishes").hidden = doc.skips.length === 0;
  keyed(byId("wishes"), doc.skips, ({ query, taken }) => `${query} ${taken}`, () => el("li"), (line, skip) => setText(line, `${skip.query} ${words(skip)}.`));
}

/** The gaps of the incident whose time line is shown, the query with most batches first. */
export function gaps(doc) {
  const incident = doc.incident ?? doc.last_incident;
  const box = byId("gaps");
  const marked = Object.entries(incident?.marked_spans ?? {}).filter(([, spans]) => real(spans).length);
  const skipped = Object.entries(incident?.skipped_spans ?? {}).filter(([, spans]) => real(spans).length);
  box.hidden = marked.length + skipped.length === 0;
  whenChanged(box, [incident?.id, marked, skipped], () => box.replaceChildren(...(box.hidden ? [] : [el("h3", {}, "Gaps"), ...tables(marked, skipped)])));
}

function tables(marked, skipped) {
  const all = marked.reduce((sum, [, spans]) => sum + batches(spans), 0);
  const widest = marked.toSorted(([one, of], [other, than]) => batches(than) - batches(of) || byNumber(one, other));
  const rows = ([name, spans]) => [name, batches(spans), listed(spans)];
  const said = `${count(all, "batch")} of ${count(marked.length, "query")} may lack rows; each is marked where it is shown, and nothing brings the rows back`;
  return [
    marked.length ? table(titled(said, marked), ["query", "batches", "which"], widest.slice(0, FIRST).map(rows), [1]) : el("p", {}, "No batch that anybody is shown lacks rows."),
    skipped.length ? table(titled("Partitions that began anew, and batches that were applied without their rows", skipped), ["partition", "batches", "which"], skipped.slice(0, FIRST).map(rows), [1]) : null,
  ].filter(Boolean);
}

const titled = (words, entries) => (entries.length > FIRST ? `${words}; the first ${FIRST} of ${entries.length}` : words);
