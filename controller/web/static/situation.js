// What is down, what comes next, when and why: two sentences and a handful of numbers.  What comes next is said by the
// controller, in the order of the plan; nothing is reckoned here but the seconds that have passed.

import { byId, el, keyed, setText } from "./dom.js";
import { byNumber, bytes, count, expectation, lagOf, nodeName, percent, rate, some, span } from "./format.js";

export function situation(doc, upcoming, now) {
  setText(byId("headline"), headline(doc));
  const [words, basis] = next(doc, upcoming, now);
  setText(byId("next"), words);
  setText(byId("next-basis"), basis);
  byId("next").hidden = !words;
  byId("next-basis").hidden = !basis;
  const problems = doc.problems;
  byId("problems").hidden = problems.length === 0;
  keyed(byId("problems"), problems, (text) => text, () => el("li"), setText);
  keyed(byId("figures"), figures(doc, now), ([title]) => title, figure, updateFigure);
}

function headline({ connected, phase, incident, queries }) {
  const before = connected ? "" : "ZooKeeper does not answer; this is what was known last. ";
  const available = `${queries.available} of ${count(queries.total, "query")} available`;
  if (phase === "starting") return `${before}The topology is starting.`;
  if (!incident) return `${before}${available}${phase === "steady" ? ", no incident is open." : `; the topology is ${phase}.`}`;
  const lost = [...new Set(incident.lost.map((entry) => nodeName(entry.node)))].sort(byNumber);
  const cause = lost.length ? `: ${count(lost.length, "node")} lost (${some(lost, 8)})` : "";
  const kind = `${incident.kind[0].toUpperCase()}${incident.kind.slice(1)} incident ${incident.id}`;
  return `${before}${kind}, ${incident.phase}${cause}. ${available}.`;
}

/** The query that is to come back next, when, and what it waits for; and what that time rests on. */
function next(doc, upcoming, now) {
  if (doc.phase === "starting") return [doc.queries.items[0]?.reason.replace(/^the topology has not started$/, "") ?? "", ""];
  if (!upcoming.length) return doc.incident?.phase === "verifying" ? ["Everything is back; a global checkpoint closes the incident.", ""] : [doc.rebalancing && !doc.incident ? levelling(doc.rebalancing) : "", ""];
  const [first] = upcoming;
  const priority = doc.queries.items.find((query) => query.id === first.query)?.priority;
  const [when, basis] = expectation(first, now - doc.time, doc.time);
  const at = first.enters_at === null ? "" : ` It comes in at ${first.exact ? "" : "about "}${Math.ceil(first.enters_at)} m of free CPU.`;
  return [`Next: ${first.query} (priority ${priority}), ${when}; it waits for ${first.waits_for.replace(/\.$/, "")}.${at}`, basis && `The time rests on: ${basis}.`];
}

function levelling({ moving, left, due }) {
  if (due !== null) return "Load will be looked at, and levelled where nodes are unequally full.";
  const now = Object.entries(moving).map(([partition, node]) => `${partition} goes to ${node}`);
  const then = left ? [`${count(left, "partition")} to follow`] : [];
  return `Load is levelled: ${[...now, ...then].join(", ")}.`;
}

/** Rows that sources give a second, and how many sources say so. */
function throughput({ graph, partitions }) {
  const sources = new Set(graph.operators.filter((operator) => operator.kind === "source").map((operator) => operator.name));
  const own = partitions.filter((partition) => sources.has(partition.operator));
  const known = own.map((partition) => partition.input_rows_s).filter((rows) => rows !== null && rows !== undefined);
  if (!known.length) return ["not known", "rows/s of all sources"];
  return [`${rate(known.reduce((sum, rows) => sum + rows, 0))} rows/s`, known.length < own.length ? `${known.length} of ${own.length} source partitions say` : "all sources together"];
}

/** The output that is furthest behind, of those that are available. */
function lag({ queries }) {
  const ready = queries.items.filter((query) => query.state === "available");
  const worst = ready.reduce((most, query) => (most === null || query.lag > most.lag ? query : most), null);
  return worst === null ? ["–", "nothing is available"] : [lagOf(worst), "the slowest available query"];
}

function figures(doc, now) {
  const { queries, availability, incident, nodes, checkpoint, batch, buffers, partitions, counters = [] } = doc;
  const bound = availability.points.at(-1)?.bound;
  const lost = nodes.filter((node) => node.state === "lost").length;
  const late = counters.filter(({ name, value }) => name === "late_rows" && value);
  const stored = partitions.reduce((sum, partition) => sum + (partition.state_bytes ?? 0), 0);
  const kept = (buffers.memory ?? 0) + (buffers.disk ?? 0);
  return [
    ["available by priority", percent(queries.share), `${queries.priority_available} of ${queries.priority_total}`],
    ["capacity allows", incident && bound !== null && bound !== undefined ? percent(bound) : incident ? "not planned yet" : "everything", "at most, by priority"],
    ["recovering / waiting", `${queries.recovering} / ${queries.waiting}`, "queries"],
    ["nodes", `${nodes.length - lost} alive`, lost ? `${lost} lost` : "none lost"],
    ["incident open", incident ? span(now - incident.opened_at) : "none", incident ? `from checkpoint ${incident.checkpoint}` : ""],
    ["batch", String(batch), doc.batch_interval_s ? `one each ${span(doc.batch_interval_s)}`.replace("each 1 s", "a second") : "as fast as they go"],
    ["checkpoint", checkpoint ? `batch ${checkpoint.newest}` : "none yet", checkpoint ? `${lagOf({ lag: checkpoint.age_batches, lag_s: doc.batch_interval_s ? checkpoint.age_batches * doc.batch_interval_s : null })} behind${checkpoint.enabled ? "" : "; off until all is back"}` : ""],
    ["lag of outputs", ...lag(doc)],
    ["throughput", ...throughput(doc)],
    ["state stored", bytes(stored), "newest of every partition"],
    ["late rows", String(late.reduce((sum, { value }) => sum + value, 0)), late.length ? `dropped by ${some(late.map(({ operator }) => operator), 3)}` : "none dropped"],
    ["kept for replay", bytes(kept), buffers.disk ? `${bytes(buffers.disk)} of it on disk` : ""],
  ];
}

const figure = ([title]) => el("div", { class: "figure" }, el("dt", {}, title), el("dd"), el("dd", { class: "small" }));

function updateFigure(node, [, value, small]) {
  setText(node.children[1], value);
  setText(node.children[2], small);
}
